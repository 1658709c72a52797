"""Drafts get their place in a series, as commits in the object database."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from vpatch.errors import UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.apply import is_set_aside
from vpatch.patches.called import the_patch
from vpatch.patches.draft import Draft, same_change
from vpatch.patches.export import slug
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series
from vpatch.patches.stack import Author, Stack
from vpatch.upstream.mirror import Release

_KINDS = ("sdist", "git", "wheel")


@dataclass(frozen=True)
class Imported:
    """A new patch of the series.

    Attributes:
        origin: The mail or commit that it came from.
        verdict: ``clean``, ``offset`` or ``three-way``.
        notes: What is not as it was there, a sentence each.
    """

    origin: str
    subject: str
    verdict: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The entry as ``--json`` prints it."""
        return {
            "from": self.origin,
            "subject": self.subject,
            "verdict": self.verdict,
            "notes": list(self.notes),
        }


def place_in(series: Series, topic: str, after: str | None) -> int:
    """How many patches of a series stand before the new ones.

    Args:
        topic: Without ``after``: behind the last patch of this topic, else at the end.
        after: The patch before them: its file's name, or its number.

    Raises:
        UsageError: the series has no such patch.
    """
    names = [patch.file for patch in series.patches]
    if after is None:
        same = [n for n, patch in enumerate(series.patches, 1) if patch.topic == topic]
        return same[-1] if same else len(names)
    return names.index(the_patch(after, names, series.tag, "--after")) + 1


def base_release(series: Series, releases: Sequence[Release]) -> Release:
    """The source that has the most: a release that is imported from its wheel has no tests.

    Raises:
        UsageError: there is only the wheel, and a patch that it cannot take.
    """
    release = min(releases, key=lambda one: _KINDS.index(one.kind))
    aside = [patch.file for patch in series.patches if is_set_aside(patch)]
    if release.kind == "wheel" and aside:
        raise UsageError(
            f"{aside[0]} has no place: the pin of {series.tag} has the wheel alone, without tests",
            hint=f"Add a git source to the pin: vpatch pin {series.tag} --upstream-git URL",
            code="source-missing",
        )
    return release


def not_there_yet(series: Series, drafts: Sequence[Draft]) -> tuple[list[Draft], list[str]]:
    """The drafts that a series lacks, and a line for each that it has.

    Raises:
        FindingsError: one has the subject of a patch, and does something else.
    """
    known = {patch.subject: patch for patch in series.patches}
    fresh: list[Draft] = []
    there: list[str] = []
    findings: list[Finding] = []
    for draft in drafts:
        patch = known.get(draft.subject)
        if patch is None:
            fresh.append(draft)
        elif same_change(patch.files, draft.patch(patch.file).files):
            there.append(f"{draft.origin}: the series has it, as {patch.file}")
        else:
            message = f"{patch.file} has this subject, and does something else"
            findings.append(draft.found("same-subject", message))
    if findings:
        raise FindingsError(
            findings,
            hint="Nothing was written. A patch is changed with vpatch edit and vpatch export; "
            "another one needs another subject.",
        )
    return fresh, there


def stacked(
    git: Git, series: Series, release: Release, position: int, drafts: Sequence[Draft]
) -> tuple[str, list[Imported]]:
    """A line of commits on a release: the series, with drafts at their place.

    Args:
        git: A repository of our own that has the release; it gains objects.
        position: How many patches of the series stand before the drafts.

    Returns:
        The last commit, and what became of each draft.

    Raises:
        ConflictError: a draft, or a patch behind the drafts, does not fit.
        FindingsError: a draft changes nothing, or leaves a patch behind it nothing to change, or
            git does not take its author.
        HostError: git failed.
    """
    stack = Stack(git, series.tag, release.commit, release.tree)
    _all_of(series, stack, series.patches[:position])
    if drafts:
        # Every state of every file of the series, for three-way merges to start from.
        _all_of(series, copy(stack), series.patches[position:])
    imported = [_push_draft(stack, draft) for draft in drafts]
    _all_of(series, stack, series.patches[position:])
    return stack.commit, imported


def _all_of(series: Series, stack: Stack, patches: Sequence[Patch]) -> None:
    for patch in patches:
        mail = patch.mail
        author = Author(mail.author_name, mail.author_email, mail.date)
        if not stack.push(patch, mail.message, author, patch.file):
            message = "the new patches do all that this one does: it would be lost"
            finding = Finding(str(series.folder / patch.file), None, "emptied", message)
            raise FindingsError(
                [finding], hint="Nothing was written. Drop this one first: vpatch export --drop."
            )


def _push_draft(stack: Stack, draft: Draft) -> Imported:
    author = Author(draft.author_name, draft.author_email, draft.date)
    complaint = author.complaint(stack.git)
    if complaint:
        finding = draft.found("bad-author", f"git takes no such author or date: {complaint}")
        raise FindingsError(
            [finding], hint="Nothing was written. Mend `From:` and `Date:`, or the commit's author."
        )
    patch = draft.patch(f"{slug(draft.subject)}.patch")
    behind = stack.behind
    verdict = stack.push(patch, draft.message, author, f"{draft.origin} ({draft.subject!r})")
    if not verdict:
        finding = draft.found("empty", f"changes nothing behind {behind}, which does it already")
        raise FindingsError(
            [finding], hint="Nothing was written. Leave it out, or place it with --after."
        )
    return Imported(draft.origin, draft.subject, verdict, draft.notes)
