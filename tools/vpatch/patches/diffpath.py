"""Paths as git diffs spell them."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v",
    b"f": b"\f", b"r": b"\r", b'"': b'"', b"\\": b"\\",
}  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def unquoted(name: bytes) -> bytes:
    """A path as git quotes it in C's way, without its quotes; another path as it is."""
    if len(name) < len(b'""') or not (name.startswith(b'"') and name.endswith(b'"')):
        return name
    return _ESCAPE.sub(_unescaped, name[1:-1])


def is_inside(path: str) -> bool:
    """Whether a path stays in its tree, and out of ``.git``, on every system."""
    parts = path.split("/")
    return not _CONTROL.search(path) and not any(
        part in ("", ".", "..") or part.lower() == ".git" for part in parts
    )


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _ESCAPES.get(code, code)
