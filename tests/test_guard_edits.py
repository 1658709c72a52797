"""Any patch of a small file, on any edit of it by upstream: what git merges wrong is a concern."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard_edits import File, Maker, bodies, edited, rendered, truth
from guard_lab import PATCH, GuardLab
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.model import Question


@dataclass(frozen=True)
class Outcome:
    """A merge that git made, and what the guard says of it.

    Attributes:
        right: It is what both sides meant; None where nobody can say.
        gone: A function that the patch changes is not there any more.
        renamed: Upstream calls some function by another name.
    """

    before: str
    after: str
    upstream: str
    result: str
    right: bool | None
    gone: bool
    renamed: bool
    questions: tuple[Question, ...]


def read(text: str) -> dict[str, tuple[str, ...]]:
    """What each function of a file says, by its syntax tree."""
    found: dict[str, tuple[str, ...]] = {}

    def note(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                note(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                key = f"{owner}{node.name}"
                lines = tuple(ast.unparse(each) for each in node.body)
                found[key] = (*found.get(key, ()), *lines)

    note(ast.parse(text).body, "")
    return found


def renamed(base: File, upstream: File) -> bool:
    """Whether upstream calls a function by another name."""
    names = {routine.id: routine.key for routine in base}
    return any(names.get(each.id) not in (None, each.key) for each in upstream)


def outcome(lab: GuardLab, maker: Maker, patches: int, edits: int) -> Outcome | None:
    """A drawn merge; None where git says itself that it conflicts, or nothing is to be merged."""
    base = maker.file()
    patch, after = [], base
    for _ in range(patches):
        edit = maker.patch(base)
        patch.append(edit)
        after = edited(after, [edit])
    upstream: File = base
    for _ in range(edits):
        upstream = edited(upstream, [maker.upstream(upstream)])
    texts = (rendered(base), rendered(after), rendered(upstream))
    data = (texts[0].encode(), texts[1].encode(), texts[2].encode())
    # Two like changes are one to git, whichever of several like lines they meant.
    made = lab.merged(*data) if data[1] not in (data[0], data[2]) else None
    if made is None:
        return None
    wanted = truth(base, patch, upstream)
    # A function that both sides made alike may owe that to either of several like lines.
    alike = {each.key for each in after if bodies(upstream).get(each.key) == each.lines}
    touched = {each.key for each in base for edit in patch if each.id == edit.routine}
    known = wanted is not None and not (alike & touched)
    right = bodies(wanted) == read(made.decode()) if known and wanted else None
    # A new function that is like the one that went may be it: what nobody can tell is no test.
    changed = differing(texts[0], texts[1]) & set(read(texts[0]))
    is_new = {routine.id for routine in upstream} - {routine.id for routine in base}
    gone = bool(changed - set(read(texts[2]))) and not is_new and not renamed(base, upstream)
    questions = guarded(PATCH, [lab.change("a.py", *data, made)])
    is_renamed = renamed(base, upstream)
    return Outcome(*texts, made.decode(), right, gone, is_renamed, questions)


def differing(one: str, other: str) -> set[str]:
    """The functions in which two files differ."""
    first, second = read(one), read(other)
    return {key for key in {**first, **second} if first.get(key) != second.get(key)}


@pytest.fixture(scope="module")
def lab() -> Iterator[GuardLab]:
    with tempfile.TemporaryDirectory() as folder:
        yield GuardLab(Path(folder) / "lab")


EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@EXAMPLES
@given(data=st.data(), unique=st.booleans(), sizes=st.tuples(st.integers(1, 2), st.integers(1, 3)))
def test_a_wrong_merge_is_never_silent(
    lab: GuardLab, data: st.DataObject, unique: bool, sizes: tuple[int, int]
) -> None:
    maker = Maker(lambda low, high: data.draw(st.integers(low, high)), unique)
    seen = outcome(lab, maker, *sizes)
    if seen is None or seen.questions:
        return
    assert seen.right is not False, seen
    assert not (seen.gone and seen.result != seen.upstream), seen
    # The patched functions, and only those, differ from upstream's: renamed ones by their old name.
    meant, made = differing(seen.before, seen.after), differing(seen.upstream, seen.result)
    gone = set(read(seen.before)) - set(read(seen.upstream))
    new = set(read(seen.upstream)) - set(read(seen.before))
    assert made <= meant | (new if gone else set()), seen


@EXAMPLES
@given(data=st.data(), sizes=st.tuples(st.integers(1, 2), st.integers(1, 3)))
def test_a_right_merge_of_unlike_lines_is_no_concern(
    lab: GuardLab, data: st.DataObject, sizes: tuple[int, int]
) -> None:
    maker = Maker(lambda low, high: data.draw(st.integers(low, high)), unique=True)
    seen = outcome(lab, maker, *sizes)
    # Whether a function with another name and other lines is the same one, is to be asked.
    if seen is not None and seen.right and not seen.renamed:
        assert seen.questions == (), seen
