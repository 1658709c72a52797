"""Small Python files, edited by a patch and by upstream, and what a merge of both should be.

Every function and statement has an identity beside its text, so that the right merge is known
even where texts repeat; git, which sees only texts, may take the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

Draw = Callable[[int, int], int]
"""A number between two, both included."""
# Few texts, so that they repeat.
_TEXTS = tuple(f"{verb}({noun})" for verb in ("open", "read", "check") for noun in ("a", "b", "c"))


@dataclass(frozen=True)
class Statement:
    """A line with an identity."""

    id: int
    text: str


@dataclass(frozen=True)
class Routine:
    """A function with an identity; in a class where it has one."""

    id: int
    name: str
    owner: str
    body: tuple[Statement, ...]

    @property
    def key(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.body)


File = tuple[Routine, ...]


@dataclass(frozen=True)
class Edit:
    """What a side does to a function: ``insert``, ``delete``, ``replace`` a statement; ``drop``,
    ``rename``, ``add`` (in front of it), ``swap`` (with the one behind it) a function.
    """

    kind: str
    routine: int
    statement: int = 0
    new: tuple[Statement, ...] = ()
    name: str = ""
    added: Routine | None = None


@dataclass
class Maker:
    """Makes files and edits of drawn numbers."""

    draw: Draw
    unique: bool
    ids: int = field(default=0)

    def _id(self) -> int:
        self.ids += 1
        return self.ids

    def statement(self) -> Statement:
        number = self._id()
        text = _TEXTS[self.draw(0, len(_TEXTS) - 1)]
        return Statement(number, f"{text[:-1]}, {number})" if self.unique else text)

    def routine(self, owner: str) -> Routine:
        number = self._id()
        body = tuple(self.statement() for _ in range(self.draw(1, 9)))
        return Routine(number, f"f{number}", owner, body)

    def file(self) -> File:
        owners = ("", "", "A", "A", "B")[: self.draw(1, 5)]
        made = [self.routine(owner) for owner in owners]
        if self.draw(0, 2) == 0 and len(made) > 1:  # two alike
            like = made[0]
            body = tuple(Statement(self._id(), each.text) for each in like.body)
            made[1] = replace(made[1], body=body)
        return tuple(made)

    def patch(self, of: File) -> Edit:
        return self._inside(of, self.draw(0, len(of) - 1))

    def upstream(self, of: File) -> Edit:
        kind = ("inside", "inside", "inside", "drop", "rename", "add", "swap")[self.draw(0, 6)]
        at = self.draw(0, len(of) - 1)
        target = of[at]
        if kind == "inside":
            return self._inside(of, at)
        if kind == "rename":
            return Edit("rename", target.id, name=f"g{self._id()}")
        if kind == "add":
            body = tuple(Statement(self._id(), each.text) for each in target.body)
            fresh = self.routine(target.owner)
            added = replace(fresh, body=body) if self.draw(0, 1) else fresh
            return Edit("add", target.id, added=added)
        return Edit(kind, target.id)

    def _inside(self, of: File, at: int) -> Edit:
        routine = of[at]
        place = self.draw(0, len(routine.body) - 1)
        kind = ("insert", "replace", "delete")[self.draw(0, 2)]
        if kind == "delete" and len(routine.body) == 1:
            kind = "insert"
        new = () if kind == "delete" else tuple(self.statement() for _ in range(self.draw(1, 3)))
        return Edit(kind, routine.id, routine.body[place].id, new)


def rendered(file: File) -> str:
    """The file as Python."""
    parts: list[str] = []
    owner = ""
    for routine in file:
        if routine.owner != owner:
            owner = routine.owner
            parts.append(f"class {owner}:" if owner else "")
        indent = "    " if owner else ""
        parts.append(f"{indent}def {routine.name}(a, b, c):")
        parts += [f"{indent}    {line}" for line in routine.lines]
        parts.append("")
    return "import os\n\n" + "\n".join(parts) + "\n"


def edited(file: File, edits: Iterable[Edit]) -> File:
    """A file after edits; those of what is not there any more are left out."""
    for edit in edits:
        file = _edited(file, edit)
    return file


def _edited(file: File, edit: Edit) -> File:
    at = next((n for n, each in enumerate(file) if each.id == edit.routine), None)
    if at is None:
        return file
    routine = file[at]
    if edit.kind == "drop":
        return (*file[:at], *file[at + 1 :]) if file[1:] else file
    if edit.kind == "add" and edit.added is not None:
        return (*file[:at], edit.added, *file[at:])
    if edit.kind == "swap":
        other = file[at + 1 : at + 2]
        same = other and other[0].owner == routine.owner
        return (*file[:at], *other, routine, *file[at + 2 :]) if same else file
    if edit.kind == "rename":
        return (*file[:at], replace(routine, name=edit.name), *file[at + 1 :])
    return (*file[:at], replace(routine, body=_body(routine, edit)), *file[at + 1 :])


def _body(routine: Routine, edit: Edit) -> tuple[Statement, ...]:
    place = next((n for n, each in enumerate(routine.body) if each.id == edit.statement), None)
    if place is None:
        return routine.body
    behind = place if edit.kind == "insert" else place + 1
    made = (*routine.body[:place], *edit.new, *routine.body[behind:])
    return made or routine.body


def truth(base: File, patch: Iterable[Edit], upstream: File) -> File | None:
    """Upstream's file with the patch in it; None where nobody can say what that is."""
    file = upstream
    for edit in patch:
        old = next(each for each in base if each.id == edit.routine)
        new = next((each for each in file if each.id == edit.routine), None)
        if new is None or all(each.id != edit.statement for each in new.body):
            return None
        ids, now = [each.id for each in old.body], [each.id for each in new.body]
        place = ids.index(edit.statement)
        above = ids[place - 1 : place] if place else []
        at = now.index(edit.statement)
        if edit.kind == "insert" and now[at - 1 : at] != above and at:
            return None  # upstream has put or taken something at the very place
        file = _edited(file, edit)
    return file


def bodies(file: File) -> dict[str, tuple[str, ...]]:
    """What each function says."""
    return {each.key: each.lines for each in file}
