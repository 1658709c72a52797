"""What GNU patch, which quilt runs, takes for a diff: in a message, or behind a signature.

It looks for unified, context, normal and ed diffs in every line, and skips blanks and ``X`` in
front of them. git and vpatch see none of these; quilt would apply them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_INDENT = b" \tX"
_START = re.compile(rb"\+\+\+ |@@ -[0-9]|Index:|Prereq:|diff --git ")
_STARS = b"*" * 8
_COMMAND = re.compile(rb"[0-9][0-9,]*[acd]")


def stray_line(lines: Iterable[bytes]) -> int | None:
    """The first of some lines, counted from 0, that makes GNU patch see a diff; None without one.

    Args:
        lines: Lines outside of the diff, without their newlines.
    """
    before, commands = b"", False
    for number, line in enumerate(lines):
        text = line.lstrip(_INDENT).rstrip(b"\r")
        if _START.match(text) or _ends_a_start(before, text) or (commands and text == b"."):
            return number
        before, commands = text, commands or _COMMAND.match(text) is not None
    return None


def _ends_a_start(before: bytes, text: bytes) -> bool:
    """Whether two lines are how a context diff starts, or a normal one."""
    if before.startswith(_STARS):
        return text.startswith(b"*** ")
    return _COMMAND.match(before) is not None and text.startswith((b"< ", b"> "))
