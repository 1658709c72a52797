"""What the stages of a rebase hand to each other.

``steps`` reads the series on its recorded base, ``carry`` puts each patch on the new one, ``guard``
and ``absorb`` look at what came out, ``verdict`` has the word, ``rebase`` holds all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from vpatch.git import blob_id
from vpatch.patches.patch import Patch
from vpatch.rebase.hunks import Placed
from vpatch.rebase.recall import Recalled
from vpatch.rebase.touch import Touch

if TYPE_CHECKING:
    from vpatch.rebase.recall import Recall

How = Literal["clean", "offset", "three-way", "resolved", "emptied", "conflict", "set-aside"]
Word = Literal[
    "clean",
    "offset",
    "three-way",
    "resolved",
    "partly-absorbed",
    "absorbed",
    "obsolete",
    "skipped",
    "set-aside",
    "conflict",
]
WORDS: tuple[Word, ...] = get_args(Word)
# A patch with one of these is not in the new series.
LEAVES: frozenset[Word] = frozenset({"absorbed", "obsolete", "skipped", "set-aside"})


@dataclass(frozen=True)
class Entry:
    """A file of a tree.

    Attributes:
        mode: As git writes it: ``100644``, ``100755``, ``120000`` (a link), ``160000`` (a
            submodule).
        data: Its bytes; a link's target; a submodule's commit in hex.
    """

    mode: str
    data: bytes

    @property
    def id(self) -> str:
        """Its object id."""
        return self.data.decode("ascii") if self.mode == "160000" else blob_id(self.data)


Files = Mapping[str, Entry | None]
"""path -> the file there; None where there is none."""


@dataclass(frozen=True)
class Conflicted:
    """A file of a patch that the new tree has no place for.

    Attributes:
        path: The file in the new tree.
        was: The same file in the old series; another name where upstream moved it.
        reason: ``content`` (both sides changed the same lines), ``gone`` (the patch changes a file
            that is not there), ``exists`` (it makes one that is there already), ``folder-gone`` (it
            makes one in a folder that is not there), ``folder-here`` (a folder stands where it
            makes one), ``file-above`` (a file stands where the folder of one has to be),
            ``changed`` (it deletes or moves a file that upstream changed), ``mode`` (or a link), or
            ``binary``.
        base, ours, theirs: The file before the patch in the old series, in the new tree so far, and
            after the patch in the old series; None where there is none.
        merged: For ``content``: the merge with markers in diff3 style; else empty.
        place: Where the patch has it, if nothing can stand there; ``path`` is a name beside it.
    """

    path: str
    was: str
    reason: str
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None
    merged: bytes = b""
    place: str = ""


@dataclass(frozen=True)
class Change:
    """What became of one file of a patch: what the guard looks at.

    Attributes:
        path: The file in the new tree; ``was`` is its name in the old series.
        before, after: The file before and after the patch in the old series; empty where there is
            none.
        upstream: The file in the new tree before the patch: upstream's, with what earlier patches
            of the series did to it; empty where there is none.
        result: The file in the new tree after the patch; empty where it is deleted.
        runs: Each run of changed lines of the patch, and where it landed.
        release: Upstream's file alone, without earlier patches; empty where there is none.
        release_before: The same at the old release.
    """

    path: str
    was: str
    before: bytes
    after: bytes
    upstream: bytes
    result: bytes
    runs: tuple[Placed, ...]
    release: bytes = b""
    release_before: bytes = b""


@dataclass(frozen=True)
class Carried:
    """A patch, carried onto the new tree.

    Attributes:
        patch: As it is in the old series.
        how: ``clean``: its own bytes apply, every hunk at its line. ``offset``: its hunks stand
            whole, at other lines. ``three-way``: only a merge puts them there. ``resolved``: a
            person did. ``emptied``: nothing was left to do. ``conflict``, ``set-aside``.
        files: What the patch makes of the new tree: its files after it. Of a conflict: what it
            would make with its own lines where both sides changed the same ones.
        changes: The same, as the guard looks at it: files with text alone.
        conflicts: The files that have no place: of ``conflict``, and of ``resolved``, where
            somebody found them one.
        moved: old path -> new path, where upstream moved a file that the patch touches.
        commit: The commit in the new line; empty where the patch makes none. From the first
            conflict on, commits are to look at, not to keep.
        alike: old path -> by how many percent the new file is like it, where upstream moved it.
        left_out: Nothing was tried, because somebody decided so.
        taken: The commit of upstream's history that does the same, byte for byte; empty where
            there is none, or no history.
        behind: Earlier patches with a conflict, or left out, that touch the same files.
        note: Why, in a sentence, where ``how`` does not say it all.
        by_hand: The files that somebody wrote, not the merge; empty but for ``resolved``.
        recalled: The stored resolution, used or refused.
    """

    patch: Patch
    how: How
    files: Files = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    conflicts: tuple[Conflicted, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    alike: Mapping[str, int] = field(default_factory=dict)
    left_out: bool = False
    taken: str = ""
    behind: tuple[str, ...] = ()
    note: str = ""
    by_hand: frozenset[str] = frozenset()
    recalled: Recalled | None = None


@dataclass(frozen=True)
class Evidence:
    """A line of the new release that a verdict rests on.

    Attributes:
        line: From 1; 0 where the whole file is meant.
        text: What stands there, or what does not.
    """

    path: str
    line: int
    text: str

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {"file": self.path, "line": self.line, "text": self.text}

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


@dataclass(frozen=True)
class Question:
    """Something that stops a rebase until a person accepts it by name.

    Attributes:
        name: Stable: ``PATCH:KIND:...``; what ``--accept`` takes.
        kind: What is asked.
    """

    name: str
    kind: str
    path: str
    line: int
    text: str

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        known = {"name": self.name, "kind": self.kind, "file": self.path}
        return {**known, "line": self.line, "text": self.text}


@dataclass(frozen=True)
class Verdict:
    """What became of a patch.

    Attributes:
        why: One sentence; empty where the word says it all.
        runs, upstream: How many places the patch changes, and at how many of them the new release
            has the change already.
    """

    word: Word
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    runs: int = 0
    upstream: int = 0


@dataclass(frozen=True)
class Choices:
    """What a person decided about this rebase.

    Attributes:
        accept: Names of questions that may stand.
        skip: Files of patches that are left out.
        keep: Files of patches that do not leave as obsolete, whatever says so.
        resolved: Patch file -> what a person made of the patch's files in the new tree.
        recall: Knows stored resolutions; None where there are none.
    """

    accept: Collection[str] = ()
    skip: Collection[str] = ()
    keep: Collection[str] = ()
    resolved: Mapping[str, Files] = field(default_factory=dict)
    recall: Recall | None = None


@dataclass(frozen=True)
class RebasedPatch:
    """A patch, with the last word on it; of a conflict, what upstream did to its lines."""

    carried: Carried
    verdict: Verdict
    questions: tuple[Question, ...] = ()
    upstream: tuple[Touch, ...] = ()

    @property
    def file(self) -> str:
        """Its name in the old series."""
        return self.carried.patch.file


@dataclass(frozen=True)
class Rebased:
    """A series, carried from one release to another.

    Attributes:
        source, target: What the two are called.
        base: The new release's commit; ``base_tree`` its tree.
        head, tree: The last commit of the new line, and its tree; the release's own where every
            patch leaves. Where there are conflicts, they are to look at, not to keep.
        accepted: Names of questions that may stand.
        kept: Files of patches that do not leave as obsolete.
    """

    source: str
    target: str
    base: str
    base_tree: str
    head: str
    tree: str
    patches: tuple[RebasedPatch, ...]
    accepted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Word, int]:
        """How many patches have each verdict; they add up to all of them."""
        words = [patch.verdict.word for patch in self.patches]
        return {word: words.count(word) for word in WORDS if word in words}

    @property
    def conflicts(self) -> tuple[RebasedPatch, ...]:
        """The patches that conflict."""
        return tuple(patch for patch in self.patches if patch.verdict.word == "conflict")

    @property
    def questions(self) -> tuple[Question, ...]:
        """What stops it: the questions that nobody accepted."""
        accepted = set(self.accepted)
        asked = (question for patch in self.patches for question in patch.questions)
        return tuple(question for question in asked if question.name not in accepted)

    @property
    def exit_code(self) -> int:
        """3 for a conflict, 1 for an open question, else 0."""
        return 3 if self.conflicts else 1 if self.questions else 0
