"""``vpatch collect``: prompts through a vLLM that collects hidden states, into a set."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpatch.collect.begin import Begun, begin, check_place
from vpatch.collect.drive import TOPIC, Drive, Order, Watcher, no_collection
from vpatch.collect.manifest import About, Counts
from vpatch.collect.place import place_of
from vpatch.collect.store import Store
from vpatch.errors import HostError, InterruptedRunError, UsageError
from vpatch.files import cache_dir, locked
from vpatch.progress import Progress
from vpatch.report import Report
from vpatch.scratch import scratch_folder
from vpatch.smoke.env_host import Device
from vpatch.smoke.environment import Environment
from vpatch.smoke.named import named_environment
from vpatch.smoke.origin import origin_of
from vpatch.smoke.plan_own import check_folder
from vpatch.smoke.releases import facts_of
from vpatch.smoke.run import Children
from vpatch.smoke.wheels import installed_subject
from vpatch.talk import ConsoleTally
from vpatch.verbs.collect_shown import size
from vpatch.verbs.collect_verify import report

_HUB_NAME = re.compile(r"[\w][\w.-]{0,95}/[\w][\w.-]{0,95}")
# A user's own run of a user's own model: what is set for vLLM counts.
_PASSED = re.compile(r"(VLLM|HF|TORCH|TORCHINDUCTOR|TRITON|CUDA|OMP|PYTORCH)_\w+")
Tally = Callable[[str, int, int], ConsoleTally]


@dataclass(frozen=True)
class Wish:
    """What is to be collected.

    Attributes:
        model: A checkpoint's folder, or its name on a hub.
        prompts: A file of JSON lines.
        out: A folder, or a URL that fsspec knows.
        samples: How many prompts are taken; all where None.
        resume: Whether to go on with what is there.
        python: What has vLLM.
        device: Where it runs; None: a GPU where there is one.
        layers: vLLM's ids.
        norm: Whether the normed last states are kept too.
        sampling, options: Of ``SamplingParams(...)`` and ``LLM(...)``.
        shard_bytes: How large shards become; None: a file a sample.
        in_flight: Most prompts in the engine.
        backlog: Bytes that may wait to be taken in.
        jobs: How many files are verified beside each other.
    """

    model: str
    prompts: Path
    out: str
    samples: int | None
    resume: bool
    python: Path
    device: Device | None
    layers: tuple[int, ...]
    norm: bool
    sampling: Mapping[str, Any]
    options: Mapping[str, Any]
    shard_bytes: int | None
    in_flight: int
    backlog: int
    jobs: int | None


class _Watcher:
    def __init__(self, tally: ConsoleTally, first: int) -> None:
        self._tally = tally
        self._began = time.monotonic()
        self._first = first

    def say(self, text: str) -> None:
        self._tally.say(text)

    def at(self, counts: Counts) -> None:
        failed = f", {counts.failed} failed" if counts.failed else ""
        speed = (counts.bytes - self._first) / max(time.monotonic() - self._began, 0.1)
        more = f"{counts.rows} rows, {size(counts.bytes)}, {size(speed)}/s{failed}"
        self._tally.to(counts.samples + counts.failed, more)


def run(wish: Wish, progress: Progress, tally: Tally) -> Report:
    """Collects, and verifies. Exit 1: something is wrong with the set."""
    began = time.monotonic()
    place = place_of(wish.out)
    check_place(place, resume=wish.resume)
    model = _model(wish.model)
    device: Device = wish.device or ("cuda" if shutil.which("nvidia-smi") else "cpu")
    key = hashlib.sha256(str(place.folder or place.name).encode()).hexdigest()[:24]
    with locked(cache_dir() / "locks" / f"collect-{key}.lock", on_wait=progress.say):
        environment = named_environment(wish.python, device)
        about = _about(wish, model, environment)
        shard = wish.shard_bytes or 0
        begun = begin(place, about, wish.prompts, wish.samples, shard_bytes=shard)
        new = 0
        if begun.store is not None:
            new = _collect(begun.store, begun, wish, model, environment, progress, tally)
        else:
            progress.say(f"{place.name} is finished already")
        more = {"new_samples": new, "collect_seconds": round(time.monotonic() - began, 3)}
        return report(place, progress, wish.jobs, more)


def _collect(
    store: Store,
    begun: Begun,
    wish: Wish,
    model: str,
    environment: Environment,
    progress: Progress,
    tally: Tally,
) -> int:
    before = store.so_far.samples
    if before:
        progress.say(f"{before} of {begun.prompts} samples are there already")
    shown = tally("collecting", begun.prompts, before)
    try:
        with _interruptible(wish), scratch_folder("collect") as name:
            _drive(store, wish, model, environment, name, _Watcher(shown, store.so_far.bytes))
        store.finish()
    except BaseException as error:
        if store.place.folder is None:
            store.publish()
        if isinstance(error, HostError) and "--resume" not in error.hint:
            error.hint = f"{error.hint} With --resume it goes on with what is there.".strip()
        raise
    finally:
        shown.done()
        store.close()
    return store.so_far.samples - before


def _drive(
    store: Store,
    wish: Wish,
    model: str,
    environment: Environment,
    scratch: Path,
    watcher: Watcher,
) -> None:
    variables, options, prepare = _fitting(environment, model)
    order = Order(
        options={**options, **wish.options},
        layers=wish.layers,
        norm=wish.norm,
        sampling=wish.sampling,
        in_flight=wish.in_flight,
        backlog=wish.backlog,
        prepare=prepare,
    )
    package = "vpatch.collect.engine"
    children = Children(environment, scratch, variables, package=package)
    try:
        Drive(store, children, order, watcher).run()
    finally:
        children.close()


def _fitting(
    environment: Environment, model: str
) -> tuple[dict[str, str], dict[str, Any], dict[str, bool]]:
    """Variables, options of LLM and stand-ins that fit the device."""
    home = Path.home()
    variables = {
        "HF_HOME": str(home / ".cache/huggingface"),
        "VLLM_CACHE_ROOT": str(home / ".cache/vllm"),
        "VLLM_NO_USAGE_STATS": "1",
    }
    options: dict[str, Any] = {"model": model}
    prepare: dict[str, bool] = {}
    if environment.device == "cpu":
        facts = facts_of(installed_subject(environment.vllm).version)
        variables |= facts.variables("cpu", facts.default_runner("cpu"))
        prepare = {
            "plugin": facts.needs_cpu_drafter,
            "guard_scan": facts.scans_modules,
            "native_rotary": facts.native_rotary,
        }
    given = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    return {**variables, **given}, options, prepare


def _about(wish: Wish, model: str, environment: Environment) -> About:
    origin = origin_of(environment.origin, environment.direct_url)
    if origin.series is not None and TOPIC not in origin.series["topics"]:
        vllm = f"the vLLM {environment.vllm} of {environment.python}"
        raise no_collection(f"the series of {vllm} has no topic {TOPIC}")
    return About(
        target=model,
        layers=wish.layers,
        vllm=environment.vllm,
        series=None if origin.series is None else origin.series["sha256"],
        layout="files" if wish.shard_bytes is None else "shards",
        norm=wish.norm,
        sampling=wish.sampling,
        options=wish.options,
    )


def _model(name: str) -> str:
    if not Path(name).exists() and _HUB_NAME.fullmatch(name):
        return name
    try:
        return str(check_folder("model", Path(name)))
    except UsageError as error:
        message = error.message.replace("--model ", "", 1)
        raise UsageError(message, hint=error.hint, code=error.code) from None


@contextmanager
def _interruptible(wish: Wish) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; what {wish.out} has stays",
            hint="Go on with the same command and --resume.",
        ) from None
