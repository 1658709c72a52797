"""A patch: the file's own bytes, and views of what they say.

The raw bytes are what is kept, applied and hashed. Subject, trailers and hunks are read from them
and are never written back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from vpatch.findings import Finding, FindingsError
from vpatch.patches.diff import FileChange, read_changes
from vpatch.patches.mbox import Mail, read_mail
from vpatch.patches.stray import stray_line

_DIFF_START = re.compile(rb"^diff --git ", re.MULTILINE)


@dataclass(frozen=True)
class Patch:
    """One patch of a series.

    Attributes:
        file: Its name in the series folder.
        raw: The file's bytes, untouched.
        mail: Author, subject, message and trailers.
        diff: The bytes from the first ``diff --git`` on: what ``git apply`` is given.
        diff_line: Line of the file at which the diff starts, from 1.
    """

    file: str
    raw: bytes
    mail: Mail
    diff: bytes
    diff_line: int

    @classmethod
    def parse(cls, name: str, raw: bytes) -> Patch:
        """Reads a patch file.

        Args:
            name: The file's name in the series folder.
            raw: Its bytes.

        Raises:
            FindingsError: it is not a git-format patch that the three tools read alike.
        """
        mail = read_mail(name, raw)
        found = _DIFF_START.search(raw, mail.rest)
        if found is None:
            finding = Finding(name, mail.end_line, "no-diff", "the patch changes nothing")
            raise FindingsError([finding])
        if not raw.endswith(b"\n"):
            finding = Finding(name, raw.count(b"\n") + 1, "bad-diff", "the last line has no end")
            raise FindingsError([finding])
        line = mail.end_line + raw.count(b"\n", mail.rest, found.start())
        _check_lead(name, raw[: found.start()])
        patch = cls(file=name, raw=raw, mail=mail, diff=raw[found.start() :], diff_line=line)
        _ = patch.files  # a diff that cannot be read is found here, not when it is applied
        return patch

    @property
    def subject(self) -> str:
        """The subject as ``git am`` commits it."""
        return self.mail.subject

    @property
    def body(self) -> str:
        """The message without its subject."""
        return self.mail.body

    @property
    def author(self) -> str:
        """``Name <address>``."""
        return f"{self.mail.author_name} <{self.mail.author_email}>"

    @property
    def trailers(self) -> Mapping[str, tuple[str, ...]]:
        """key -> values, keys as the message spells them."""
        return self.mail.trailers

    @property
    def topic(self) -> str:
        """The purpose that the patch belongs to; empty where its trailer is missing."""
        return next(iter(self.trailer("Topic")), "")

    @cached_property
    def sha256(self) -> str:
        """The file's hash."""
        return hashlib.sha256(self.raw).hexdigest()

    @cached_property
    def files(self) -> tuple[FileChange, ...]:
        """What the patch does, file by file."""
        return read_changes(self.file, self.diff, self.diff_line)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every name that the patch touches, in the order of the diff."""
        return tuple(dict.fromkeys(path for change in self.files for path in change.paths))

    def trailer(self, key: str) -> tuple[str, ...]:
        """The values of a trailer, whatever the case of its key; empty where it is missing."""
        for name, values in self.mail.trailers.items():
            if name.lower() == key.lower():
                return values
        return ()

    def line_of(self, start: bytes) -> int:
        """The message's first line with this start, or the line at which the message ends."""
        lines = self.raw.split(b"\n")[self.mail.message_line - 1 : self.mail.end_line - 1]
        for number, line in enumerate(lines, start=self.mail.message_line):
            if line.lower().startswith(start.lower()):
                return number
        return self.mail.end_line


def _check_lead(name: str, lead: bytes) -> None:
    found = stray_line(lead.split(b"\n"))
    if found is not None:
        finding = Finding(
            name, found + 1, "second-diff", "quilt would take this line for the start of a diff"
        )
        raise FindingsError([finding])
