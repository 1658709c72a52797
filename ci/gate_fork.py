"""Runs the smoke's engine-side modules in forks of one process that has imported torch already.

Under the engine environment's Python: reads requests from standard input, one JSON object a line,
and answers each with the exit code. Nothing of vLLM is imported before the fork, so that a fork
meets a changed vLLM as a new process would; what is imported is other people's and stays the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_OWN = ("vllm", "vpatch", "transformers_modules", "__main__", "gate_fork")
Tracer = Callable[[FrameType, str, Any], Any]


def main(preloads: Path) -> None:
    """Answers until standard input ends.

    Args:
        preloads: Names of modules to import first, where the file is there.
    """
    if preloads.is_file():
        for name in json.loads(preloads.read_text()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    _say({"ready": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(_run(request))
        _say({"code": _wait(child, float(request["limit"]))})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _wait(child: int, limit: float) -> int | None:
    """The exit code; a signal's number below zero; None where it took too long."""
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # whatever it started
    return os.waitstatus_to_exitcode(status)


def _run(request: dict[str, Any]) -> int:
    os.setsid()
    for (
        stream,
        name,
    ) in ((2, "log"), (1, "output")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.path[:0] = request["path"]
    sys.argv = [request["module"], request["argument"]]
    lines: set[tuple[str, int]] = set()
    if request.get("traced"):
        _trace(set(request["traced"]), lines)
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=False)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    if request.get("traced"):
        sys.settrace(None)
        Path(request["lines"]).write_text(json.dumps(sorted(lines)))
        names = [name for name in sys.modules if name.partition(".")[0] not in _OWN]
        Path(request["lines"]).with_suffix(".modules").write_text(json.dumps(names))
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _trace(files: set[str], lines: set[tuple[str, int]]) -> None:
    """Notes which lines of some files run."""

    def local(frame: FrameType, event: str, _argument: Any) -> Tracer:
        if event == "line":
            lines.add((_inside(frame), frame.f_lineno))
        return local

    def called(frame: FrameType, _event: str, _argument: Any) -> Tracer | None:
        if _inside(frame) not in files:
            return None
        lines.add((_inside(frame), frame.f_lineno))
        return local

    threading.settrace(called)
    sys.settrace(called)


def _inside(frame: FrameType) -> str:
    """A file's path as the tree has it."""
    _, found, rest = frame.f_code.co_filename.rpartition("/vllm/")
    return f"vllm/{rest}" if found else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
