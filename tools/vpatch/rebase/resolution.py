"""What somebody made of the conflicts of a patch: kept by its key, used where the key fits exactly.

A file of which the clashing lines alone were settled is known by those lines: it fits wherever the
same lines clash for the same patch. One that was edited elsewhere too, or that conflicts as a
whole, is known by all of its text.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vpatch.errors import FindingError
from vpatch.patches.export import slug
from vpatch.patches.patch import Patch
from vpatch.patches.place import split_lines
from vpatch.patches.same import diff_id
from vpatch.rebase.guard.parses import unreadable
from vpatch.rebase.markers import Clash, left_markers, put_together, settled, taken_apart
from vpatch.rebase.model import Carried, Change, Conflicted, Entry, Files

SUFFIX = ".resolution"
NONE = "none"
Reader = Callable[[str], Entry | None]


@dataclass(frozen=True)
class Settled:
    """One clash, and the text in its place."""

    base: bytes
    ours: bytes
    theirs: bytes
    resolved: bytes


@dataclass(frozen=True)
class ByLines:
    """A file of which the clashing lines alone were settled, in order."""

    path: str
    clashes: tuple[Settled, ...]

    @property
    def key(self) -> str:
        """What it is known by."""
        ids = (sha256(text) for one in self.clashes for text in (one.base, one.ours, one.theirs))
        return " ".join((repr(self.path), *ids))


@dataclass(frozen=True)
class Edit:
    """Lines that go and lines that come.

    Attributes:
        line: Of the file before, from 1.
    """

    line: int
    removed: bytes
    added: bytes


@dataclass(frozen=True)
class Whole:
    """A file that is known by all of its text.

    Attributes:
        base, ours, theirs: Mode and sha256 of each side; ``none`` where there is no file.
        mode: Of the result; empty where the file goes.
        edits: From ``ours`` to the result.
    """

    path: str
    base: str
    ours: str
    theirs: str
    mode: str
    edits: tuple[Edit, ...] = ()

    @property
    def key(self) -> str:
        """What it is known by."""
        return " ".join((repr(self.path), self.base, self.ours, self.theirs))


@dataclass(frozen=True)
class Resolution:
    """What somebody made of a patch.

    Attributes:
        subject, patch_id: The patch: its subject, and a hash of what its diff does.
        source, target: The releases between which it was made; they are no part of the key.
        lines: path -> the line of its text that tells of it; empty where it has none yet.
    """

    subject: str
    topic: str
    patch_id: str
    source: str
    target: str
    files: tuple[ByLines | Whole, ...]
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The file that it is kept in: it tells the key."""
        keys = "\n".join((self.subject, self.patch_id, *(file.key for file in self.files)))
        text = keys.encode("utf-8", "surrogateescape")
        return f"{slug(self.subject)}-{sha256(text)[:12]}{SUFFIX}"

    def is_of(self, patch: Patch) -> bool:
        """Whether it was made for exactly this patch, wherever its lines stand."""
        return self.subject == patch.subject and self.patch_id == diff_id(patch)


def sha256(data: bytes) -> str:
    """A hash, in hex."""
    return hashlib.sha256(data).hexdigest()


def identity(entry: Entry | None) -> str:
    """How `Whole` names a file."""
    return NONE if entry is None else f"{entry.mode} {sha256(entry.data)}"


def resolution_of(carried: Carried, before: Reader, source: str, target: str) -> Resolution:
    """What was made of a patch, to be kept.

    Args:
        carried: A patch that somebody resolved.
        before: Reads the new tree before it.
        source, target: The releases.

    Raises:
        FindingError: a file is no text.
    """
    conflicts = {one.path: one for one in carried.conflicts}
    patch = carried.patch
    files = tuple(
        _file(path, conflicts.get(path), before(path), carried.files.get(path, before(path)))
        for path in sorted(carried.by_hand)
    )
    return Resolution(patch.subject, patch.topic, diff_id(patch), source, target, files)


def _file(
    path: str, conflict: Conflicted | None, before: Entry | None, result: Entry | None
) -> ByLines | Whole:
    if any(entry is not None and b"\0" in entry.data for entry in (before, result)):
        raise FindingError(
            f"{path} is no text: what was made of it cannot be stored",
            hint="Go on without --store.",
            code="no-text",
        )
    parts = _parts(conflict)
    if parts and conflict and conflict.ours and result and result.mode == conflict.ours.mode:
        texts = settled(parts, result.data)
        if texts is not None:
            found = [part for part in parts if isinstance(part, Clash)]
            pairs = zip(found, texts, strict=True)
            return ByLines(path, tuple(Settled(*clash.sides, text) for clash, text in pairs))
    base, theirs = (conflict.base, conflict.theirs) if conflict else (None, None)
    ids = (identity(base), identity(before), identity(theirs))
    if result is None:
        return Whole(path, *ids, mode="")
    old = before.data if before else b""
    return Whole(path, *ids, mode=result.mode, edits=tuple(_edits(old, result.data)))


def _parts(conflict: Conflicted | None) -> tuple[bytes | Clash, ...]:
    """A conflict taken apart, where its clashing lines are all that it is known by.

    Markers bring a newline: where they stand at the end, how a side ends is not to be seen.
    """
    if conflict is None or conflict.reason != "content":
        return ()
    parts = taken_apart(conflict.merged) or ()
    sides = (side.data for side in (conflict.base, conflict.ours, conflict.theirs) if side)
    ended = all(not side or side.endswith(b"\n") for side in sides)
    return parts if ended or (parts and parts[-1]) else ()


def _edits(old: bytes, new: bytes) -> Iterator[Edit]:
    before, after = split_lines(old), split_lines(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for word, start, end, first, last in matcher.get_opcodes():
        if word != "equal":
            yield Edit(start + 1, b"".join(before[start:end]), b"".join(after[first:last]))


def edited(old: bytes, edits: Sequence[Edit]) -> bytes | None:
    """A file with edits; None where one does not fit."""
    lines = split_lines(old)
    for edit in reversed(edits):
        removed = split_lines(edit.removed)
        start, end = edit.line - 1, edit.line - 1 + len(removed)
        if start > len(lines) or lines[start:end] != removed:
            return None
        lines[start:end] = split_lines(edit.added)
    return b"".join(lines)


def fitted(
    resolution: Resolution, conflicts: Sequence[Conflicted], made: Files, read: Reader
) -> dict[str, Entry | None] | None:
    """The files of a patch with its conflicts resolved.

    Args:
        made: Its files as far as they merge.
        read: Reads the new tree before it.

    Returns:
        None where the resolution is not of exactly these conflicts.
    """
    left = {one.path: one for one in conflicts}
    files = dict(made)
    for file in resolution.files:
        conflict = left.pop(file.path, None)
        if isinstance(file, ByLines):
            data = _by_lines(file, conflict)
            mode = made.get(file.path) or (conflict.ours if conflict else None)
            if data is None or mode is None:
                return None
            files[file.path] = Entry(mode.mode, data)
            continue
        before = read(file.path)
        base, theirs = (conflict.base, conflict.theirs) if conflict else (None, None)
        if (file.base, file.ours, file.theirs) != tuple(map(identity, (base, before, theirs))):
            return None
        result = edited(before.data if before else b"", file.edits)
        if result is None:
            return None
        files[file.path] = Entry(file.mode, result) if file.mode else None
    return None if left else files


def _by_lines(file: ByLines, conflict: Conflicted | None) -> bytes | None:
    parts = _parts(conflict)
    found = [part.sides for part in parts or () if isinstance(part, Clash)]
    if not parts or found != [(one.base, one.ours, one.theirs) for one in file.clashes]:
        return None
    return put_together(parts, [one.resolved for one in file.clashes])


def refusal(resolution: Resolution, conflicts: Sequence[Conflicted], files: Files) -> str:
    """Why what a resolution makes is not used; empty where it is."""
    sides = {one.path: one for one in conflicts}
    for file in resolution.files:
        entry, one = files[file.path], sides.get(file.path)
        base, ours, theirs = (
            side.data if side else b""
            for side in ((one.base, one.ours, one.theirs) if one else (None, None, None))
        )
        if entry is None:
            continue
        for line, text in left_markers(entry.data, (base, ours, theirs)):
            return f"it leaves the marker {text[:40]!r} at {file.path}:{line}"
        change = Change(file.path, file.path, base, theirs, ours, entry.data, ())
        for doubt in unreadable(change):
            return f"{file.path}:{doubt.line}: {doubt.text}"
    return ""
