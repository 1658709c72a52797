"""A linear range of commits as patches: each one a mail that ``git am`` makes the commit of again.

What does not come through the mail whole is refused, by the commit: nothing is dropped in silence.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path

from vpatch.errors import UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.mbox import Mail, ends_message, lost_prefix, strip_space
from vpatch.patches.patch import Patch

_WHO = re.compile(rb"(?P<name>.*?) ?<(?P<email>[^<>]*)> (?P<when>-?\d+) (?P<zone>[+-]\d{4})")
_UTF_8 = ("", "utf-8", "utf8")
# Everything that a setting could change is said, so that every git says the same.
_FORMAT = (
    "--zero-commit",
    "--no-signature",
    "--no-stat",
    "--full-index",
    "--no-numbered",
    "--binary",
    "--subject-prefix=PATCH",
    "--no-attach",
    "--no-thread",
    "--no-notes",
    "--no-cover-letter",
    "--encode-email-headers",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--find-renames=50%",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
)


@dataclass(frozen=True)
class Date:
    """When a commit was written: seconds since 1970 and the zone's seconds east of Greenwich."""

    seconds: int
    zone: int


@dataclass(frozen=True)
class Commit:
    """One commit, and the patch that makes it again.

    Attributes:
        id, parent, tree: Object ids.
        message: The whole message, as git strips it.
        patch: The mail that `git format-patch` makes of it; its file is called after the commit.
    """

    id: str
    parent: str
    tree: str
    subject: str
    message: str
    author_name: str
    author_email: str
    date: Date | None
    patch: Patch

    @property
    def raw(self) -> bytes:
        """The bytes of the mail."""
        return self.patch.raw

    @property
    def name(self) -> str:
        """The commit, as sentences name it."""
        return commit_name(self.id)

    def is_made_by(self, mail: Mail) -> bool:
        """Whether ``git am`` would commit this mail with this message, author and date."""
        return (self.message, self.author_name, self.author_email, self.date) == (
            mail.message,
            mail.author_name,
            mail.author_email,
            read_date(mail.date),
        )


def commit_name(commit: str) -> str:
    """A commit, as findings name it in the place of a file."""
    return f"commit {commit[:12]}"


def read_commits(git: Git, base: str, head: str) -> tuple[Commit, ...]:
    """The commits behind ``base`` up to ``head``, oldest first.

    Args:
        git: A repository of our own (``scratch_repository``) that has the objects.
        base, head: Commit ids.

    Raises:
        UsageError: ``base`` is no ancestor of ``head``.
        FindingsError: the range is not linear, or a commit does not survive as a mail.
        HostError: git failed.
    """
    ids = _linear(git, base, head)
    if not ids:
        return ()
    objects = git.read_blobs(ids)
    bare = [_Object.parse(each, objects[each]) for each in ids]
    trees = [git.line("rev-parse", "--verify", f"{base}^{{tree}}"), *(one.tree for one in bare)]
    findings = [
        finding
        for one, before in zip(bare, trees, strict=False)
        for finding in _object_findings(one, before)
    ]
    if findings:
        raise FindingsError(findings, hint=_REWORD)
    mails = _mails(git, base, head, len(bare))
    made = [_commit_or_findings(git, *each) for each in zip(bare, mails, strict=True)]
    commits = [one for one in made if isinstance(one, Commit)]
    findings = [finding for one in made if not isinstance(one, Commit) for finding in one]
    findings += _same_subjects(commits)
    if findings:
        raise FindingsError(findings, hint=_REWORD)
    return tuple(commits)


_REWORD = "Change the commit (git rebase -i, reword or edit), and run it again."


def read_date(text: str) -> Date | None:
    """A mail's date; None where it is none."""
    parts = parsedate_tz(text)
    if parts is None:
        return None
    try:
        return Date(mktime_tz(parts), parts[9] or 0)
    except (OverflowError, ValueError):
        return None


@dataclass(frozen=True)
class _Object:
    """A commit object, taken apart."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: re.Match[bytes] | None
    encoding: str
    message: bytes

    @classmethod
    def parse(cls, commit: str, data: bytes) -> _Object:
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
        return strip_space(self.message.decode("utf-8", "surrogateescape"))

    @property
    def subject(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def date(self) -> Date | None:
        if self.author is None:
            return None
        zone = self.author["zone"]
        seconds = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
        return Date(int(self.author["when"]), -seconds if zone[:1] == b"-" else seconds)

    def found(self, code: str, message: str, line: int | None = None) -> Finding:
        return Finding(commit_name(self.id), line, code, f"{message} ({self.subject[:60]!r})")


def _linear(git: Git, base: str, head: str) -> list[str]:
    """The ids of a range without merges, oldest first."""
    if git.run("merge-base", "--is-ancestor", base, head, ok=(0, 1)).status:
        raise UsageError(
            f"{commit_name(base)} is no ancestor of {commit_name(head)}",
            hint="Name the commit that the patches start from with --base REV.",
            code="not-an-ancestor",
        )
    listed = git.output("rev-list", "--parents", "--topo-order", "--reverse", f"{base}..{head}")
    rows = [line.split(" ") for line in listed.decode("ascii").splitlines()]
    merges = [
        Finding(
            commit_name(commit),
            None,
            "merge",
            f"is a merge of {len(parents)} commits, which no patch can be made of",
        )
        for commit, *parents in rows
        if len(parents) != 1
    ]
    if merges:
        raise FindingsError(merges, hint="Rebase the branch, so that it is one line of commits.")
    return [commit for commit, _ in rows]


def _object_findings(one: _Object, tree_before: str) -> Iterator[Finding]:
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


def _line_findings(one: _Object) -> Iterator[Finding]:
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
    for number, line in enumerate(lines[1:], start=2):
        if ends_message(line.encode() + b"\n"):
            message = f"has a line {line[:40]!r} in its message, at which git am ends it: indent it"
            yield one.found("cut-message", message, number)


def _mails(git: Git, base: str, head: str, count: int) -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="vpatch-mails-") as folder:
        git.run(
            "format-patch", "--quiet", *_FORMAT, "--output-directory", folder, f"{base}..{head}"
        )
        # NNNN-subject.patch: by number, which grows a fifth digit if it has to.
        paths = sorted(Path(folder).iterdir(), key=lambda path: int(path.name.split("-")[0]))
        mails = [path.read_bytes() for path in paths]
    if len(mails) != count:
        raise ValueError(f"git format-patch made {len(mails)} mails of {count} commits")
    return mails


def _commit_or_findings(git: Git, one: _Object, raw: bytes) -> Commit | tuple[Finding, ...]:
    try:
        return _commit(git, one, raw)
    except FindingsError as error:
        return error.findings


def _commit(git: Git, one: _Object, raw: bytes) -> Commit:
    try:
        patch = Patch.parse(commit_name(one.id), raw)
    except FindingsError as error:
        raise FindingsError(
            [_in_commit(finding, one, raw) for finding in error.findings]
        ) from error
    author = one.author
    commit = Commit(
        id=one.id,
        parent=one.parents[0],
        tree=one.tree,
        subject=one.subject,
        message=one.text,
        author_name=author["name"].decode("utf-8", "surrogateescape") if author else "",
        author_email=author["email"].decode("utf-8", "surrogateescape") if author else "",
        date=one.date,
        patch=patch,
    )
    lost = list(_lost(git, commit))
    if lost:
        raise FindingsError(
            [one.found("message-lost", f"does not survive: {what}") for what in lost]
        )
    return commit


def _lost(git: Git, commit: Commit) -> Iterator[str]:
    """What git am, and what our own reading, would make another commit of."""
    read = _as_git_am_reads(git, commit.raw)
    for what, have in read.items():
        want = getattr(commit, what)
        if have != want:
            yield f"git am would make its {what.replace('_', ' ')} {have!r} of {want!r}"
    if not commit.is_made_by(commit.patch.mail) and all(
        have == getattr(commit, what) for what, have in read.items()
    ):
        yield "vpatch reads its mail in another way than git am"


def _as_git_am_reads(git: Git, raw: bytes) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="vpatch-mail-") as folder:
        message, diff = Path(folder) / "message", Path(folder) / "patch"
        told = git.output("mailinfo", "--no-scissors", str(message), str(diff), stdin=raw)
        body = message.read_bytes().decode("utf-8", "surrogateescape")
    lines = told.decode("utf-8", "surrogateescape").split("\n")
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    return {
        "message": strip_space(f"{said.get('Subject', '')}\n\n{body}"),
        "author_name": said.get("Author", ""),
        "author_email": said.get("Email", ""),
        "date": read_date(said.get("Date", "")),
    }


def _in_commit(finding: Finding, one: _Object, raw: bytes) -> Finding:
    """A finding about a line of the mail, as one about a line of the commit's message."""
    body = raw.count(b"\n", 0, raw.find(b"\n\n")) + 3
    line = None if finding.line is None else finding.line - body + 3
    inside = line is not None and 1 <= line <= one.text.count("\n")
    message = f"{finding.message} ({one.subject[:60]!r})"
    return replace(finding, line=line if inside else None, message=message)


def _same_subjects(commits: Sequence[Commit]) -> Iterator[Finding]:
    seen: dict[str, Commit] = {}
    for commit in commits:
        first = seen.setdefault(commit.subject, commit)
        if first is not commit:
            message = f"has the subject of {first.name}: {commit.subject!r}"
            yield Finding(commit.name, 1, "same-subject", message)
