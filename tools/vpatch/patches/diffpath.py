"""Paths as git diffs spell them."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v",
    b"f": b"\f", b"r": b"\r", b'"': b'"', b"\\": b"\\",
}  # fmt: skip
_SPACE, _DEL = 0x20, 0x7F
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def unquoted(name: bytes) -> bytes:
    """A path as git quotes it in C's way, without its quotes; another path as it is."""
    if len(name) < len(b'""') or not (name.startswith(b'"') and name.endswith(b'"')):
        return name
    return _ESCAPE.sub(_unescaped, name[1:-1])


def spelled(path: str) -> str:
    """A path as text that is always UTF-8: quoted as git does, where it is not.

    ``read_spelled`` reads it again.
    """
    raw = path.encode("utf-8", "surrogateescape")
    if not (path.startswith('"') or any("\ud800" <= char <= "\udfff" for char in path)):
        return path
    return '"' + "".join(_spelled(byte) for byte in raw) + '"'


def _spelled(byte: int) -> str:
    if byte < _SPACE or byte >= _DEL:
        return f"\\{byte:03o}"
    return f"\\{chr(byte)}" if chr(byte) in '"\\' else chr(byte)


def read_spelled(text: str) -> str:
    """The path that ``spelled`` wrote."""
    return unquoted(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def is_inside(path: str) -> bool:
    """Whether a path is one that a patch may have: see ``complaint``."""
    return not complaint(path)


def complaint(path: str) -> str:
    """What is wrong with a path on some system; empty where nothing is."""
    if _CONTROL.search(path):
        return "has a control character in it"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of the tree"
    return "leads into .git" if any(part.lower() == ".git" for part in parts) else ""


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _ESCAPES.get(code, code)
