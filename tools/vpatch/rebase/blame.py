"""Which release breaks which patch: a series, tried on each of several releases.

Each release is tried as one step from the series' own, as `vpatch rebase --dry-run` would, without
stored resolutions and without the gates: what upstream alone did to the patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vpatch.cores import cores, shared_out
from vpatch.patches.repository import scratch_repository
from vpatch.patches.series import Series
from vpatch.rebase.model import RebasedPatch, Word
from vpatch.rebase.rebase import Means, Side, rebase

BEHIND = "behind"
LETTERS: dict[str, tuple[str, str]] = {
    "clean": ("=", "fits, every hunk at its line"),
    "offset": ("~", "fits, at other lines"),
    "three-way": ("3", "only a merge puts it there"),
    "resolved": ("r", "a person resolved it"),
    "partly-absorbed": ("p", "upstream has some of it"),
    "absorbed": ("A", "upstream has it"),
    "obsolete": ("O", "may leave: nothing to do there"),
    "conflict": ("C", "conflicts"),
    BEHIND: ("c", "conflicts, in a file that an earlier patch conflicts in or left"),
    "skipped": ("s", "left out"),
    "set-aside": ("-", "the release has none of its files"),
}
ASKED = ("?", "a question stops it")
# What needs nobody.
FITS: frozenset[str] = frozenset({"clean", "offset", "three-way", "set-aside"})


@dataclass(frozen=True)
class Cell:
    """A patch on a release.

    Attributes:
        why: The verdict's sentence.
        evidence: The lines that it rests on.
        questions: What it asks, by name.
        files: The files in which it conflicts.
        behind: Earlier patches that conflict in, or left, the same files.
    """

    word: Word
    why: str = ""
    evidence: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The word; ``behind`` for a conflict that may be another patch's doing."""
        return BEHIND if self.word == "conflict" and self.behind else self.word

    @property
    def letter(self) -> str:
        """One letter, and a question mark where something is asked."""
        return LETTERS[self.kind][0] + (ASKED[0] if self.questions else "")

    @property
    def fits(self) -> bool:
        """Whether nobody has to look at it."""
        return self.word in FITS and not self.questions


@dataclass(frozen=True)
class Change:
    """A release from which on a patch has another verdict."""

    release: str
    cell: Cell

    def __str__(self) -> str:
        asked = ", asks" if self.cell.questions else ""
        word = "conflict behind another" if self.cell.kind == BEHIND else self.cell.word
        return f"{word}{asked} from {self.release}"


@dataclass(frozen=True)
class Row:
    """A patch on all releases, in their order."""

    file: str
    subject: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Blamed:
    """A series on several releases.

    Attributes:
        tag: The release that the series is made for.
        releases: Those that it was tried on, the oldest first.
        unseen: Releases between that nobody looked at: the mirror does not have them.
    """

    tag: str
    releases: tuple[str, ...]
    rows: tuple[Row, ...]
    unseen: tuple[str, ...] = ()

    def changes(self, row: Row) -> tuple[Change, ...]:
        """Where a patch gets another verdict than on the release before, the first release too."""
        found: list[Change] = []
        for release, cell in zip(self.releases, row.cells, strict=True):
            if not found or found[-1].cell.letter != cell.letter:
                found.append(Change(release, cell))
        return tuple(found)

    def first(self, row: Row) -> Change | None:
        """Where a patch's verdict changes first; None where it never does."""
        return next(iter(self.changes(row)[1:]), None)

    def breaks(self, row: Row) -> Change | None:
        """The first release on which somebody has to look at a patch, or on which it leaves."""
        tried = zip(self.releases, row.cells, strict=True)
        return next((Change(release, cell) for release, cell in tried if not cell.fits), None)


Wanted = tuple[Series, Side, tuple[Side, ...]]
_Share = Sequence[tuple[Series, Side, Side]]
_Columns = list[tuple[Cell, ...]]
_ALONE = Means(jobs=1)


def blame_all(
    lenders: Sequence[Path], wanted: Sequence[Wanted], *, jobs: int = 0
) -> tuple[Blamed, ...]:
    """Tries series on releases, several pairs at a time.

    Args:
        lenders: Git directories with the releases; they are only read.
        wanted: For each series the release that it fits exactly, and the releases that it is
            tried on, the oldest first.
        jobs: How many processes; 0: one a core.

    Raises:
        PatchConflictError: a patch does not fit the release that it is made for.
        HostError: git failed, or the disk is full.
    """
    pairs = [(series, source, target) for series, source, targets in wanted for target in targets]
    # Neighbours share a release, and what was read of it: they stay in one process.
    order = sorted(range(len(pairs)), key=lambda number: pairs[number][2].commit)
    jobs = min(jobs or cores(), len(pairs))
    size = max(1, len(pairs) // (2 * jobs))
    shares = [order[start : start + size] for start in range(0, len(order), size)]
    asked = [[pairs[number] for number in share] for share in shares]
    made = shared_out([partial(_columns, tuple(lenders), share) for share in asked], jobs)
    found = dict(zip(order, (column for share in made for column in share), strict=True))
    columns = (found[number] for number in range(len(pairs)))
    return tuple(
        _blamed(series, targets, [next(columns) for _ in targets]) for series, _, targets in wanted
    )


def _blamed(series: Series, targets: Sequence[Side], columns: Sequence[tuple[Cell, ...]]) -> Blamed:
    rows = [
        Row(patch.file, patch.subject, tuple(column[number] for column in columns))
        for number, patch in enumerate(series.patches)
    ]
    return Blamed(series.tag, tuple(target.name for target in targets), tuple(rows))


def _columns(lenders: tuple[Path, ...], pairs: _Share) -> _Columns:
    with scratch_repository(*lenders) as git:
        return [
            tuple(_cell(patch) for patch in rebase(git, *pair, gates=False, means=_ALONE).patches)
            for pair in pairs
        ]


def _cell(patch: RebasedPatch) -> Cell:
    return Cell(
        word=patch.verdict.word,
        why=patch.verdict.why,
        evidence=tuple(str(each) for each in patch.verdict.evidence),
        questions=tuple(question.name for question in patch.questions),
        files=tuple(each.path for each in patch.carried.conflicts),
        behind=patch.carried.behind,
    )
