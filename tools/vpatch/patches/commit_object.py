"""A commit object, and what keeps it from becoming a mail that ``git am`` makes it of again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz

from vpatch.findings import Finding
from vpatch.patches.mbox import ends_message, lost_prefix, strip_space

_WHO = re.compile(rb"(?P<name>.*?) ?<(?P<email>[^<>]*)> (?P<when>-?\d+) (?P<zone>[+-]\d{4})")
_UTF_8 = ("", "utf-8", "utf8")


@dataclass(frozen=True)
class Date:
    """When a commit was written: seconds since 1970 and the zone's seconds east of Greenwich."""

    seconds: int
    zone: int


def read_date(text: str) -> Date | None:
    """A mail's date; None where it is none."""
    parts = parsedate_tz(text)
    if parts is None:
        return None
    try:
        return Date(mktime_tz(parts), parts[9] or 0)
    except (OverflowError, ValueError):
        return None


def commit_name(commit: str) -> str:
    """A commit, as findings name it in the place of a file."""
    return f"commit {commit[:12]}"


@dataclass(frozen=True)
class CommitObject:
    """A commit object, taken apart.

    Attributes:
        author: The author line in its parts; None where it is damaged.
        encoding: What the commit says of its message; empty for UTF-8.
        message: Its bytes, as they are.
    """

    id: str
    tree: str
    parents: tuple[str, ...]
    author: re.Match[bytes] | None
    encoding: str
    message: bytes

    @classmethod
    def parse(cls, commit: str, data: bytes) -> CommitObject:
        """The commit in what ``git cat-file`` gives."""
        head, _, message = data.partition(b"\n\n")
        fields = [line.partition(b" ")[::2] for line in head.split(b"\n")]

        def values(key: bytes) -> list[bytes]:
            return [value for name, value in fields if name == key]

        return cls(
            id=commit,
            tree=values(b"tree")[0].decode("ascii"),
            parents=tuple(parent.decode("ascii") for parent in values(b"parent")),
            author=_WHO.fullmatch(values(b"author")[0]),
            encoding=(values(b"encoding") or [b""])[0].decode("ascii", "replace"),
            message=message,
        )

    @property
    def text(self) -> str:
        """The message, as git strips it."""
        return strip_space(self.message.decode("utf-8", "surrogateescape"))

    @property
    def subject(self) -> str:
        """The message's first line."""
        return self.text.partition("\n")[0]

    @property
    def date(self) -> Date | None:
        """When it was written; None where the author line is damaged."""
        if self.author is None:
            return None
        zone = self.author["zone"]
        seconds = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
        return Date(int(self.author["when"]), -seconds if zone[:1] == b"-" else seconds)

    def found(self, code: str, message: str, line: int | None = None) -> Finding:
        """A finding about this commit; the line is one of its message."""
        return Finding(commit_name(self.id), line, code, f"{message} ({self.subject[:60]!r})")


_FIXUPS = ("fixup! ", "squash! ", "amend! ")  # what git commit --fixup and --squash write


def object_findings(one: CommitObject, tree_before: str) -> Iterator[Finding]:
    """What keeps a commit from becoming a mail, told from the commit alone."""
    if one.tree == tree_before:
        yield one.found("empty-commit", "changes nothing")
    if b"\0" in one.message:
        yield one.found("nul", "holds a NUL in its message, at which git ends it")
        return
    try:
        one.message.decode("utf-8")
    except UnicodeDecodeError:
        yield one.found("encoded", "has a message that is not UTF-8")
        return
    if one.encoding.lower() not in _UTF_8:
        yield one.found("encoded", f"says that its message is {one.encoding}, not UTF-8")
    yield from _line_findings(one)


def _line_findings(one: CommitObject) -> Iterator[Finding]:
    lines = one.text.removesuffix("\n").split("\n")
    if lines == [""]:
        yield one.found("no-subject", "has no message")
        return
    if lines[1:] and lines[1]:
        message = "has a subject of several lines, which a mail joins: leave line 2 empty"
        yield one.found("long-subject", message, 2)
    lost = lost_prefix(f"[PATCH] {one.subject}")
    if lost:
        yield one.found("lost-prefix", f"has a subject of which git am would drop `{lost}`", 1)
    if one.subject.startswith(_FIXUPS):
        message = "waits for its commit: git rebase -i --autosquash BASE folds it in"
        yield one.found("fixup", message, 1)
    for number, line in enumerate(lines[1:], start=2):
        if ends_message(line.encode() + b"\n"):
            message = f"has a line {line[:40]!r} in its message, at which git am ends it: indent it"
            yield one.found("cut-message", message, number)
