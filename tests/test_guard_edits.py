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
    """

    before: str
    after: str
    upstream: str
    result: str
    right: bool | None
    gone: bool
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
    texts = [rendered(each) for each in (base, after, upstream)]
    data = [text.encode() for text in texts]
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
    there, ours = ({routine.id for routine in file} for file in (upstream, base))
    gone = any(edit.routine not in there for edit in patch) and there <= ours
    questions = guarded(PATCH, [lab.change("a.py", *data, made)])
    return Outcome(*texts, made.decode(), right, gone, questions)


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
    if seen is not None and seen.right:
        assert seen.questions == (), seen
