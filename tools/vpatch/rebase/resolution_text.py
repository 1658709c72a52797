"""A stored resolution as text: the sides of each clash, and what stands in their place.

    vpatch resolution 1
    patch: SUBJECT
    topic: TOPIC
    patch-id: HASH
    made: FROM -> TO
    file "PATH"
    clash
    ours SHA256
    |a line
    base SHA256
    theirs SHA256
    |another line
    resolved
    |what stands there now
    end

Behind ``file`` stands one ``clash`` or more; or ``whole``, the sides as ``ours MODE SHA256`` or
``ours none``, ``resolved MODE`` or ``resolved gone``, and edits: ``at LINE`` with ``-`` and ``+``
lines. A line ``\\`` says that the line above it has no newline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from vpatch.findings import Finding, FindingsError
from vpatch.patches.place import split_lines
from vpatch.rebase.resolution import ByLines, Edit, Resolution, Settled, Whole, sha256

_HEAD = "vpatch resolution 1"
_GONE = "gone"
_SHA = re.compile(r"[0-9a-f]{64}")
_SIDE = re.compile(r"none|(?:100644|100755|120000|160000) [0-9a-f]{64}")
_RESULT = re.compile(r"gone|100644|100755|120000|160000")
_NO_END = b"\\"


def as_text(resolution: Resolution) -> bytes:
    """A resolution as the bytes of its file."""
    return b"".join(line + b"\n" for line in _lines(resolution))


def _lines(resolution: Resolution) -> Iterator[bytes]:
    yield _HEAD.encode()
    yield _coded(f"patch: {resolution.subject}")
    yield _coded(f"topic: {resolution.topic}")
    yield _coded(f"patch-id: {resolution.patch_id}")
    yield _coded(f"made: {resolution.source} -> {resolution.target}")
    for file in resolution.files:
        yield _coded(f"file {_quoted(file.path)}")
        if isinstance(file, ByLines):
            for clash in file.clashes:
                yield from _clash(clash)
        else:
            yield from _whole(file)
    yield b"end"


def _clash(clash: Settled) -> Iterator[bytes]:
    yield b"clash"
    for name, text in (("ours", clash.ours), ("base", clash.base), ("theirs", clash.theirs)):
        yield _coded(f"{name} {sha256(text)}")
        yield from _prefixed(b"|", text)
    yield b"resolved"
    yield from _prefixed(b"|", clash.resolved)


def _whole(file: Whole) -> Iterator[bytes]:
    yield b"whole"
    for name, side in (("ours", file.ours), ("base", file.base), ("theirs", file.theirs)):
        yield _coded(f"{name} {side}")
    yield _coded(f"resolved {file.mode or _GONE}")
    for edit in file.edits:
        yield _coded(f"at {edit.line}")
        yield from _prefixed(b"-", edit.removed)
        yield from _prefixed(b"+", edit.added)


def _prefixed(prefix: bytes, text: bytes) -> Iterator[bytes]:
    for line in split_lines(text):
        yield prefix + line.removesuffix(b"\n")
        if not line.endswith(b"\n"):
            yield _NO_END


def _quoted(path: str) -> str:
    return json.dumps(path, ensure_ascii=any("\ud800" <= char <= "\udfff" for char in path))


def _coded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def read_text(name: str, data: bytes) -> Resolution:
    """A resolution out of its file.

    Args:
        name: The file's name, for findings.
        data: Its bytes.

    Raises:
        FindingsError: it is none, or it was damaged: a side is not the one that it names.
    """
    return _Text(name, data).resolution()


class _Text:
    """The lines of a file, read in order."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.lines = data.split(b"\n")
        self.at = 0
        if self.lines.pop() != b"":
            raise self.refused("its last line has no end")

    def refused(self, message: str) -> FindingsError:
        number = min(self.at, len(self.lines)) + 1
        return FindingsError([Finding(self.name, number, "bad-resolution", message)])

    def peek(self) -> str:
        if self.at >= len(self.lines):
            raise self.refused("it ends in the middle")
        return self.lines[self.at].decode("utf-8", "surrogateescape")

    def value(self, start: str, valid: re.Pattern[str] | None = None) -> str:
        line = self.peek()
        value = line.removeprefix(start)
        if not line.startswith(start) or (valid and not valid.fullmatch(value)):
            raise self.refused(f"{line[:60]!r} stands where `{start.strip()}` is due")
        self.at += 1
        return value

    def text(self, prefix: bytes) -> bytes:
        found: list[bytes] = []
        while self.at < len(self.lines) and self.lines[self.at].startswith(prefix):
            found.append(self.lines[self.at].removeprefix(prefix) + b"\n")
            self.at += 1
        if found and self.at < len(self.lines) and self.lines[self.at] == _NO_END:
            found[-1] = found[-1][:-1]
            self.at += 1
            if not found[-1]:
                raise self.refused("a line without newline is to hold something")
        return b"".join(found)

    def resolution(self) -> Resolution:
        if self.peek() != _HEAD:
            raise self.refused(f"{self.peek()[:60]!r} is not `{_HEAD}`: another vpatch wrote it")
        self.at += 1
        subject, topic, patch_id = (
            self.value(f"{key}: ") for key in ("patch", "topic", "patch-id")
        )
        source, _, target = self.value("made: ").partition(" -> ")
        files: list[ByLines | Whole] = []
        lines: dict[str, int] = {}
        while self.peek() != "end":
            start = self.at + 1
            files.append(self.file())
            if files[-1].path in lines:
                raise self.refused(f"it tells of {files[-1].path} twice")
            lines[files[-1].path] = start
        self.at += 1
        if not files or self.at < len(self.lines):
            raise self.refused("nothing is due behind `end`" if files else "it tells of no file")
        return Resolution(subject, topic, patch_id, source, target, tuple(files), lines)

    def file(self) -> ByLines | Whole:
        path = self.path()
        if self.peek() == "whole":
            return self.whole(path)
        clashes = [self.clash()]
        while self.peek() == "clash":
            clashes.append(self.clash())
        return ByLines(path, tuple(clashes))

    def path(self) -> str:
        try:
            path = json.loads(self.value("file "))
        except ValueError as error:
            self.at -= 1
            raise self.refused("the path is no JSON string") from error
        parts = path.split("/") if isinstance(path, str) else [""]
        if any(part in ("", ".", "..", ".git") for part in parts) or "\0" in path:
            self.at -= 1
            raise self.refused(f"{path!r} is no path of a file in a tree")
        return str(path)

    def clash(self) -> Settled:
        self.value("clash", re.compile(""))
        sides: dict[str, bytes] = {}
        for name in ("ours", "base", "theirs"):
            wanted = self.value(f"{name} ", _SHA)
            at = self.at
            sides[name] = self.text(b"|")
            if sha256(sides[name]) != wanted:
                self.at = at - 1
                raise self.refused(f"the lines of `{name}` are not those that the hash names")
        self.value("resolved", re.compile(""))
        return Settled(resolved=self.text(b"|"), **sides)

    def whole(self, path: str) -> Whole:
        self.at += 1
        ours, base, theirs = (self.value(f"{key} ", _SIDE) for key in ("ours", "base", "theirs"))
        mode = self.value("resolved ", _RESULT)
        edits: list[Edit] = []
        while self.peek().startswith("at "):
            number = int(self.value("at ", re.compile("[1-9][0-9]{0,8}")))
            edits.append(Edit(number, self.text(b"-"), self.text(b"+")))
        if [edit.line for edit in edits] != sorted({edit.line for edit in edits}):
            raise self.refused("the edits are not in the order of their lines")
        return Whole(path, base, ours, theirs, "" if mode == _GONE else mode, tuple(edits))
