"""A series on its new release with everything that is asked about it, and what answers that."""

from __future__ import annotations

from pathlib import Path

from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.called import is_called
from vpatch.patches.series import Series
from vpatch.rebase.lost import with_lost_gates
from vpatch.rebase.model import Rebased
from vpatch.rebase.needed import with_needed
from vpatch.rebase.outside import with_outside_calls
from vpatch.rebase.rebase import Side


def wholly_asked(
    git: Git, series: Series, rebased: Rebased, source: Side, kept: Path | None
) -> Rebased:
    """A rebase, asked also what would go with the patches that leave, and who else calls.

    Args:
        git: A repository of our own with both releases.
        series, source: The old series, and its release.
        kept: The user's cache, where the gates' answers are kept; None: nowhere.

    Raises:
        HostError: git failed.
    """
    asked = with_lost_gates(git, series, rebased, source, kept)
    return with_needed(git, with_outside_calls(git, asked, source))


def accepted(series: Series, names: tuple[str, ...]) -> tuple[str, ...]:
    """What ``--accept`` names, each with the file of its patch where its number was given."""
    return tuple(_full_name(name, series) for name in names)


def _full_name(name: str, series: Series) -> str:
    number, colon, rest = name.partition(":")
    if not (colon and number.isascii() and number.isdecimal()):
        return name
    files = (patch.file for patch in series.patches if is_called(patch.file, number))
    return next((f"{file}:{rest}" for file in files), name)


def check_names(rebased: Rebased, series: Series, names: tuple[str, ...]) -> None:
    """A name that is no question is a mistake: it might be meant for another one.

    Raises:
        UsageError: nothing asks what is accepted.
    """
    asked = {question.name for patch in rebased.patches for question in patch.questions}
    wrong = [name for name in names if _full_name(name, series) not in asked]
    if wrong:
        raise UsageError(
            f"--accept names {wrong[0]!r}, which nothing asks",
            hint="`vpatch rebase FROM TO --dry-run` lists what is asked, with names.",
            code="nothing-to-accept",
        )
