"""Where hunks land in a file: the reason behind a verdict, told from lines, not from messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vpatch.patches.diff import FileChange, Hunk

# A line that stands all over a file (blank, `)`) says nothing about where a hunk belongs.
_COMMON_LINE = 50


@dataclass(frozen=True)
class Misfit:
    """A hunk that does not fit, and what stands where it belongs.

    Attributes:
        path: The file in the tree.
        hunk: Number of the hunk in that file's diff, from 1; 0 where the whole file is meant.
        header: The hunk's ``@@`` line; empty where the whole file is meant.
        patch_line: Line of the patch file at which the hunk (or the file's diff) starts.
        reason: ``lines-differ``, ``missing-file``, ``file-exists``, ``folder-exists`` (a folder has
            the file's name), ``file-above`` (a file has a folder's name) or ``refused``.
        line: Line of the tree's file that is shown, from 1; 0 where there is no file.
        wanted: The lines that the hunk asks for.
        standing: The lines that stand there now.
    """

    path: str
    hunk: int
    header: str
    patch_line: int
    reason: str
    line: int
    wanted: tuple[str, ...]
    standing: tuple[str, ...]

    @property
    def place(self) -> str:
        """``file:line`` of what stands there now."""
        return f"{self.path}:{self.line}" if self.line else self.path


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their newlines, split at newlines only; the last one may have none."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def applied_in_place(before: bytes, change: FileChange) -> bytes | None:
    """The file after the change, every hunk at exactly the line that it states.

    Returns:
        None where a hunk's lines do not stand at its line.
    """
    lines = split_lines(before)
    for hunk in change.hunks:
        start = max(hunk.new_start - 1, 0) if hunk.new_lines else hunk.new_start
        end = start + len(hunk.before)
        if start > len(lines) or lines[start:end] != list(hunk.before):
            return None
        lines[start:end] = hunk.after
    return b"".join(lines)


def misfits(before: bytes, change: FileChange) -> tuple[Misfit, ...]:
    """The hunks of a change whose lines stand nowhere in the file."""
    lines = split_lines(before)
    return tuple(
        _misfit(lines, change, number, hunk)
        for number, hunk in enumerate(change.hunks, start=1)
        if not _stands_in(before, hunk.before)
    )


def whole_file(change: FileChange, path: str, reason: str) -> Misfit:
    """A misfit of the file as such: it is missing, or in the way."""
    return Misfit(path, 0, "", change.line, reason, 0, (), ())


def _stands_in(data: bytes, wanted: Sequence[bytes]) -> bool:
    """Whether these whole lines stand in the file, one behind the other."""
    text = b"".join(wanted)
    start = data.find(text)
    while start >= 0:
        end = start + len(text)
        if (not start or data[start - 1 : start] == b"\n") and (
            text.endswith(b"\n") or end == len(data)
        ):
            return True
        start = data.find(text, start + 1)
    return not text


def _misfit(lines: Sequence[bytes], change: FileChange, number: int, hunk: Hunk) -> Misfit:
    start = _most_alike(lines, hunk)
    standing = lines[start : start + len(hunk.before)]
    return Misfit(
        path=change.path_old or change.path,
        hunk=number,
        header=hunk.header,
        patch_line=hunk.line,
        reason="lines-differ",
        line=min(start + 1, len(lines)),
        wanted=_shown(hunk.before),
        standing=_shown(standing),
    )


def _most_alike(lines: Sequence[bytes], hunk: Hunk) -> int:
    """The start that most of the hunk's lines agree on; among equals the one nearest to its line.

    Each wanted line votes for the starts that would put it where such a line stands.
    """
    stated = min(max(hunk.old_start - 1, 0), max(len(lines) - 1, 0))
    where: dict[bytes, list[int]] = {}
    for position, line in enumerate(lines):
        where.setdefault(line, []).append(position)
    votes = Counter(
        position - offset
        for offset, line in enumerate(hunk.before)
        if len(where.get(line, ())) <= _COMMON_LINE
        for position in where.get(line, ())
        if position >= offset
    )
    if not votes:
        return stated
    return min(votes, key=lambda start: (-votes[start], abs(start - stated)))


def _shown(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(line.decode("utf-8", "replace").rstrip("\n") for line in lines)
