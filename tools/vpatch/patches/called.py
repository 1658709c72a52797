"""Which patch of a series is meant: by its file's name, or its number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vpatch.errors import UsageError

_SHOWN = 5


def is_called(name: str, wanted: str) -> bool:
    """Whether a patch is meant by its file's name, with or without its ending, or its number."""
    if wanted.isascii() and wanted.isdecimal():
        return int(name[:4]) == int(wanted)
    return Path(wanted).name in (name, name.removesuffix(".patch"))


def counted(count: int) -> str:
    """How many patches, in words."""
    return "1 patch" if count == 1 else f"{count} patches"


def the_patch(wanted: str, names: Sequence[str], tag: str, option: str = "") -> str:
    """The file's name of the patch that is meant.

    Args:
        names: The series' file names, in order.
        tag: The series' release.
        option: The option that named it; empty for an argument.

    Raises:
        UsageError: the series has no such patch.
    """
    for name in names:
        if is_called(name, wanted):
            return name
    said = f"{option} names {wanted!r}, which is no patch of {tag}"
    raise UsageError(
        said if option else f"{tag} has no patch {wanted!r}",
        hint=_hint(wanted, names, tag),
        code="no-such-patch",
    )


def _hint(wanted: str, names: Sequence[str], tag: str) -> str:
    if not names:
        return f"The series of {tag} is empty."
    near = [name for name in names if wanted and wanted in name]
    if near and not wanted.isdecimal():
        more = f" and {len(near) - _SHOWN} more" if near[_SHOWN:] else ""
        return f"Like it are: {', '.join(near[:_SHOWN])}{more}."
    first, last = int(names[0][:4]), int(names[-1][:4])
    return f"Give its number, {first} to {last}, or the name of its file in patches/{tag}."
