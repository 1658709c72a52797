"""The interpreter that an environment is made of."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import parse_wheel_filename

from vpatch.errors import HostError
from vpatch.smoke.bundle_target import Target
from vpatch.wheel.meta import Distribution

_TIMEOUT_S = 60
_ASK = """\
import json, os, platform, sys
own = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "machine": platform.machine(),
    "libc": list(platform.libc_ver()),
    "base": os.path.realpath(own),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython on this machine.

    Attributes:
        path: As it was named.
        base: The real file behind it: a virtual environment's python is a link.
        version: ``3.12.3``.
        target: Which wheels it takes.
    """

    path: Path
    base: str
    version: str
    target: Target


def ask(python: Path) -> Interpreter:
    """Runs an interpreter to learn what it is.

    Raises:
        HostError: It cannot run, or is no CPython on Linux with glibc.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )
        said = json.loads(done.stdout)
        name, glibc = said["libc"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unfit(f"{python} is not a Python that runs: {cause}") from error
    minor = re.fullmatch(r"2\.(\d+)(?:\.\d+)?", glibc) if name == "glibc" else None
    if said["implementation"] != "cpython" or minor is None:
        raise _unfit(f"{python} is not a CPython on Linux with glibc")
    # A version of a development build has a suffix that Target does not take.
    version = re.match(r"\d+\.\d+\.\d+", said["version"])
    plain = version[0] if version else said["version"]
    target = Target(plain, int(minor[1]), said["machine"])
    return Interpreter(python, said["base"], plain, target)


def check_takes(interpreter: Interpreter, wheel: Distribution, requires_python: str) -> None:
    """Looks whether a wheel is for this interpreter and this machine.

    Args:
        interpreter: From `ask`.
        wheel: vLLM.
        requires_python: What its METADATA says; empty for any.

    Raises:
        HostError: It is not.
    """
    name = wheel.archive.path.name
    try:
        specifiers = SpecifierSet(requires_python)
    except InvalidSpecifier as error:
        raise _unfit(f"{name} needs a Python that nobody understands: {error}") from error
    if not specifiers.contains(interpreter.version, prereleases=True):
        raise _unfit(
            f"{name} needs Python {specifiers}, {interpreter.path} is {interpreter.version}"
        )
    target = interpreter.target
    fitting = {*target.platforms, f"linux_{target.machine}", "any"}
    if not any(tag.platform in fitting for tag in parse_wheel_filename(name)[3]):
        raise HostError(
            f"{name} is for another machine than this one: "
            f"{target.machine} with glibc 2.{target.glibc}",
            hint="Give the wheel for this machine.",
            code="wrong-machine",
        )


def make_venv(interpreter: Interpreter, folder: Path, folders: Sequence[Path]) -> None:
    """Makes a virtual environment without packages.

    Args:
        interpreter: Whose.
        folder: An empty folder.
        folders: What is on its ``sys.path``, as if it was installed into it.

    Raises:
        HostError: The interpreter lacks its venv module.
    """
    command: list[str | Path] = [
        interpreter.path,
        "-I",
        "-m",
        "venv",
        "--without-pip",
        "--symlinks",
        folder,
    ]
    done = subprocess.run(
        command, capture_output=True, check=False, stdin=subprocess.DEVNULL, text=True
    )
    sites = list(folder.glob("lib/python3*/site-packages"))
    if done.returncode != 0 or not sites:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise HostError(
            f"{interpreter.path} cannot make a virtual environment: {said[-1]}",
            hint="Install its venv module (Debian: python3-venv), or name another with --python.",
            code="no-venv",
        )
    # Not PYTHONPATH: the packages' own .pth files count, and any child finds them too.
    lines = [f"import site; site.addsitedir({os.fspath(one)!r})\n" for one in folders]
    (sites[0] / "vpatch.pth").write_text("".join(lines), encoding="utf-8")


def _unfit(cause: str) -> HostError:
    return HostError(
        cause,
        hint="Name another one: vpatch smoke --python /path/to/python",
        code="wrong-python",
    )
