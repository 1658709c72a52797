"""Properties: what is put together without git is what git makes; nothing lands elsewhere."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from rebase_lab import Move, only
from series_lab import Lab, Step
from vpatch.git import Git
from vpatch.patches.patch import Patch
from vpatch.rebase.hunks import runs_of
from vpatch.rebase.lanes import find_lanes
from vpatch.rebase.markers import with_theirs
from vpatch.rebase.merge import Labels, Merger
from vpatch.rebase.model import Entry
from vpatch.rebase.snapshot import Snapshot

SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LABELS = Labels("ours", "base", "theirs")

# Edits of numbered lines: (line, how many lines go, what comes).
EDIT = st.tuples(
    st.integers(0, 29), st.integers(0, 3), st.lists(st.sampled_from(["x", "y", ""]), max_size=3)
)


def edited(count: int, edits: list[tuple[int, int, list[str]]], who: str) -> bytes:
    lines: list[list[str]] = [[f"line {n}"] for n in range(count)]
    for start, gone, come in edits:
        for number in range(start, min(start + gone, count)):
            lines[number] = []
        lines[min(start, count - 1)] += [f"{who} {text} {start}" for text in come]
    return "".join(f"{line}\n" for group in lines for line in group).encode()


@SLOW
@given(
    upstream=st.lists(EDIT, max_size=4), patches=st.lists(st.lists(EDIT, max_size=2), max_size=3)
)
def test_lanes_make_what_git_makes(
    upstream: list[tuple[int, int, list[str]]],
    patches: list[list[tuple[int, int, list[str]]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = edited(30, [], "")
        lab = Lab(folder, {"a": base})
        ours = edited(30, upstream, "up")
        old, new = Snapshot(lab.git, lab.base), Snapshot(lab.git, lab.tree(None, {"a": ours}))
        lanes = find_lanes(lab.git, old, new, {"a": "a"})
        merger = Merger(Git(lab.git.git_dir), folder)
        before, now, edits = base, ours, list[tuple[int, int, list[str]]]()
        commit, tree = lab.commit, lab.base
        for number, more in enumerate(patches):
            edits = [*edits, *more]
            theirs = edited(30, edits, "we")
            if theirs == before:
                continue
            tree = lab.tree(tree, {"a": theirs})
            commit = lab.commit_tree(tree, commit, Step(f"000{number}-x.patch", {}).message)
            (change,) = Patch.parse("x", lab.patch(commit)).files
            made = lanes.merged("a", before, now, theirs, runs_of(change))
            merged = merger.merge(
                Entry("100644", before), Entry("100644", now), Entry("100644", theirs), LABELS
            )
            if merged.entry is None:
                assert made is None
                break
            assert made in (None, merged.entry.data)
            before, now = theirs, merged.entry.data


# Headings' underlines, and what looks like git's own markers.
ODD = ["||||||| x", "<<<<<<< x", ">>>>>>> x", "<<<<<<<"]
PLAIN = st.lists(st.sampled_from([*"abcdefgh", ""]), max_size=20)
LINES = st.one_of(PLAIN, PLAIN, PLAIN, st.lists(st.sampled_from(["a", "=======", *ODD])))
ENDS = st.sampled_from(["\n", "\r\n"])


@SLOW
@given(texts=st.tuples(LINES, LINES, LINES), newline=ENDS, cut=st.integers(0, 9))
def test_the_patch_s_side_of_a_conflict_is_what_git_says(
    texts: tuple[list[str], list[str], list[str]], newline: str, cut: int
) -> None:
    base, ours, theirs = (newline.join([*text, *[""] * (cut < 9)]).encode() for text in texts)
    with tempfile.TemporaryDirectory() as name:
        for path, data in (("base", base), ("ours", ours), ("theirs", theirs)):
            (Path(name) / path).write_bytes(data)
        git = Git(Path(name))
        sides = [Entry("100644", data) for data in (base, ours, theirs)]
        merged = Merger(git, Path(name)).merge(sides[0], sides[1], sides[2], LABELS)
        if merged.theirs is None:
            return
        said = with_theirs(merged.marked, (base, ours, theirs))
        paths = [str(Path(name) / path) for path in ("ours", "base", "theirs")]
        forced = git.output("merge-file", "--stdout", "--theirs", "--", *paths)
        event("told" if said is not None else "asked of git")
        assert said in (None, forced)
        assert merged.theirs.data == forced


NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]
BODY = [
    "    total = start",
    "    total += 1",
    "    total *= 2",
    "    total -= 3",
    "    return total",
]


def body_of(name: str, *, twins: bool) -> list[str]:
    """The same in all functions, or all but one line of it."""
    return [f"    n = start + {0 if twins else NAMES.index(name)}", *BODY[1:]]


def module(functions: list[tuple[str, list[str]]]) -> bytes:
    parts = [f"def {name}(start):\n" + "".join(f"{x}\n" for x in body) for name, body in functions]
    return "\n\n".join(parts).encode()


def functions_of(data: bytes) -> dict[str, str]:
    text = data.decode()
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


UPSTREAM = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("swap"), st.sampled_from(NAMES), st.integers(0, 4)),
        st.tuples(st.just("twin"), st.sampled_from(NAMES), st.integers(0, 4)),
        st.tuples(st.just("same"), st.sampled_from(NAMES), st.integers(0, 3)),
    ),
    max_size=3,
)


def upstreams(
    functions: list[tuple[str, list[str]]], what: list[tuple[str, str, int]], line: str
) -> list[tuple[str, list[str]]]:
    made = [(name, list(body)) for name, body in functions]
    for how, name, number in what:
        at = next((n for n, (each, _) in enumerate(made) if each == name), None)
        if at is None:
            continue
        if how == "edit":
            made[at][1].insert(number + 1, f"    n += {number + 10}")
        elif how == "same":
            made[at][1].insert(number + 1, line)
        elif how == "drop" and len(made) > 1:
            del made[at]
        elif how == "rename":
            made[at] = (f"{name}_renamed", made[at][1])
        elif how == "swap":
            made.insert(min(number, len(made) - 1), made.pop(at))
        elif how == "twin":
            made.insert(number, (f"{name}_twin", list(made[at][1])))
    return made


@pytest.mark.slow
@SLOW
@given(
    name=st.sampled_from(NAMES),
    number=st.integers(0, 3),
    replaces=st.booleans(),
    twins=st.booleans(),
    what=UPSTREAM,
)
def test_the_patched_function_and_no_other_differs_or_a_verdict_says_why(
    name: str, number: int, replaces: bool, twins: bool, what: list[tuple[str, str, int]]
) -> None:
    line = "    n += 777"
    before = [(each, body_of(each, twins=twins)) for each in NAMES]
    patched = [(each, list(body)) for each, body in before]
    body = next(body for each, body in patched if each == name)
    body[number + 1 : number + 1 + replaces] = [line]
    upstream = upstreams(before, what, line)
    with tempfile.TemporaryDirectory() as folder:
        move = Move(
            Path(folder),
            {"vllm/a.py": module(before)},
            only("0001-a-say-so.patch", module(patched)),
            {"vllm/a.py": module(upstream)},
        )
        rebased = move.go()
    made, theirs = functions_of(move.contents["vllm/a.py"]), functions_of(module(upstream))
    if rebased.exit_code:
        assert rebased.conflicts or rebased.questions
        return
    (patch,) = rebased.patches
    changed = {each for each in theirs if made.get(each) != theirs[each]}
    assert set(made) == set(theirs)
    # Another name for the same lines in the same place is still that function.
    name = next(each for each in (name, f"{name}_renamed") if each in theirs)
    if patch.verdict.word == "absorbed":
        assert changed == set()
        assert line in theirs[name]
        assert patch.verdict.evidence
    else:
        assert changed == {name}
        assert made[name].count(line) == theirs[name].count(line) + 1
        if replaces:
            old = BODY[number + 1]
            assert made[name].count(old) == theirs[name].count(old) - 1
