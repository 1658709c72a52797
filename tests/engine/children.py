"""Runs modules that need torch but no vLLM, each in a process under an environment's Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TIMEOUT_S = 420


def plain(python: Path, library: Path, module: str, argument: str | Path) -> str:
    """One module; returns its standard output. Its last lines show when it fails."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, [library, TESTS])),
        "OMP_NUM_THREADS": "1",
    }
    command: Sequence[str | Path] = [python, "-m", module, argument]
    done = subprocess.run(
        command, env=environment, capture_output=True, check=False, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        raise AssertionError(f"{command}: exit {done.returncode}\n{tail}")
    return done.stdout
