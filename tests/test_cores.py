"""Tasks in other processes: in order, whatever becomes of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from vpatch.cores import shared_out
from vpatch.errors import UsageError

HERE = os.getpid()


def _where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_what_is_made_comes_in_the_order_of_the_tasks() -> None:
    made = shared_out([partial(_where, number) for number in range(50)], 3)
    assert [number for number, _ in made] == list(range(50))
    assert HERE not in {process for _, process in made}


@pytest.mark.parametrize(("tasks", "jobs"), [(5, 1), (1, 8), (0, 8)])
def test_one_job_or_one_task_needs_no_other_process(tasks: int, jobs: int) -> None:
    made = shared_out([partial(_where, number) for number in range(tasks)], jobs)
    assert made == [(number, HERE) for number in range(tasks)]


def _killed(number: int) -> tuple[int, int]:
    if os.getpid() != HERE and number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number, os.getpid()


def test_what_a_killed_process_had_is_done_here() -> None:
    made = shared_out([partial(_killed, number) for number in range(6)], 2)
    assert [number for number, _ in made] == list(range(6))
    assert all(process == HERE for number, process in made if number % 2)


def _refuses() -> int:
    raise UsageError("no", hint="no")


def _breaks() -> int:
    raise ZeroDivisionError


@pytest.mark.parametrize(("task", "error"), [(_refuses, UsageError), (_breaks, ZeroDivisionError)])
def test_what_fails_there_fails_here(task: Callable[[], int], error: type[Exception]) -> None:
    with pytest.raises(error):
        shared_out([task, lambda: 1], 2)


def test_much_more_than_a_pipe_holds() -> None:
    made = shared_out([lambda: b"x" * 3_000_000, lambda: b"y" * 3_000_000], 2)
    assert [len(each) for each in made] == [3_000_000, 3_000_000]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_of_this_process_is_the_end_of_all(tmp_path: Path, number: signal.Signals) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    script = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from vpatch.cores import shared_out\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def task():\n"
        f"    (Path({str(seen)!r}) / str(os.getpid())).touch()\n"
        "    time.sleep(1)\n"
        "shared_out([task] * 60, 2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        _until(lambda: len(list(seen.iterdir())) == 2)
        process.send_signal(number)
        assert process.stderr is not None
        end = time.monotonic() + 10  # all tasks would take 30 s
        said = process.stderr.read()  # until the last process has closed it
    assert said.count(b"Traceback") <= 1  # this process's own
    assert len(list(seen.iterdir())) == 2
    assert time.monotonic() < end


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)
