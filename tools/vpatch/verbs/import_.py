"""``vpatch import``: a mailbox or a branch becomes patches of a series."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.errors import HostError, UsageError
from vpatch.findings import Finding
from vpatch.git import Git
from vpatch.patches.branch import read_branch
from vpatch.patches.commits import read_commits
from vpatch.patches.draft import Trailers, complete, tests_apart
from vpatch.patches.export import NewSeries, export
from vpatch.patches.importing import (
    Imported,
    base_release,
    not_there_yet,
    place_in,
    stacked,
)
from vpatch.patches.lint import lint_patch
from vpatch.patches.mailbox import Mailbox, read_mailbox
from vpatch.patches.repo import pinned
from vpatch.patches.repository import Repository, find_repository, scratch_repository
from vpatch.patches.rewrite import Rewritten, Wanted, verified, write
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.verbs.export import change_rows, check_settled, series_for_writing, summary

STDIN = "-"
# Only the author can sign off: import says that it is missing, and goes on.
_TOLERATED = frozenset({"trailer-signed-off-by"})
_PERSON = re.compile(r"[^<>\n]+ <[^<>\s]+@[^<>\s]+>")
_TOPIC = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Wish:
    """What is imported, and how.

    Attributes:
        source: A mailbox file, ``-`` for standard input, a worktree, or a revision of the
            repository of ``here``.
        here: The current folder.
        trailers: What messages get where they lack it.
        after: ``--after``: the patch behind which the new ones stand.
        base: ``--base``: the commit below a branch's first one.
    """

    source: str
    here: Path
    trailers: Trailers
    after: str | None = None
    base: str | None = None

    @property
    def path(self) -> Path:
        """The source as a path."""
        return self.here / self.source


@dataclass(frozen=True)
class _Result:
    imported: Sequence[Imported]
    left_out: Sequence[str]
    new: NewSeries
    rewritten: Rewritten
    revision_before: int


def run(tag: str, repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Puts the patches into the series, verifies all of it in scratch, and swaps it in.

    Raises:
        UsageError: no pin, no such source, no such patch for --after, wrong trailers.
        FindingsError: a mail or commit that cannot be a patch, one that is in the series in
            another form, lint.
        FindingError: another tree comes out of a source.
        ConflictError: a patch does not fit, of the new ones or of those behind them.
        HostError: git, network, disk.
    """
    _check(wish)
    repository = _repository(wish)
    data = _bytes(wish) if repository is None else b""
    with series_for_writing(tag, repo, upstream, check=False) as (before, replacement):
        pin, old = pinned(repo, tag)
        position = place_in(old, wish.trailers.topic, wish.after)
        mirror, releases = pipeline.fetch_sources(pin.tag, upstream, pin)
        release = base_release(old, releases)
        lenders = [repository.common_dir] if repository else []
        with scratch_repository(mirror.git.git_dir, *lenders) as git:
            box = _source(git, wish, repository, data, pin.tag)
            parts = [part for draft in box.drafts for part in tests_apart(draft)]
            fresh, there = not_there_yet(old, parts)
            drafts = [complete(git, part, wish.trailers) for part in fresh]
            head, imported = stacked(git, old, release, position, drafts)
            commits = read_commits(git, release.commit, head)
            new = export(git, old, commits)
            rewritten = verified(
                git,
                folder=old.folder,
                before=before,
                pin=pin,
                new=new,
                releases=releases,
                wanted=Wanted(release.tree, commits[-1].tree if commits else release.tree),
                tolerated=_TOLERATED,
            )
        if replacement is not None:
            write(replacement, rewritten)
    return _report(_Result(imported, (*box.skipped, *there), new, rewritten, pin.revision))


def _check(wish: Wish) -> None:
    trailers = wish.trailers
    if not _TOPIC.fullmatch(trailers.topic):
        raise UsageError(
            f"--topic names {trailers.topic!r}, which is no topic",
            hint="One purpose in small letters, like eagle3-interface.",
            code="bad-topic",
        )
    if trailers.sign_off is not None and not _PERSON.fullmatch(trailers.sign_off):
        raise UsageError(
            f"--sign-off names {trailers.sign_off!r}, which is not `Name <address>`",
            hint="The person who answers for the patch: 'Ada Lovelace <ada@example.org>'.",
            code="bad-sign-off",
        )
    if "\n" in trailers.upstream_status or not trailers.upstream_status.strip():
        raise UsageError(
            "--upstream-status is not one line",
            hint="Like: Backport [https://github.com/vllm-project/vllm/pull/1]",
            code="bad-status",
        )


def _repository(wish: Wish) -> Repository | None:
    """The repository of a branch; None where the source is a mailbox."""
    # A pipe is what a shell makes of <(git format-patch --stdout ...).
    if wish.source == STDIN or wish.path.is_file() or wish.path.is_fifo():
        if wish.base is not None:
            raise UsageError(
                f"--base is for branches, and {wish.source} is a mailbox",
                hint="Leave --base out.",
                code="usage",
            )
        return None
    if wish.source and wish.path.is_dir():
        worktree = find_repository(wish.path, upwards=False)
        if worktree is not None:
            check_settled(worktree)
            return worktree
    found = find_repository(wish.here)
    if found is None or found.find(wish.source) is None:
        raise UsageError(
            f"{wish.source!r} is neither a file nor a commit of the repository of {wish.here}",
            hint="Give a mailbox (git format-patch --stdout), a branch, or - for standard input.",
            code="no-source",
        )
    return found


def _bytes(wish: Wish) -> bytes:
    if wish.source == STDIN:
        if sys.stdin is None:  # what Python makes of <&-
            raise UsageError(
                "standard input is closed",
                hint="Pipe the mails in: git format-patch --stdout ... | vpatch import TAG -",
                code="no-source",
            )
        return sys.stdin.buffer.read()
    try:
        return wish.path.read_bytes()
    except OSError as error:
        raise HostError(
            f"{wish.path} cannot be read: {error.strerror}", hint="Check its permissions."
        ) from error


def _source(git: Git, wish: Wish, repository: Repository | None, data: bytes, tag: str) -> Mailbox:
    if repository is None:
        name = "standard input" if wish.source == STDIN else wish.source
        return read_mailbox(git, data, name)
    worktree = wish.path.is_dir() and find_repository(wish.path, upwards=False) is not None
    head = repository.resolve("HEAD" if worktree else wish.source)
    base = _branch_base(git, wish, repository, head, tag)
    return Mailbox(read_branch(git, base, head), ())


def _branch_base(git: Git, wish: Wish, repository: Repository, head: str, tag: str) -> str:
    """The commit below a branch's first one.

    ``--base``; else where `vpatch edit` noted the release; else where the branch left HEAD.
    """
    if wish.base is not None:
        return repository.resolve(wish.base)
    noted = repository.find(f"refs/vpatch/base/{tag}")
    if (
        noted is not None
        and not git.run("merge-base", "--is-ancestor", noted, head, ok=(0, 1)).status
    ):
        return noted
    current = repository.find("HEAD")
    if current is not None and current != head:
        found = git.run("merge-base", current, head, ok=(0, 1))
        if not found.status:
            return found.stdout.decode("ascii").strip()
    raise UsageError(
        f"nothing says where {wish.source} starts: it is HEAD, or has nothing in common with it",
        hint="Name the commit below the first one to import with --base REV.",
        code="no-base",
    )


def _report(result: _Result) -> Report:
    rewritten = result.rewritten
    added = {entry.file for entry in result.new.entries if entry.old is None}
    findings = [
        replace(finding, file=str(rewritten.series.folder / finding.file))
        for patch in rewritten.series.patches
        if patch.file in added
        for finding in lint_patch(patch)
    ]
    data = {
        "tag": rewritten.pin.tag,
        "changed": rewritten.changed,
        "revision": rewritten.pin.revision,
        "imported": [one.as_dict() for one in result.imported],
        "left_out": list(result.left_out),
        "patches": list(result.new.rows),
        "findings": [finding.as_dict() for finding in findings],
    }
    return Report("import", data, _text(result, findings))


def _text(result: _Result, findings: Sequence[Finding]) -> RenderableType:
    rows = [(one.verdict, one.origin, one.subject) for one in result.imported]
    changed = change_rows(result.new.rows)
    tag = result.rewritten.pin.tag
    return lines(
        table(("verdict", "from", "subject"), rows) if rows else None,
        *(plain(f"left out: {line}") for line in result.left_out),
        *(plain(f"{one.origin}: {note}") for one in result.imported for note in one.notes),
        table(("change", "patch", ""), changed) if changed else None,
        *(plain(f"still to mend: {finding}") for finding in findings),
        plain(summary(tag, result.revision_before, result.rewritten, result.new, check=False)),
    )
