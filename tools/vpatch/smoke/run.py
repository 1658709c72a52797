"""Runs engine starts as child processes, each with a time limit and a log of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpatch.smoke.environment import Environment
from vpatch.smoke.library import engine_library

_TAIL_LINES = 40
# What describes the machine; nothing that changes what vLLM does.
_PASSED = re.compile(r"PATH|LANG|TMPDIR|LD_LIBRARY_PATH|CUDA_(HOME|VISIBLE_DEVICES)|NCCL_\w+")
ONE_THREAD: Mapping[str, str] = {"OMP_NUM_THREADS": "1"}
"""For processes that work on tiny tensors beside others: with a thread for every core in each of
them they wait for one another, for minutes on a machine of many cores."""
_REFERENCE = {**ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""}
_GRACE_S = 45.0  # a server has to end its engine


@dataclass(frozen=True)
class Start:
    """One engine start.

    Attributes:
        name: As ``llama-nested/v1/eager``.
        job: What engine/start.py reads.
        variables: Environment variables of this start alone.
        limit: Seconds until it is ended; it may wait for others to leave the GPU.
        module: The engine-side module that runs the job.
        fresh_cache: Whether compiled graphs are kept for this run only.
    """

    name: str
    job: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    limit: float = 600.0
    module: str = "start"
    fresh_cache: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a start.

    Attributes:
        outputs: What the engine answered; None where it ended with an error or not at all.
        error: The error's type and message, or why there is none.
        compared: What engine/compare.py found; None where there was nothing to compare.
        seconds: The engine's start and answers; the whole process where it wrote nothing.
        ready: Seconds that the engine took until it could answer, or until its error.
        log: What it printed.
    """

    name: str
    outputs: Mapping[str, Any] | None
    error: str | None
    compared: Mapping[str, Any] | None
    seconds: float
    ready: float | None
    log: Path

    def tail(self) -> str:
        """The last lines of the log."""
        if not self.log.is_file():
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


class Children:
    """Child processes of one smoke run, ended together when it ends.

    Args:
        environment: Where vLLM is.
        scratch: A folder of the run's own.
        variables: Environment variables of all children.
        package: The engine side that modules are of.
    """

    def __init__(
        self,
        environment: Environment,
        scratch: Path,
        variables: Mapping[str, str],
        *,
        package: str = "vpatch.smoke.engine",
    ) -> None:
        self._package = package
        self._environment = environment
        self._scratch = scratch
        self._library = engine_library(scratch)
        self._home = scratch / "home"
        self._home.mkdir()
        self._variables = variables
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def module(
        self,
        name: str,
        argument: Path,
        *,
        log: Path,
        limit: float,
        variables: Mapping[str, str] | None = None,
        answer: Path | None = None,
    ) -> str | None:
        """Runs an engine-side module.

        Args:
            name: The module's.
            argument: Its one argument.
            log: Gets what it prints.
            limit: Seconds until it is ended.
            variables: Environment variables of this one.
            answer: Gets its standard output, where that is not talk.

        Returns:
            None, or why it did not end well.
        """
        command = [str(self._environment.python), "-m", f"{self._package}.{name}", str(argument)]
        with log.open("ab") as talk, (answer or log).open("ab") as output:
            with self._lock:
                if self._closed:
                    return "did not begin: the run was ended"
                process = subprocess.Popen(
                    command,
                    cwd=self._home,
                    env=self._environ(variables or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=talk,
                    start_new_session=True,
                )
                self._running.add(process.pid)
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                return f"did not end within {limit:.0f} seconds"
            finally:
                _end(process)
                with self._lock:
                    self._running.discard(process.pid)
        return None if code == 0 else _ended(code)

    def _environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
        path = [self._library, *self._environment.path]
        return {
            **environ,
            "HOME": str(self._home),
            # Where `pip install --user` put packages, which Python looks for below HOME.
            "PYTHONUSERBASE": os.environ.get("PYTHONUSERBASE", str(Path.home() / ".local")),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONUNBUFFERED": "1",
            **self._environment.variables,
            **self._variables,
            **variables,
        }

    def close(self) -> None:
        """Ends what still runs, a server's engine too; nothing begins any more."""
        with self._lock:
            self._closed = True
            running = set(self._running)
        for pid in running:
            _signal(pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until and self._alive():
            time.sleep(0.1)
        for pid in running & self._alive():
            _signal(pid, signal.SIGKILL)

    def _alive(self) -> set[int]:
        with self._lock:
            return set(self._running)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and whatever it started."""
    _signal(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # all of the group has ended


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def run_starts(
    starts: Sequence[Start],
    children: Children,
    scratch: Path,
    *,
    at_once: int,
    on_end: Callable[[Outcome], None],
) -> Mapping[str, Outcome]:
    """Runs starts in their order, so many at once.

    Args:
        starts: What to start.
        children: Their processes.
        scratch: Gets a folder for each start.
        at_once: How many processes run beside each other.
        on_end: Told each outcome, in a thread of its own.

    Returns:
        Outcomes by name.
    """

    def one(start: Start) -> Outcome:
        outcome = _run(start, children, scratch / start.name.replace("/", "-"))
        on_end(outcome)
        return outcome

    with ThreadPoolExecutor(at_once) as pool:
        try:
            outcomes = list(pool.map(one, starts))
        except BaseException:
            children.close()
            pool.shutdown(cancel_futures=True)
            raise
    return {outcome.name: outcome for outcome in outcomes}


def _run(start: Start, children: Children, folder: Path) -> Outcome:
    folder.mkdir(parents=True)
    job, log = folder / "job.json", folder / "log"
    job.write_text(json.dumps(start.job))
    began = time.monotonic()
    answer = folder / "outputs.json"
    failure = children.module(
        start.module,
        job,
        log=log,
        limit=start.limit,
        variables=start.variables,
        # start.py writes it itself: vLLM talks on standard output.
        answer=None if start.module == "start" else answer,
    )
    outputs = _read(answer)
    compared, compare = None, _comparison(start, folder)
    if failure is None and compare is not None:
        found = folder / "compared.json"
        failure = children.module(
            compare, job, log=log, limit=start.limit, variables=_REFERENCE, answer=found
        )
        compared = None if failure else _read(found)
        if compared is None:
            failure = f"answered; its comparison {failure or 'wrote no answer'}"
    took = (outputs or {}).get("seconds", {})
    # Without the imports, and without waiting for other engines, where the engine says it.
    seconds = sum(took.values()) if took else time.monotonic() - began
    error = _error(failure, outputs, log)
    good = outputs if error is None else None
    ready = took.get("start", took.get("error"))
    return Outcome(start.name, good, error, compared, seconds, ready, log)


def _comparison(start: Start, folder: Path) -> str | None:
    """The module that holds the answers against the reference, where one does."""
    if (folder / "rows.safetensors").is_file():
        return "compare"
    return "sampled" if "distribution" in start.job else None


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        read = json.loads(path.read_text())
    except ValueError:
        return None  # the module was ended before it had all of its answer
    return read if isinstance(read, dict) else None


def _error(failure: str | None, outputs: Mapping[str, Any] | None, log: Path) -> str | None:
    if outputs is not None and "error" in outputs:
        return f"{outputs['error']['type']}: {outputs['error']['message']}"
    if failure is not None:
        return f"the engine's process {failure}{last_line(log)}"
    return None if outputs is not None else "the engine's process wrote no whole answer"


def last_line(log: Path) -> str:
    """A log's last line, behind a colon; nothing where it has none."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = text.strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
