"""The writing side of a set: takes the engine's files in, one by one, and ends with the manifest.

At each moment a kill -9 leaves something that `Store.open` goes on from: what has its name in the
set stays as it is, and nothing else counts.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from vpatch.collect.blocks import Block, read_blocks
from vpatch.collect.file import Shape
from vpatch.collect.intake import Finished, check_in
from vpatch.collect.journal import Journal, recover
from vpatch.collect.layout import (
    ABOUT,
    LAST,
    MANIFEST,
    PROMPTS,
    SAMPLES,
    STATES,
    TOKENS,
    number_of_file,
    number_of_shard,
    shard_name,
)
from vpatch.collect.lines import Failed, Line, Sample
from vpatch.collect.manifest import About, Counts, Manifest
from vpatch.collect.place import Folder, Place
from vpatch.collect.shapes import shape_of
from vpatch.collect.shard import MOST_SAMPLES, write_shard
from vpatch.collect.table import Prompts, Seen
from vpatch.files import disk_errors, sha256_file

_READY = "ready"
_AT_ONCE = 4  # most of it is hashes and the disk
_TEMPORARY = re.compile(r"\.(hs_\d+|shard-\d+|manifest|set|prompts|samples)\.")


class Store:
    """A set that is being made.

    Args:
        place: Where it lies.
        work: A local folder that outlives a killed run; beside the set where that is local.
        about: What the set is.
        prompts: Its prompts.
        shard_bytes: How large shards become.
    """

    def __init__(
        self, place: Place, work: Path, about: About, prompts: Prompts, shard_bytes: int
    ) -> None:
        self.place = place
        self.work = work
        self._about = about
        self._prompts = prompts
        self._shard_bytes = shard_bytes
        self._ready: dict[Path, Sample] = {}
        self._shape: Shape | None = None
        self.first_failed: str | None = None
        self._sharded = about.layout == "shards"
        self._ready_folder = Folder(work / _READY)
        self._kinds = (STATES, TOKENS, LAST) if about.norm else (STATES, TOKENS)
        self.counts = Counts(prompts=len(prompts))
        self._open()

    def _open(self) -> None:
        self.seen = recover(self.work / SAMPLES, self.place, len(self._prompts))
        self._next_shard = 0
        for block in self._blocks():
            self._count(block)
            if block.shard is not None:
                self._next_shard = (number_of_shard(block.file) or 0) + 1
            if self._shape is None:
                self._shape = shape_of(self.place, block)
        self._journal = Journal(self.work / SAMPLES)
        if self._sharded:
            self._open_ready()

    def _open_ready(self) -> None:
        """Samples that wait for their shard."""
        self._ready_folder.make()
        path = self.work / f"{_READY}.jsonl"
        recover(path, self._ready_folder, len(self._prompts))
        self._ready_journal = Journal(path)
        for block in self._blocks(path):
            sample = block.samples[0]
            if self.seen[sample.number] == Seen.MISSING:
                self._ready[self._ready_folder.folder / block.file] = sample
                self.seen.put(sample.number, Seen.SAMPLE)
        for entry in list(self._ready_folder.entries()):
            if self._ready_folder.folder / entry.name not in self._ready:
                self._ready_folder.remove(entry.name)

    def _blocks(self, path: Path | None = None) -> Iterator[Block]:
        path = path or self.work / SAMPLES
        if path.exists():
            with path.open("rb") as stream:
                for one in read_blocks(stream, lambda _finding: None):
                    if isinstance(one, Block):
                        yield one

    def missing(self) -> list[tuple[int, int]]:
        """First and last number of each run of prompts that have no sample."""
        return list(self.seen.runs(Seen.MISSING))

    def strangers(self) -> Iterator[str]:
        """Names in the set's folder that a killed run left there and that are not the set's."""
        shards = {block.file for block in self._blocks() if block.shard is not None}
        for entry in self.place.entries():
            number = number_of_file(entry.name)
            if number_of_shard(entry.name) is not None:
                if entry.name not in shards:
                    yield entry.name
            elif number is not None:
                there = number < len(self.seen) and self.seen[number] == Seen.SAMPLE
                if not there or self._sharded:
                    yield entry.name
            elif _TEMPORARY.match(entry.name):
                yield entry.name

    @property
    def so_far(self) -> Counts:
        """What there is, samples that wait for their shard among it."""
        waiting = self._ready.values()
        return replace(
            self.counts,
            samples=self.counts.samples + len(waiting),
            rows=self.counts.rows + sum(one.rows for one in waiting),
            bytes=self.counts.bytes + sum(one.size or 0 for one in waiting),
        )

    def take(self, files: Sequence[Finished], *, again: bool = False) -> list[Failed]:
        """Takes files in that the engine has finished; they are gone from where they were.

        Those of a prompt that has a sample already are only removed.

        Args:
            files: The files.
            again: Whether a prompt whose file is not what it has to be is to be run again: it is
                not noted as failed.

        Returns:
            Those that are not what they have to be; they are removed too.
        """
        good: list[tuple[Finished, Sample]] = []
        failed: list[Failed] = []
        new = [file for file in files if self.seen[file.number] == Seen.MISSING]
        for file, sample in zip(new, self._checked(new), strict=True):
            if isinstance(sample, Sample):
                good.append((file, sample))
                self.seen.put(sample.number, Seen.SAMPLE)
            else:
                failed.append(sample)
        journal = self._ready_journal if self._sharded else self._journal
        place: Place = self._ready_folder if self._sharded else self.place
        if good:
            # The line first: a file without one would be a stranger.
            journal.add(sample for _, sample in good)
            for file, sample in good:
                place.take(file.path, sample.file)
            place.settle()
        for _, sample in good:
            if self._sharded:
                self._ready[self._ready_folder.folder / sample.file] = sample
            else:
                self._count(_block(sample))
        if not again:
            self.fail(failed)
        for file in files:
            file.path.unlink(missing_ok=True)
        self._pack(last=False)
        return failed

    def _checked(self, files: Sequence[Finished]) -> Iterator[Sample | Failed]:
        """Reads files beside each other; the first ones alone, until one says the rows' shape."""
        first = 0
        while first < len(files) and self._shape is None:
            yield self._check(files[first])
            first += 1
        if len(files) - first == 1:
            yield self._check(files[first])
        elif first < len(files):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                yield from pool.map(self._check, files[first:])

    def _check(self, file: Finished) -> Sample | Failed:
        sample, shape = check_in(file, self._prompts, self._shape, self._about)
        self._shape = self._shape or shape
        return sample

    def fail(self, failed: Iterable[Failed]) -> None:
        """Notes prompts that have no sample."""
        lines = [one for one in failed if self.seen[one.number] == Seen.MISSING]
        for one in lines:
            self.seen.put(one.number, Seen.FAILED)
        if lines:
            self.first_failed = self.first_failed or lines[0].reason
            self._journal.add(lines)
            self.counts = replace(self.counts, failed=self.counts.failed + len(lines))

    def _count(self, block: Block) -> None:
        now = self.counts
        self.counts = replace(
            now,
            samples=now.samples + len(block.samples),
            rows=now.rows + sum(sample.rows for sample in block.samples),
            bytes=now.bytes + block.size,
            files=now.files + 1,
        )

    def _pack(self, *, last: bool) -> None:
        """Writes shards of what waits, as long as there is enough for one."""
        while self._ready and (part := self._part(last=last)):
            name = shard_name(self._next_shard)
            scratch = self.work / "shard.tmp"
            shard = write_shard(scratch, name, part, self._about.layers, self._kinds)
            samples = tuple(
                replace(sample, file=name, size=None, sha256=None) for sample in part.values()
            )
            lines: list[Line] = [shard, *samples]
            self._journal.add(lines)
            self.place.take(scratch, name)
            self.place.settle()
            self._next_shard += 1
            self._count(Block(0, name, shard.size, shard.sha256, shard, samples))
            for path in part:
                path.unlink()
                del self._ready[path]

    def _part(self, *, last: bool) -> dict[Path, Sample]:
        """What goes into the next shard; nothing where it is to become larger."""
        part: dict[Path, Sample] = {}
        size = 0
        for path, sample in self._ready.items():
            part[path] = sample
            size += sample.size or 0
            if size >= self._shard_bytes or len(part) == MOST_SAMPLES:
                return part
        return part if last else {}

    def publish(self) -> None:
        """Puts the samples that there are so far beside the files, for a place far away."""
        self._copy(self.work / SAMPLES, SAMPLES)

    def finish(self) -> Manifest:
        """Writes what makes a set of the files; the work folder is gone then."""
        self._pack(last=True)
        self.publish()
        sha256 = {name: sha256_file(self.work / name) for name in (ABOUT, PROMPTS, SAMPLES)}
        manifest = Manifest(self.counts, self._shape, sha256)
        self.place.put(manifest.to_json(), MANIFEST)
        self.place.settle()
        self.close()
        shutil.rmtree(self.work)
        return manifest

    def _copy(self, local: Path, name: str) -> None:
        copy = self.work / f"copy-of-{name}"
        with disk_errors(copy):
            shutil.copyfile(local, copy)
            with copy.open("rb") as stream:
                os.fsync(stream.fileno())
        self.place.take(copy, name)

    def close(self) -> None:
        """Ends the writing; nothing is lost."""
        self._journal.close()
        if self._sharded:
            self._ready_journal.close()


def _block(sample: Sample) -> Block:
    return Block(0, sample.file, sample.size or 0, sample.sha256 or "", None, (sample,))
