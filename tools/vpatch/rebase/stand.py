"""The first conflict of a rebase, as a worktree shows it."""

from __future__ import annotations

from dataclasses import dataclass

from vpatch.git import Git
from vpatch.rebase.markers import clashes
from vpatch.rebase.merge import Labels, Merger
from vpatch.rebase.model import Conflicted, Entry, Rebased
from vpatch.rebase.session import Sides, Stand
from vpatch.scratch import scratch_folder

_PLAIN = ("100644", "100755")


def stand_of(git: Git, rebased: Rebased) -> Stand:
    """Where a worktree of a rebase stands: at its first conflict, or at its end.

    Args:
        git: Any repository.
    """
    head = rebased.base
    for patch in rebased.patches:
        carried = patch.carried
        if patch.verdict.word != "conflict":
            head = carried.commit or head
            continue
        conflicts = {one.path: one for one in carried.conflicts}
        files = {path: entry for path, entry in carried.files.items() if path not in conflicts}
        with scratch_folder("merge") as folder:
            merger = Merger(git, folder)
            labels = Labels(rebased.target, f"before {patch.file}", patch.file)
            shown = {path: _shown(merger, one, labels) for path, one in conflicts.items()}
        for one in conflicts.values():
            left = carried.moved.get(one.was, one.was)
            if left != one.path and one.reason != "exists" and one.ours is not None:
                files[left] = None  # the patch moves it
        stages: dict[str, Sides] = {
            path: (one.base, one.ours, one.theirs) for path, one in conflicts.items()
        }
        reasons = {path: one.reason for path, one in conflicts.items()}
        return Stand(patch.file, head, {**files, **shown}, stages, reasons)
    return Stand("", head)


def _shown(merger: Merger, one: Conflicted, labels: Labels) -> Entry | None:
    """A file that conflicts: with markers where there are lines of both sides."""
    if one.merged and one.ours is not None:
        return Entry(one.ours.mode, one.merged)
    if one.reason == "exists" and one.ours and one.theirs and one.ours.mode in _PLAIN:
        merged = merger.merge(Entry(one.ours.mode, b""), one.ours, one.theirs, labels)
        if merged.marked:
            return Entry(one.ours.mode, merged.marked)
    return one.ours or one.theirs


@dataclass(frozen=True)
class Spot:
    """A place that waits for a person.

    Attributes:
        lines: The first and the last line with a marker; none where the whole file is meant.
    """

    path: str
    reason: str
    lines: tuple[int, int] | None

    def __str__(self) -> str:
        return f"{self.path}:{self.lines[0]}-{self.lines[1]}" if self.lines else self.path


def spots(stand: Stand) -> tuple[Spot, ...]:
    """The places of a conflict, in order."""
    found: list[Spot] = []
    for path, reason in stand.reasons.items():
        entry = stand.files.get(path)
        places = clashes(entry.data) if entry else ()
        found += [Spot(path, reason, (one.line, one.end)) for one in places]
        if not places:
            found.append(Spot(path, reason, None))
    return tuple(found)
