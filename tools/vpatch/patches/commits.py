"""A linear range of commits as patches: each one a mail that ``git am`` makes the commit of again.

What does not come through the mail whole is refused, by the commit: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vpatch.errors import UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.commit_object import (
    CommitObject,
    Date,
    commit_name,
    object_findings,
    read_date,
)
from vpatch.patches.mbox import Mail, strip_space
from vpatch.patches.patch import Patch
from vpatch.scratch import scratch_folder

# Everything that a setting could change is said, so that every git says the same.
DIFF_OPTIONS = (
    "--full-index",
    "--binary",
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
_FORMAT = (
    "--zero-commit",
    "--no-signature",
    "--no-stat",
    "--no-numbered",
    "--subject-prefix=PATCH",
    "--no-attach",
    "--no-thread",
    "--no-notes",
    "--no-cover-letter",
    "--encode-email-headers",
    *DIFF_OPTIONS,
)


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
    ids = linear(git, base, head)
    if not ids:
        return ()
    objects = git.read_blobs(ids)
    bare = [CommitObject.parse(each, objects[each]) for each in ids]
    trees = [git.line("rev-parse", "--verify", f"{base}^{{tree}}"), *(one.tree for one in bare)]
    findings = [
        finding
        for one, before in zip(bare, trees, strict=False)
        for finding in object_findings(one, before)
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


def linear(git: Git, base: str, head: str) -> list[str]:
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


def _mails(git: Git, base: str, head: str, count: int) -> list[bytes]:
    with scratch_folder("mails") as folder:
        git.run(
            "format-patch",
            "--quiet",
            *_FORMAT,
            "--output-directory",
            str(folder),
            f"{base}..{head}",
        )
        # NNNN-subject.patch: by number, which grows a fifth digit if it has to.
        paths = sorted(folder.iterdir(), key=lambda path: int(path.name.split("-")[0]))
        mails = [path.read_bytes() for path in paths]
    if len(mails) != count:
        raise ValueError(f"git format-patch made {len(mails)} mails of {count} commits")
    return mails


def _commit_or_findings(git: Git, one: CommitObject, raw: bytes) -> Commit | tuple[Finding, ...]:
    try:
        return _commit(git, one, raw)
    except FindingsError as error:
        return error.findings


def _commit(git: Git, one: CommitObject, raw: bytes) -> Commit:
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
    with scratch_folder("mail") as folder:
        message, diff = folder / "message", folder / "patch"
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


def _in_commit(finding: Finding, one: CommitObject, raw: bytes) -> Finding:
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
