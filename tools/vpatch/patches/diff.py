"""What a git diff changes: files, modes and hunks, as bytes.

The headers are read here; the hunks are read by unidiff, which gets one file's hunks at a time,
under names that it cannot misread. The diff is text in Latin-1 on the way through, so that every
byte comes back as it was. Nothing here writes a diff: the raw patch is what gets applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as UnidiffHunk
from unidiff.patch import Line as UnidiffLine
from unidiff.patch import PatchSet

from vpatch.findings import Finding, FindingsError
from vpatch.patches.diffpath import complaint, unquoted
from vpatch.patches.stray import stray_line

_FILE_START = b"diff --git "
_HEADER_FIELDS = (
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"copy from ",
    b"copy to ",
    b"rename from ",
    b"rename to ",
    b"index ",
    b"--- ",
    b"+++ ",
)
_UNIDIFF_NAMES = (b"--- a/file", b"+++ b/file")
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")


@dataclass(frozen=True)
class Hunk:
    """One hunk: where it says it belongs, and its lines.

    Attributes:
        line: Line of the patch file at which its ``@@`` stands, from 1.
        body: (sign, line) pairs; the sign is one of `` ``, ``-``, ``+``; the line keeps its
            newline, except where the patch says that the file has none.
    """

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    section: str
    line: int
    body: tuple[tuple[str, bytes], ...]

    @property
    def header(self) -> str:
        """The hunk's ``@@`` line."""
        numbers = f"@@ -{self.old_start},{self.old_lines} +{self.new_start},{self.new_lines} @@"
        return f"{numbers} {self.section}".rstrip()

    @property
    def before(self) -> tuple[bytes, ...]:
        """The lines that must stand in the file."""
        return tuple(line for sign, line in self.body if sign != "+")

    @property
    def after(self) -> tuple[bytes, ...]:
        """The lines that stand there once the hunk is applied."""
        return tuple(line for sign, line in self.body if sign != "-")


@dataclass(frozen=True)
class FileChange:
    """What a patch does to one file.

    Attributes:
        kind: ``modify``, ``add``, ``delete``, ``rename``, ``copy`` or ``mode``.
        path_old: The file before; None where it is new.
        path_new: The file after; None where it is deleted.
        blob_old, blob_new: Blob ids of the ``index`` line; empty where there is none.
        mode_old, mode_new: Modes as far as the patch states them; empty where it does not.
        binary: The content is a binary diff, which has no hunks.
        line: Line of the patch file at which the file's diff starts, from 1.
    """

    kind: str
    path_old: str | None
    path_new: str | None
    blob_old: str
    blob_new: str
    mode_old: str
    mode_new: str
    binary: bool
    line: int
    hunks: tuple[Hunk, ...]

    @property
    def path(self) -> str:
        """The file's name after the change, or before it where it is deleted."""
        return self.path_new or self.path_old or ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every name that the change touches."""
        names = (self.path_old, self.path_new)
        return tuple(dict.fromkeys(name for name in names if name))


def read_changes(file: str, diff: bytes, first_line: int) -> tuple[FileChange, ...]:
    """Reads a git diff.

    Args:
        file: Name of the patch for findings.
        diff: The diff, from its first ``diff --git`` line on.
        first_line: Line of the patch file at which it starts.

    Raises:
        FindingsError: it is not a git diff, it contradicts itself, or a path is none that may be.
    """
    changes: list[FileChange] = []
    sides: set[tuple[str, str]] = set()
    for section in (_Section(file, *lines) for lines in _sections(diff, first_line)):
        changes.append(section.change())
        # A file that turns into a link is deleted and added; otherwise a file comes once.
        for side in _sides(changes[-1]):
            if side in sides:
                raise section.refused(f"is the second one of {side[1]}")
            sides.add(side)
    return tuple(changes)


def _sides(change: FileChange) -> Iterator[tuple[str, str]]:
    if change.path_old is not None and change.kind != "copy":
        yield "old", change.path_old
    if change.path_new is not None:
        yield "new", change.path_new


def _sections(diff: bytes, number: int) -> Iterator[tuple[int, list[bytes]]]:
    # A line that starts with "diff --git" is never content: content lines have a sign in front.
    start, lines = number, list[bytes]()
    for line in diff.removesuffix(b"\n").split(b"\n"):
        if line.startswith(_FILE_START):
            if lines:
                yield start, lines
            start, lines = number, []
        lines.append(line)
        number += 1
    yield start, lines


class _Section:
    """The lines of one file's diff, on their way to a FileChange."""

    def __init__(self, file: str, line: int, lines: list[bytes]) -> None:
        self.file = file
        self.line = line
        self.title = lines[0].rstrip(b"\r")
        self.fields: dict[bytes, bytes] = {}
        position = 1
        while position < len(lines) and self._take_field(lines[position].rstrip(b"\r")):
            position += 1
        self.content = lines[position:]
        self.content_line = line + position

    def change(self) -> FileChange:
        binary = self.content[:1] == [b"GIT binary patch"]
        if binary and any(line.startswith((b"--- ", b"@@ ")) for line in self.content):
            raise self.refused("is followed by another one without its `diff --git` line")
        if self.content[:1] and self.content[0].startswith(b"Binary files "):
            raise self.refused("is a binary diff without its content: write it with --binary")
        old, new = self._paths()
        kind = self._kind()
        blobs = _INDEX.match(self.fields.get(b"index ", b""))
        both = (blobs[3] or b"").decode() if blobs else ""
        return FileChange(
            kind=kind,
            path_old=None if kind == "add" else old,
            path_new=None if kind == "delete" else new,
            blob_old=blobs[1].decode() if blobs else "",
            blob_new=blobs[2].decode() if blobs else "",
            mode_old=self._mode(b"old mode ", b"deleted file mode ") or both,
            mode_new=self._mode(b"new mode ", b"new file mode ") or both,
            binary=binary,
            line=self.line,
            hunks=() if binary else self._hunks(),
        )

    def _take_field(self, line: bytes) -> bool:
        for name in _HEADER_FIELDS:
            if line.startswith(name):
                self.fields[name] = line[len(name) :]
                return True
        return line.startswith((b"similarity index ", b"dissimilarity index "))

    def _kind(self) -> str:
        for field, kind in (
            (b"new file mode ", "add"),
            (b"deleted file mode ", "delete"),
            (b"rename from ", "rename"),
            (b"copy from ", "copy"),
        ):
            if field in self.fields:
                return kind
        return "modify" if b"index " in self.fields or b"--- " in self.fields else "mode"

    def _mode(self, *names: bytes) -> str:
        return next(
            (self.fields[name].decode("latin-1") for name in names if name in self.fields), ""
        )

    def _paths(self) -> tuple[str, str]:
        moved = [
            self.fields.get(names[0], self.fields.get(names[1]))
            for names in ((b"rename from ", b"copy from "), (b"rename to ", b"copy to "))
        ]
        if moved[0] is not None and moved[1] is not None:
            named = (unquoted(moved[0]), unquoted(moved[1]))
        else:
            named = self._title_paths()
        stated = (self.fields.get(b"--- "), self.fields.get(b"+++ "))
        for name, line, prefix in zip(named, stated, (b"a/", b"b/"), strict=True):
            if line is not None and unquoted(line.split(b"\t")[0]) not in (
                b"/dev/null",
                prefix + name,
            ):
                raise self.refused("names different files in its header lines")
        old, new = (self._checked(name) for name in named)
        return old, new

    def _title_paths(self) -> tuple[bytes, bytes]:
        """Both names of ``diff --git a/NAME b/NAME``, which are the same name here."""
        names = self.title[len(_FILE_START) :]
        half = len(names) // 2
        first, space, second = names[:half], names[half : half + 1], names[half + 1 :]
        first, second = unquoted(first), unquoted(second)
        if (
            space != b" "
            or not (first.startswith(b"a/") and second.startswith(b"b/"))
            or first[2:] != second[2:]
        ):
            raise self.refused("does not name one file as `diff --git a/PATH b/PATH`")
        return first[2:], second[2:]

    def _checked(self, name: bytes) -> str:
        path = name.decode("utf-8", "surrogateescape")
        wrong = complaint(path)
        if wrong:
            raise self.refused(f"has a path that {wrong}: {path!r}", "unsafe-path")
        return path

    def _hunks(self) -> tuple[Hunk, ...]:
        starts = [n for n, line in enumerate(self.content) if line.startswith(b"@@ ")]
        if not starts:
            self._check_rest(0)
            return ()
        text = b"".join(line + b"\n" for line in (*_UNIDIFF_NAMES, *self.content))
        try:
            (file,) = PatchSet.from_string(text.decode("latin-1"))
        except (UnidiffParseError, ValueError) as error:
            raise self.refused(f"cannot be read: {str(error).strip()}") from error
        if not (file and all(file)):
            raise self.refused("cannot be read: a hunk stands where none can, or has no lines")
        self._check_rest(1 + max(_position(line) for line in file[-1]))
        return tuple(self._hunk(hunk) for hunk in file)

    def _hunk(self, hunk: UnidiffHunk) -> Hunk:
        return Hunk(
            old_start=hunk.source_start,
            old_lines=hunk.source_length,
            new_start=hunk.target_start,
            new_lines=hunk.target_length,
            section=hunk.section_header.rstrip("\r").encode("latin-1").decode("utf-8", "replace"),
            line=self.content_line + _position(hunk[0]) - 1,
            body=tuple(_body(hunk)),
        )

    def _check_rest(self, start: int) -> None:
        """After the hunks only git's signature may follow: git skips the rest, others do not."""
        for number, line in enumerate(self.content[start:], start=self.content_line + start):
            if line.startswith(b"-- "):
                self._check_signature(number)
                return
            if line.strip() and not line.startswith(b"\\ "):
                finding = Finding(
                    self.file, number, "bad-diff", "this line belongs to no hunk of the diff"
                )
                raise FindingsError([finding])

    def _check_signature(self, number: int) -> None:
        found = stray_line(self.content[number - self.content_line :])
        if found is not None:
            message = "quilt would take this line, behind the signature, for the start of a diff"
            raise FindingsError([Finding(self.file, number + found, "second-diff", message)])

    def refused(self, message: str, code: str = "bad-diff") -> FindingsError:
        return FindingsError([Finding(self.file, self.line, code, f"this diff {message}")])


def _body(hunk: UnidiffHunk) -> Iterator[tuple[str, bytes]]:
    lines = [line for line in hunk if line.line_type]
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        if line.line_type == "\\":
            continue
        value = line.value.encode("latin-1")
        if following is not None and following.line_type == "\\":
            value = value.removesuffix(b"\n")
        yield line.line_type, value


def _position(line: UnidiffLine) -> int:
    """Where a hunk's line stands in the section's content, from 0."""
    return (line.diff_line_no or 0) - 1 - len(_UNIDIFF_NAMES)
