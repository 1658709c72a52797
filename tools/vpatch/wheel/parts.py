"""Which members a patched wheel has, in which order, and the RECORD that lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vpatch.wheel.edits import FileEdit, WheelEdits
from vpatch.wheel.meta import (
    PROVENANCE_FILE,
    UNHASHED,
    Distribution,
    RecordLine,
    record_bytes,
    record_line,
)
from vpatch.wheel.splice import Kept, Moved, Part, Stored
from vpatch.wheel.zip import Member, bad_wheel

_PERMISSIONS = 0o777
_PLAIN_MODE = 0o644


@dataclass(frozen=True)
class Plan:
    """What is to be made of a base wheel.

    Attributes:
        base: The wheel that is spliced.
        target: The same with the version and the stem that it will have.
        edits: The files that change.
        texts: Members that are rewritten, by the name that they have in the base.
    """

    base: Distribution
    target: Distribution
    edits: WheelEdits
    texts: Mapping[str, bytes]


def complete_parts(plan: Plan, provenance: bytes) -> tuple[Part, ...]:
    """All members of the output: what the base has, the edits, vpatch.json, RECORD at the end."""
    parts = list(_parts(plan))
    folder = plan.target.dist_info
    parts.append(Stored(f"{folder}/{PROVENANCE_FILE}", provenance, _PLAIN_MODE))
    lines = (*_record_lines(plan.base, parts), RecordLine(f"{folder}/RECORD", "", ""))
    return (*parts, Stored(f"{folder}/RECORD", record_bytes(lines), _PLAIN_MODE))


def check_record(base: Distribution) -> None:
    """Refuses a wheel whose RECORD and members are not the same files.

    Raises:
        FindingError: with the first file that only one of them has.
    """
    members = {member.name for member in base.archive.members if not member.is_folder}
    differing = sorted((members ^ set(base.record)) - _unhashed(base))
    if differing:
        where = "lacks" if differing[0] in members else "lists without having it:"
        raise bad_wheel(base.archive.path, f"has a RECORD that {where} {differing[0]}")


def _parts(plan: Plan) -> Iterator[Part]:
    """The output's members but vpatch.json and RECORD: the base's order, new files before
    dist-info (a wheel's dist-info belongs at its end)."""
    base, target, edits, texts = plan.base, plan.target, plan.edits, plan.texts
    changed = {edit.path: edit for edit in edits.changed}
    gone = {edit.path for edit in edits.removed} | _unhashed(base)
    added = [Stored(edit.path, edit.data or b"", edit.mode & _PERMISSIONS) for edit in edits.added]
    for member in base.archive.members:
        name = _target_name(base, target, member.name)
        if member.name in gone:
            continue
        if member.name.startswith(f"{base.dist_info}/"):
            yield from added
            added = []
        if member.name in texts:
            yield Stored(name, texts[member.name], member.mode & _PERMISSIONS or _PLAIN_MODE)
        elif edit := changed.get(member.name):
            yield Stored(name, edit.data or b"", _mode(edit, member))
        elif name == member.name:
            yield Kept(member)
        else:
            yield Moved(member, name)


def _mode(edit: FileEdit, member: Member) -> int:
    """The member's permissions, unless the patch is about them."""
    mode = member.mode if edit.mode == edit.old_mode else edit.mode
    return mode & _PERMISSIONS or _PLAIN_MODE


def _target_name(base: Distribution, target: Distribution, name: str) -> str:
    """A member's name under the new version: dist-info and data folders carry it."""
    for kind in ("dist-info", "data"):
        if name.startswith(f"{base.stem}.{kind}/"):
            return target.stem + name[len(base.stem) :]
    return name


def _unhashed(base: Distribution) -> set[str]:
    return {f"{base.dist_info}/{name}" for name in UNHASHED}


def _record_lines(base: Distribution, parts: Iterable[Part]) -> Iterator[RecordLine]:
    for part in parts:
        if isinstance(part, Stored):
            yield record_line(part.name, part.data)
        elif not part.member.is_folder:
            line = base.record[part.member.name]
            yield replace(line, name=part.name if isinstance(part, Moved) else line.name)
