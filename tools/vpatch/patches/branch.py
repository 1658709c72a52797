"""A branch as drafts: each commit's message, author and change, with no setting in between."""

from __future__ import annotations

from vpatch.errors import UsageError
from vpatch.findings import FindingsError
from vpatch.git import Git
from vpatch.patches.commit_object import CommitObject, commit_name, object_findings
from vpatch.patches.commits import DIFF_OPTIONS, linear
from vpatch.patches.draft import Draft, as_git_names, diff_of, notes_on
from vpatch.patches.mbox import lost_prefix

_DIFF = ("--no-commit-id", "-p", *DIFF_OPTIONS)


def read_branch(git: Git, base: str, head: str) -> tuple[Draft, ...]:
    """The commits behind ``base`` up to ``head``, oldest first.

    Args:
        git: A repository of our own that has the objects.

    Raises:
        UsageError: ``base`` is no ancestor of ``head``, or there is no commit between them.
        FindingsError: the range is not linear, or a commit cannot become a patch.
    """
    ids = linear(git, base, head)
    if not ids:
        raise UsageError(
            f"there is no commit between {commit_name(base)} and {commit_name(head)}",
            hint="Name the commit below the first one to import with --base REV.",
            code="no-commits",
        )
    objects = git.read_blobs(ids)
    commits = [CommitObject.parse(each, objects[each]) for each in ids]
    trees = [git.line("rev-parse", "--verify", f"{base}^{{tree}}"), *(one.tree for one in commits)]
    pairs = list(zip(commits, trees, strict=False))
    findings = [
        finding
        for one, before in pairs
        for finding in object_findings(one, before)
        # What git am drops from a subject is dropped, and told.
        if finding.code != "lost-prefix"
    ]
    findings += [
        one.found("no-author", "has no author that git can read")
        for one in commits
        if not one.author
    ]
    if findings:
        raise FindingsError(findings, hint="Change the commit (git rebase -i), and run it again.")
    return tuple(_draft(git, one, before) for one, before in pairs)


def _draft(git: Git, one: CommitObject, before: str) -> Draft:
    author = one.author
    if author is None:
        raise ValueError(f"{one.id} has no author")
    diff = git.output("diff-tree", *_DIFF, before, one.tree)
    lost = lost_prefix(f"[PATCH] {one.subject}")
    subject, _, body = one.text.partition("\n")
    when, zone = author["when"].decode("ascii"), author["zone"].decode("ascii")
    name = author["name"].decode("utf-8", "replace")
    return Draft(
        origin=commit_name(one.id),
        subject=subject[len(lost) :].strip() if lost else subject,
        body=body.strip("\n") + "\n",
        author_name=as_git_names(name),
        author_email=author["email"].decode("utf-8", "replace"),
        date=f"@{when} {zone}",
        diff=diff_of(diff),
        notes=notes_on(lost, name),
    )
