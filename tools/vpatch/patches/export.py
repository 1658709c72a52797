"""Commits become a series: old bytes stay where they still say the same, and no patch is lost.

Only what the new folder is to hold is computed here; ``patches/rewrite.py`` verifies and writes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from vpatch.errors import UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.apply import is_set_aside
from vpatch.patches.commits import Commit
from vpatch.patches.patch import Patch
from vpatch.patches.pin import PIN
from vpatch.patches.same import makes, match, names_its_blobs, tree_before
from vpatch.patches.series import LISTING, Series, is_seen

KEPT, REWRITTEN, RENUMBERED, ADDED, DROPPED = (
    "kept",
    "rewritten",
    "renumbered",
    "added",
    "dropped",
)
_LONGEST_SLUG = 70
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Entry:
    """One patch of the new series.

    Attributes:
        file: Its new name.
        raw: Its new bytes.
        was: Its name so far; empty where it is new.
        old: Its bytes so far; None where it is new.
    """

    file: str
    raw: bytes
    was: str = ""
    old: bytes | None = None

    @property
    def change(self) -> str:
        """``kept``, ``renumbered`` (the same bytes, another name), ``rewritten`` or ``added``."""
        if self.old is None:
            return ADDED
        if self.raw != self.old:
            return REWRITTEN
        return KEPT if self.file == self.was else RENUMBERED

    def as_dict(self) -> dict[str, str]:
        """The entry as ``--json`` prints it."""
        return {"change": self.change, "file": self.file, "was": self.was}


@dataclass(frozen=True)
class NewSeries:
    """What a series is to become: its patches in order, and the old ones that go."""

    entries: tuple[Entry, ...]
    dropped: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[dict[str, str], ...]:
        """One row a patch, as ``--json`` prints them."""
        gone = ({"change": DROPPED, "file": "", "was": name} for name in self.dropped)
        return (*(entry.as_dict() for entry in self.entries), *gone)


def export(
    git: Git,
    old: Series,
    commits: Sequence[Commit],
    drop: Collection[str] = (),
    *,
    kind: str = "sdist",
) -> NewSeries:
    """The series that a branch's commits are.

    Args:
        git: A repository of our own that has the commits' objects.
        old: The series so far.
        commits: The branch's commits, oldest first.
        drop: Old patches that may go.
        kind: The kind of source that the branch stands on.

    Raises:
        FindingsError: a patch of the old series is among the commits no more, and not dropped.
        UsageError: ``drop`` names a patch that is not lost.
        HostError: git failed.
    """
    matched = match(old.patches, commits)
    kept = {patch.file for patch in matched.values()}
    lost = [patch for patch in old.patches if patch.file not in kept]
    _check_drop(old, lost, drop)
    missing = [patch for patch in lost if patch.file not in drop]
    if missing:
        raise FindingsError([_lost(old, patch) for patch in missing], hint=_for_lost(missing, kind))
    entries = (
        _entry(git, old, number, commit, matched.get(commit.id))
        for number, commit in enumerate(commits, start=1)
    )
    return NewSeries(tuple(entries), tuple(patch.file for patch in lost))


def slug(subject: str) -> str:
    """A subject as part of a file name: small ASCII letters and digits, joined by ``-``."""
    ascii_only = (
        unicodedata.normalize("NFKD", subject.casefold()).encode("ascii", "ignore").decode()
    )
    plain = re.sub(r"'s\b", "", ascii_only)
    plain = re.sub(r"(?<=[0-9])\.(?=[0-9])", "", plain)
    words = _NOT_IN_SLUG.sub("-", plain).strip("-")
    if len(words) > _LONGEST_SLUG:
        cut = words[: _LONGEST_SLUG + 1].rpartition("-")[0]
        words = cut or words[:_LONGEST_SLUG]
    return words or "patch"


def listing(old: bytes, new: NewSeries) -> bytes:
    """The ``series`` file: comments stay with the patch below them.

    Those above a patch that goes are about it and go too, but for what an empty line sets apart.
    """
    if [entry.was for entry in new.entries] == _names(old) and all(
        entry.file == entry.was for entry in new.entries
    ):
        return old
    blocks, tail = _blocks_of(_blocks(old), {entry.was for entry in new.entries})
    lines: list[str] = []
    for entry in new.entries:
        above, line = blocks.get(entry.was, ([], entry.was))
        lines += [*above, line.replace(entry.was, entry.file, 1) if entry.was else entry.file]
    return "".join(f"{line}\n" for line in (*lines, *tail)).encode("utf-8")


def _blocks(old: bytes) -> tuple[dict[str, tuple[list[str], str]], list[str]]:
    """Each name's comment lines above it and its line, and what stands behind the last one."""
    blocks: dict[str, tuple[list[str], str]] = {}
    above: list[str] = []
    for line in old.decode("utf-8").removesuffix("\n").split("\n"):
        line = line.rstrip("\r")  # noqa: PLW2901
        name = line.split("#", 1)[0].strip()
        if name:
            blocks[name] = (above, line)
            above = []
        else:
            above.append(line)
    return blocks, above if any(above) else []


def _blocks_of(
    all_of_it: tuple[dict[str, tuple[list[str], str]], list[str]], names: Collection[str]
) -> tuple[dict[str, tuple[list[str], str]], list[str]]:
    """The blocks of these names, and what stands behind; with what is set apart above others."""
    blocks, tail = all_of_it
    kept: dict[str, tuple[list[str], str]] = {}
    apart: list[str] = []
    for name, (above, line) in blocks.items():
        if name in names:
            kept[name] = ([*apart, *above], line)
            apart = []
        else:
            end = max((n for n, text in enumerate(above, start=1) if not text.strip()), default=0)
            apart += above[:end]
    return kept, [*apart, *tail]


def _names(old: bytes) -> list[str]:
    return list(_blocks(old)[0])


def _check_drop(old: Series, lost: Sequence[Patch], drop: Collection[str]) -> None:
    names = {patch.file for patch in lost}
    for name in drop:
        if name not in names:
            known = any(patch.file == name for patch in old.patches)
            why = "is among the commits" if known else f"is no patch of {old.tag}"
            raise UsageError(
                f"--drop names {name}, which {why}",
                hint=f"Lost patches: {', '.join(sorted(names)) or 'none'}.",
                code="drop-not-lost",
            )


def _lost(old: Series, patch: Patch) -> Finding:
    return Finding(
        str(old.folder / patch.file),
        None,
        "lost-patch",
        f"no commit is this patch any more ({patch.subject!r}): it would be lost",
    )


def _for_lost(missing: Sequence[Patch], kind: str) -> str:
    if kind == "wheel" and any(is_set_aside(patch) for patch in missing):
        return (
            "The branch stands on the wheel's files, to which patches of tests do not apply: "
            "work on a branch of the sdist (vpatch apply TAG --source sdist --worktree DIR)."
        )
    return "If they are to go: " + " ".join(f"--drop {patch.file}" for patch in missing)


def _entry(git: Git, old: Series, number: int, commit: Commit, patch: Patch | None) -> Entry:
    if patch is None:
        return Entry(f"{number:04d}-{slug(commit.subject)}.patch", commit.raw)
    same = patch.subject == commit.subject
    name = patch.file.split("-", 1)[1] if same else f"{slug(commit.subject)}.patch"
    raw = patch.raw if _still_is(git, old, patch, commit) else commit.raw
    return Entry(f"{number:04d}-{name}", raw, patch.file, patch.raw)


def _still_is(git: Git, old: Series, patch: Patch, commit: Commit) -> bool:
    """Whether the old patch makes exactly this commit, of the very blobs that it names."""
    if patch.raw == commit.raw:
        return True
    before = tree_before(git, commit)
    return names_its_blobs(git, patch, before, commit.tree) and makes(git, old, patch, commit)


def series_files(old_listing: bytes, new: NewSeries) -> dict[str, bytes]:
    """The new folder's patches and its ``series`` file."""
    return {
        **{entry.file: entry.raw for entry in new.entries},
        LISTING: listing(old_listing, new),
    }


def is_ours(path: str) -> bool:
    """Whether a path of a series folder is written by vpatch; the rest is a person's."""
    return path in (LISTING, PIN) or ("/" not in path and is_seen(path))
