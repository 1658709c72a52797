"""How a run begins: a new set, or one that an earlier run left; the same prompts in both."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from vpatch.collect.layout import (
    ABOUT,
    MANIFEST,
    PROMPTS,
    SAMPLES,
    WORK,
    number_of_file,
    number_of_shard,
)
from vpatch.collect.manifest import About, read_about, read_manifest
from vpatch.collect.place import Place
from vpatch.collect.prompts import read_prompts
from vpatch.collect.store import Store
from vpatch.collect.table import Prompts
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import cache_dir, disk_errors, write_atomically

_NEW = "new.jsonl"
# What a run that ended for want of memory, say, is gone on with otherwise.
_FREE = frozenset(
    {
        "cpu_offload_gb",
        "disable_log_stats",
        "download_dir",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "load_format",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "num_gpu_blocks_override",
        "speculative_config",
        "swap_space",
    }
)


@dataclass(frozen=True)
class Begun:
    """A set to go on with.

    Attributes:
        store: Where samples go; None where there is nothing left to do.
        prompts: How many there are.
    """

    store: Store | None
    prompts: int


def work_of(place: Place) -> Path:
    """The folder for what is not in the set yet; it outlives a killed run."""
    if place.folder is not None:
        return place.folder / WORK
    named = hashlib.sha256(place.name.rstrip("/").encode()).hexdigest()[:24]
    return cache_dir() / "collect" / named


def check_place(place: Place, *, resume: bool) -> About | None:
    """Looks whether a set may begin here, or go on, before anything is started.

    Returns:
        What the set that is there says of itself; None where there is none yet.

    Raises:
        UsageError: Something lies there, and it is not to be gone on with.
        FindingError: Its set.json is none.
    """
    about = read_about(place)
    if about is not None:
        if not resume:
            raise UsageError(
                f"{place.name} has a set already",
                hint="Go on with it with --resume, or name another place.",
                code="not-empty",
            )
        return about
    other = [entry.name for entry in place.entries() if entry.name != WORK]
    if [name for name in other if not (resume and name.startswith(f".{ABOUT}."))]:
        raise UsageError(
            f"{place.name} is not empty, and no set: it has {other[0]!r}",
            hint="Name a new folder.",
            code="not-empty",
        )
    return None


def begin(
    place: Place, about: About, prompts: Path, most: int | None, *, shard_bytes: int
) -> Begun:
    """Makes a place ready for samples; the caller holds its lock and asked `check_place`.

    Args:
        place: The set's.
        about: What the set is to be.
        prompts: The file of prompts.
        most: How many of them; all where None.
        shard_bytes: How large shards become.

    Raises:
        UsageError: A line is no prompt, or the set there is another one.
        HostError: The disk.
    """
    work = work_of(place)
    before = read_about(place)
    if before is None or _is_bare(place, work):
        before = None
        shutil.rmtree(work, ignore_errors=True)  # of a run with other prompts, perhaps
    else:
        _check_same(before, about, place)
        about = before
    place.make()
    with disk_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        table = _read(prompts, work / _NEW, most)
    grown = before is None or _check_prefix(place, work / _NEW)
    manifest = read_manifest(place)
    if manifest is not None:
        if not grown and not manifest.counts.failed:
            shutil.rmtree(work)
            return Begun(None, len(table))
        # The samples first: without a manifest, it is the work folder's that count.
        _fetch(place, SAMPLES, work)
        place.remove(MANIFEST)
    elif not (work / SAMPLES).exists() and place.size(SAMPLES) is not None:
        _fetch(place, SAMPLES, work)
    (work / _NEW).replace(work / PROMPTS)
    write_atomically(work / ABOUT, about.to_json())
    if before is None:
        place.put(about.to_json(), ABOUT)  # first: by it a later run knows the set
    if grown:
        _give(place, work / PROMPTS, PROMPTS)
        place.settle()
    store = Store(place, work, about, table, shard_bytes)
    for name in list(store.strangers()):
        place.remove(name)
    return Begun(store, len(table))


def _is_bare(place: Place, work: Path) -> bool:
    """Whether no sample has its name yet: whatever was begun may still become another set."""
    if place.size(MANIFEST) is not None or any((work / "ready").glob("*")):
        return False
    names = (entry.name for entry in place.entries())
    return all(number_of_file(name) is None and number_of_shard(name) is None for name in names)


def _read(prompts: Path, copy: Path, most: int | None) -> Prompts:
    """Reads all prompts, and writes those that are used, one a line."""
    table = Prompts()
    try:
        stream: BinaryIO = prompts.open("rb")
    except OSError as error:
        raise UsageError(
            f"{prompts} cannot be read: {error.strerror}", hint="Name a file of JSON lines."
        ) from error
    with stream, copy.open("wb") as out:
        for prompt in read_prompts(stream, str(prompts), most):
            table.add(prompt)
            out.write(prompt.raw + b"\n")
        out.flush()
        os.fsync(out.fileno())
    if not len(table):
        raise UsageError(f"{prompts} has no prompts", hint="Name a file of JSON lines.")
    return table


def _check_prefix(place: Place, new: Path) -> bool:
    """Whether there are more prompts than before; those of before have to be the first ones."""
    if place.size(PROMPTS) is None:
        return True
    stream, size = place.open(PROMPTS)
    with stream, new.open("rb") as again:
        while chunk := stream.read(1 << 20):
            if again.read(len(chunk)) != chunk:
                raise UsageError(
                    f"{place.name} was begun with other prompts, or more of them",
                    hint="Resume with the same file and as many --samples, or collect elsewhere.",
                    code="other-prompts",
                )
    return new.stat().st_size != size


def _check_same(before: About, about: About, place: Place) -> None:
    for one in fields(About):
        old, new = getattr(before, one.name), getattr(about, one.name)
        if one.name == "options":
            old, new = _of_states(old), _of_states(new)
        if old != new:
            raise UsageError(
                f"{place.name} was begun with {one.name} {old!r:.200}, and this is {new!r:.200}",
                hint="Resume with what it was begun with, or collect elsewhere.",
                code="other-set",
            )


def _of_states(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that change states; others may be mended between runs."""
    return {name: value for name, value in options.items() if name not in _FREE}


def _fetch(place: Place, name: str, work: Path) -> None:
    scratch = work / f"{name}.tmp"
    try:
        stream, _ = place.open(name)
    except (FileNotFoundError, FindingError) as error:
        raise HostError(
            f"{place.name} has a manifest and no {name}",
            hint="Collect it again, elsewhere.",
            code="torn-set",
        ) from error
    with stream, scratch.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(work / name)


def _give(place: Place, local: Path, name: str) -> None:
    copy = local.with_name(f"copy-of-{name}")
    with disk_errors(copy):
        shutil.copyfile(local, copy)
        with copy.open("rb") as stream:
            os.fsync(stream.fileno())
    place.take(copy, name)
