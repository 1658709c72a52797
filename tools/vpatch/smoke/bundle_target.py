"""The host that a bundle is for: its Python, its C library, and what is installed on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from vpatch.errors import UsageError

_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,3})?", re.ASCII)
_LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")
_OLDEST_GLIBC = 5


@dataclass(frozen=True)
class Target:
    """Where the bundle will be unpacked.

    Attributes:
        python: ``3.12`` or ``3.12.3``.
        glibc: The minor version of its glibc 2: wheels for a newer one are not taken.
        machine: The processor.
    """

    python: str = "3.12"
    glibc: int = 35
    machine: str = "x86_64"

    def __post_init__(self) -> None:
        if not _PYTHON.fullmatch(self.python):
            raise UsageError(
                f"{self.python[:40]!r} is not a version of Python",
                hint="Write it as 3.12 or 3.12.3: what `python -V` says on the GPU host.",
                code="bad-python",
            )

    @property
    def short_python(self) -> str:
        """Without the patch level."""
        return ".".join(self.python.split(".")[:2])

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags, the newest first; pip takes each exactly as it is."""
        numbers = range(self.glibc, _OLDEST_GLIBC - 1, -1)
        tags = [f"manylinux_2_{number}" for number in numbers]
        return tuple(f"{tag}_{self.machine}" for tag in [*tags, *_LEGACY])

    @property
    def environment(self) -> dict[str, str]:
        """What markers of requirements are evaluated for."""
        full = self.python if self.python.count(".") == 2 else f"{self.python}.0"  # noqa: PLR2004
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.short_python,
            "sys_platform": "linux",
        }


def read_have(path: Path) -> Mapping[str, Version]:
    """What the GPU host has: canonical name -> version.

    Args:
        path: What ``python -m pip list --format json`` printed there. A version that is not one
            (pip prints such for legacy installs) counts as 0: the package is there, of no use.

    Raises:
        UsageError: The file cannot be read, or is something else.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {canonicalize_name(row["name"]): _version(row["version"]) for row in rows}
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _bad(path, "it is not what `pip list --format json` prints") from error


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _bad(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"{path} does not tell what the GPU host has: {cause}",
        hint="On the GPU host: python -m pip list --format json > pip-list.json",
        code="bad-have",
    )
