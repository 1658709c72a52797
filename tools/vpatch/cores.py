"""Tasks on several cores: in processes that know all that this one knows."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar

from vpatch.errors import VpatchError

Made = TypeVar("Made")
Task = Callable[[], Made]
# A task's number, as it waits in a pipe: a process takes it out whole, and no lock is needed.
_NUMBER = 2


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shared_out(tasks: Sequence[Task[Made]], jobs: int = 0) -> list[Made]:
    """Runs tasks that make a value and nothing else, each where a core is free.

    Args:
        tasks: The longest first. What they make travels between processes; what they know is this
            process's, as it is now.
        jobs: How many processes; 0: one a core; with 1, or for a single task: this one.

    Returns:
        What they made, in their order.

    Raises:
        What a task raises: one that fails in another process is done again in this one.
    """
    jobs = min(jobs or cores(), len(tasks))
    found = _elsewhere(tasks, jobs) if jobs > 1 else {}
    return [found[number] if number in found else task() for number, task in enumerate(tasks)]


def _elsewhere(tasks: Sequence[Task[Made]], jobs: int) -> dict[int, Made]:
    """What other processes made: the task's number -> it."""
    waiting, end = os.pipe()
    os.write(end, b"".join(number.to_bytes(_NUMBER, "big") for number in range(len(tasks))))
    os.close(end)
    started: list[tuple[BaseProcess, Connection]] = []
    found: dict[int, Made] = {}
    try:
        with contextlib.suppress(OSError):  # no room for another process: the others do it all
            started.extend(_start(tasks, waiting) for _ in range(jobs))
        for _, answer in started:
            with contextlib.suppress(EOFError):  # it was killed
                found.update(answer.recv())
    finally:
        os.close(waiting)
        for process, answer in started:
            answer.close()
            process.terminate()
            process.join()
    return found


def _start(tasks: Sequence[Task[Made]], waiting: int) -> tuple[BaseProcess, Connection]:
    context = get_context("fork")
    answer, end = context.Pipe(duplex=False)
    try:
        process = context.Process(target=_work, args=(tasks, waiting, end), daemon=True)
        process.start()
    except OSError:
        answer.close()
        raise
    finally:
        end.close()
    return process, answer


def _work(tasks: Sequence[Task[Made]], waiting: int, end: Connection) -> None:
    """Does what waits, and says what came of it when nothing does any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits hears it, and ends this
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    gc.disable()  # what is garbage goes with the process
    made = {number: one for number in _taken(waiting) for one in _made(tasks[number])}
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more
        end.send(made)


def _taken(waiting: int) -> Iterator[int]:
    """The numbers of tasks, as long as the process is there that wants them."""
    parent = os.getppid()
    while os.getppid() == parent and (number := os.read(waiting, _NUMBER)):
        yield int.from_bytes(number, "big")


def _made(task: Task[Made]) -> Iterator[Made]:
    """What a task makes; nothing where it fails: an error with evidence does not travel."""
    with contextlib.suppress(VpatchError):
        yield task()
