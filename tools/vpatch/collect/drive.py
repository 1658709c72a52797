"""Runs what a set lacks through an engine in a process of its own, and takes in what it writes."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vpatch.collect.events import Event, Events, first_error
from vpatch.collect.intake import Finished
from vpatch.collect.layout import PROMPTS
from vpatch.collect.lines import Failed
from vpatch.collect.manifest import Counts
from vpatch.collect.store import Store
from vpatch.collect.table import Seen
from vpatch.errors import FindingError, HostError
from vpatch.files import disk_errors
from vpatch.smoke.run import Children, last_line

_LOOKS_EVERY_S = 0.1
_PUBLISHES_EVERY_S = 300.0
_SILENCE_S = 900.0
_LONGEST_S = 365 * 24 * 3600.0
_ALL_FAIL = 32
_LONGEST_ERROR = 1000
_AGAIN = "Mend that, and run the same command with --resume."
TOPIC, OPTION = "collection", "hidden_states_collection"
_UNKNOWN = re.compile(rf"TypeError: .*unexpected keyword argument '{OPTION}'")


@dataclass(frozen=True)
class Order:
    """What the engine's process is told, beside prompts and folders.

    Attributes:
        options: Of ``LLM(...)``.
        layers: The ids of the states.
        norm: Whether the normed last states are kept too.
        sampling: Of ``SamplingParams(...)``.
        in_flight: Most prompts in the engine.
        backlog: Bytes of files that may wait to be taken in.
        prepare: What stands in for a GPU (smoke/engine/start.py).
    """

    options: Mapping[str, Any]
    layers: tuple[int, ...]
    norm: bool
    sampling: Mapping[str, Any]
    in_flight: int
    backlog: int
    prepare: Mapping[str, Any]


class Watcher(Protocol):
    """Is told how far a collection is."""

    def say(self, text: str) -> None:
        """A line of talk."""

    def at(self, counts: Counts) -> None:
        """What the set has now."""


class Drive:
    """One run of an engine for a set.

    Args:
        store: The set.
        children: Where the engine's process runs.
        order: What it is told.
        watcher: Told how far it is.
    """

    def __init__(self, store: Store, children: Children, order: Order, watcher: Watcher) -> None:
        self._store = store
        self._children = children
        self._order = order
        self._watcher = watcher
        self._staging = store.work / "staging"
        self._pending: dict[int, Event] = {}
        self._done = False
        self._error: str | None = None
        self._published = time.monotonic()
        self.log = store.work / "engine.log"

    def run(self) -> None:
        """Until every prompt has a sample or a reason.

        Raises:
            HostError: The engine ended before; what the set has stays.
            FindingError: Everything failed.
        """
        path = self._store.work / "events.jsonl"
        with disk_errors(self._staging):
            self._staging.mkdir(exist_ok=True)
            self._earlier(path)
            job = self._job(path)
        if job is None:
            return
        failure: list[str | None] = []
        engine = threading.Thread(target=self._engine, args=(job, failure.append), daemon=True)
        engine.start()
        events = Events(path)
        since = time.monotonic()
        while engine.is_alive():
            if self._look(events):
                since = time.monotonic()
                continue
            if time.monotonic() > since + _SILENCE_S:
                since = time.monotonic()
                self._watcher.say(f"no sample came for a while; the engine's log is {self.log}")
            engine.join(_LOOKS_EVERY_S)
        self._look(events)
        self._ended(failure[0] if failure else "was not waited for")

    def _earlier(self, path: Path) -> None:
        """Takes in what the engine of a killed run finished; the rest is made again."""
        self._look(Events(path), earlier=True)
        self._pending.clear()
        self._done, self._error = False, None
        path.unlink(missing_ok=True)
        shutil.rmtree(self._staging)
        self._staging.mkdir()

    def _job(self, events: Path) -> Path | None:
        todo = self._store.missing()
        if not todo:
            return None
        order, work = self._order, self._store.work
        collection: dict[str, Any] = {"dir": str(self._staging), "layers": list(order.layers)}
        if order.norm:
            collection["last"] = "normed"
        job = {
            **order.prepare,
            "options": dict(order.options),
            "collection": collection,
            "sampling": dict(order.sampling),
            "in_flight": order.in_flight,
            "backlog": order.backlog,
            "prompts": str(work / PROMPTS),
            "todo": todo,
            "staging": str(self._staging),
            "events": str(events),
        }
        path = work / "job.json"
        path.write_text(json.dumps(job))
        self.log.unlink(missing_ok=True)
        return path

    def _engine(self, job: Path, tell: Callable[[str | None], None]) -> None:
        try:
            tell(self._children.module("drive", job, log=self.log, limit=_LONGEST_S))
        except OSError as error:
            tell(f"did not begin: {error}")

    def _look(self, events: Events, *, earlier: bool = False) -> bool:
        """Reads events, and takes in the files that are there; whether there were any."""
        failed: list[Failed] = []
        for event in events.more():
            if "failed" in event and isinstance(event.get("sample"), int):
                if not earlier:  # it is tried again
                    failed.append(_failed(event, str(event["failed"])))
            elif "sample" in event and _is_whole(event):
                self._pending[event["sample"]] = event
            elif "error" in event:
                said = f"{event['error'].get('type')}: {event['error'].get('message')}"
                self._error = " ".join(said.split())[:_LONGEST_ERROR]
            elif "ready" in event and not earlier:
                self._watcher.say(f"the engine is ready after {event['ready']:.0f} s")
            self._done = self._done or "done" in event
        self._store.fail(failed)
        ready = [number for number, event in self._pending.items() if self._is_there(event)]
        finished = [self._finished(self._pending.pop(number)) for number in ready]
        if finished:
            self._store.take(finished, again=earlier)
        if not earlier:
            self._late()
        if failed or finished:
            self._told()
        return bool(failed or finished)

    def _is_there(self, event: Event) -> bool:
        file: Path = self._staging / event["file"]
        return file.is_file()

    def _finished(self, event: Event) -> Finished:
        return Finished(
            event["sample"],
            event.get("id"),
            self._staging / event["file"],
            event["prompt"],
            event["generated"],
            event["tokens"],
            event["finish"],
        )

    def _late(self) -> None:
        """Requests that failed after the engine had answered."""
        for number, event in list(self._pending.items()):
            path = self._staging / f"{event['file'].removesuffix('.safetensors')}.error.json"
            if path.is_file():
                try:
                    why = str(json.loads(path.read_text())["error"])
                except (ValueError, KeyError, TypeError):
                    why = "the engine could not keep its states"
                self._store.fail([_failed(self._pending.pop(number), why)])
                path.unlink()

    def _told(self) -> None:
        counts = self._store.so_far
        if counts.failed >= _ALL_FAIL and not counts.samples:
            raise FindingError(
                f"the first {counts.failed} prompts failed, the first one because: {self._first()}",
                hint="Mend that, and run it again with --resume.",
                code="all-failed",
            )
        self._watcher.at(counts)
        now = time.monotonic()
        if self._store.place.folder is None and now > self._published + _PUBLISHES_EVERY_S:
            self._published = now
            self._store.publish()

    def _first(self) -> str:
        return self._store.first_failed or "the engine gave no reason"

    def _ended(self, failure: str | None) -> None:
        """Judges the engine's end."""
        if self._error is None and failure is None and self._done:
            left = list(self._pending.values())
            self._store.fail([_failed(one, "the engine wrote no file") for one in left])
            missing = self._store.seen.count(Seen.MISSING)
            if missing:
                raise HostError(f"the engine left {missing} prompts out", hint=_AGAIN)
            return
        if self._error is not None and _UNKNOWN.search(self._error):
            raise no_collection(f"the vLLM that ran takes no {OPTION}")
        if self._error is not None and "root cause above" in self._error:
            self._error = first_error(self.log) or self._error
        why = self._error or f"its process {failure or 'ended early'}{last_line(self.log)}"
        counts = self._store.so_far
        kept = f"{counts.samples} of {counts.prompts} samples are kept"
        raise HostError(
            f"the engine ended before all prompts were through: {why}; {kept}",
            hint=f"{_AGAIN} Its log: {self.log}",
            code="engine",
        )


def no_collection(why: str) -> HostError:
    """A vLLM that cannot do it."""
    return HostError(
        f"{why}: it collects no hidden states",
        hint=f"Install a wheel that vpatch build made of a release with the topic {TOPIC}; "
        "vpatch status lists them.",
        code="no-collection",
    )


def _failed(event: Event, why: str) -> Failed:
    one = event.get("id")
    return Failed(event["sample"], one if isinstance(one, str) else None, why or "no reason")


def _is_whole(event: Event) -> bool:
    file = event.get("file")
    numbers = all(type(event.get(name)) is int for name in ("sample", "prompt", "generated"))
    texts = all(isinstance(event.get(name), str) for name in ("tokens", "finish"))
    plain = isinstance(file, str) and "/" not in file and file.endswith(".safetensors")
    return bool(numbers and texts and plain)
