"""The form of a patch file: what git am drops, what personal settings add, what one tool refuses.

A file in this form is what git's own format-patch writes, so that a patch is the same bytes
whoever exports it, and its commit is the same whoever applies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from vpatch.findings import Finding
from vpatch.patches.patch import Patch

NO_COMMIT = b"From " + b"0" * 40 + b" "
PLAIN_HEADERS = (
    b"from",
    b"date",
    b"subject",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
)
SIGNATURE = re.compile(rb"\n-- \n[^\s+\\-][^\n]*\n\s*\Z")
STAT_LINE = re.compile(
    rb" (?:\S.* +\| +(?:[0-9]+(?: [+-]+)?|Bin.*)|[0-9]+ files? changed.*"
    rb"|(?:create|delete) mode [0-7]+ .*|(?:rename|copy|mode change|rewrite) .*)"
)
_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{1,2} "
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} "
    r"[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}"
)
# git calls these crud and takes them from both ends of a name; which ones depends on its version.
CRUD = " .,:;<>\"\\'"
_SCISSORS = re.compile(r">8|8<|>%|%<")
_PERFORATION = re.compile(r">8|8<|>%|%<|-")
_LEAST_PERFORATION = 8
_SUBMODULE = "160000"


def lint_form(patch: Patch) -> Iterator[Finding]:
    """What is wrong with the form of a patch that can be read."""
    yield from _head(patch)
    yield from _identity(patch)
    yield from _message(patch)
    yield from _lead(patch)
    if SIGNATURE.search(patch.raw):
        line = patch.raw.rstrip(b"\n").count(b"\n")
        message = "the patch ends in a mail signature, which names somebody's git version"
        yield Finding(patch.file, line, "signature", message)
    yield from _diff(patch)


def is_stat(line: bytes) -> bool:
    """Whether a line belongs to a diffstat."""
    return STAT_LINE.fullmatch(line) is not None


def lead_lines(patch: Patch) -> list[tuple[int, bytes]]:
    """(line number, line) between the message and the diff that say something; ``---`` does not."""
    lead = patch.raw[patch.mail.rest : len(patch.raw) - len(patch.diff)]
    lines = enumerate(lead.split(b"\n"), start=patch.mail.end_line)
    return [(number, line) for number, line in lines if line.strip() not in (b"", b"---")]


def _head(patch: Patch) -> Iterator[Finding]:
    if not patch.raw.startswith(NO_COMMIT):
        message = "the first line names a commit that only one repository has"
        yield Finding(patch.file, 1, "commit-id", message)
    lines = patch.raw.split(b"\n")[1 : patch.mail.message_line - 2]
    for number, line in enumerate(lines, start=2):
        key = line.partition(b":")[0]
        if not line.startswith((b" ", b"\t")) and key.lower() not in PLAIN_HEADERS:
            name = key.decode("ascii", "replace")
            message = f"the `{name}:` header is one mail's, not the patch's"
            yield Finding(patch.file, number, "extra-header", message)


def _identity(patch: Patch) -> Iterator[Finding]:
    mail = patch.mail
    line = _header_line(patch, b"from:")
    if mail.author_name.strip(CRUD) != mail.author_name:
        message = (
            f"the author's name, {mail.author_name!r}, starts or ends in a character that "
            "some versions of git drop"
        )
        yield Finding(patch.file, line, "author", message)
    if not mail.author_name:
        yield Finding(patch.file, line, "author", "the author has no name")
    if not is_date(mail.date):
        message = f"{mail.date!r} is not a date as git writes it: Fri, 2 Jan 2026 03:04:05 +0000"
        yield Finding(patch.file, _header_line(patch, b"date:"), "bad-date", message)


def is_date(text: str) -> bool:
    """Whether a text is a mail's date, spelled as git spells it, of a day that exists."""
    try:
        return _DATE.fullmatch(text) is not None and parsedate_to_datetime(text).year > 0
    except (ValueError, OverflowError):
        return False


def _header_line(patch: Patch, start: bytes) -> int:
    lines = patch.raw.split(b"\n")[: patch.mail.message_line - 1]
    return next(n for n, line in enumerate(lines, start=1) if line.lower().startswith(start))


def _message(patch: Patch) -> Iterator[Finding]:
    raw = patch.raw.split(b"\n")[patch.mail.message_line - 1 : patch.mail.end_line - 1]
    lines = [line.decode("utf-8").rstrip("\r") for line in raw]
    while lines and not lines[-1].strip():
        lines.pop()  # the empty lines behind the message belong to nobody
    empty = True
    for number, line in enumerate(lines, start=patch.mail.message_line):
        if line != line.rstrip(" \t") or (empty and not line):
            message = "git am drops the blanks at this line's end, or this empty line"
            yield Finding(patch.file, number, "message-blank", message)
        empty = not line.strip()
        if _is_scissors(line):
            message = "with mailinfo.scissors, git am drops everything above this line"
            yield Finding(patch.file, number, "scissors", message)


def _is_scissors(line: str) -> bool:
    """Near enough to what ``git mailinfo --scissors`` cuts at, and never narrower."""
    visible = len("".join(line.split()))
    perforation = sum(len(found) for found in _PERFORATION.findall(line))
    cuts = _SCISSORS.search(line) is not None
    return cuts and visible >= _LEAST_PERFORATION and visible < perforation * 3


def _lead(patch: Patch) -> Iterator[Finding]:
    lines = lead_lines(patch)
    text = [number for number, line in lines if not is_stat(line)]
    if text:
        message = "git am drops this line: the message ended above it"
        yield Finding(patch.file, text[0], "lost-text", message)
    elif lines:
        message = "a diffstat stands before the diff: its width is a personal setting"
        yield Finding(patch.file, lines[0][0], "diffstat", message)


def _diff(patch: Patch) -> Iterator[Finding]:
    paths = set(patch.paths)
    for change in patch.files:
        if _SUBMODULE in (change.mode_old, change.mode_new):
            message = f"{change.path} is a submodule, which quilt and a release's archive lack"
            yield Finding(patch.file, change.line, "submodule", message)
        parts = change.path.split("/")
        folders = {"/".join(parts[:end]) for end in range(1, len(parts))} & paths
        if folders:
            message = f"{min(folders)} is a file and a folder in one patch, which quilt refuses"
            yield Finding(patch.file, change.line, "file-and-folder", message)
