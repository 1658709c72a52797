"""Applying a series in the object database, the verdicts, and what a conflict says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from series_lab import TAG, Lab, Step, numbered, plain_git, write_series
from vpatch.errors import HostError
from vpatch.git import Git, Output
from vpatch.patches.apply import PatchConflictError, apply_series, is_set_aside, unpatched
from vpatch.patches.diff import FileChange, Hunk
from vpatch.patches.place import applied_in_place, misfits, split_lines
from vpatch.patches.series import Series

BASE = {
    "vllm/a.py": numbered(60),
    "vllm/b.py": numbered(20),
    "tests/test_a.py": b"def test(): pass\n",
    "crlf.txt": b"one\r\ntwo\r\n",
    "latin1.txt": b"caf\xe9\n\x85\x0c\r\x1c\nend",
    "run.sh": b"#!/bin/sh\n",
}
STEPS = [
    Step("0001-change-a.patch", {"vllm/a.py": numbered(60, changed={5: "five", 50: "fifty"})}),
    Step(
        "0002-change-a-again.patch",
        {"vllm/a.py": numbered(60, changed={5: "five\nand a half", 50: "fifty"})},
    ),
    Step("0003-add-a-test.patch", {"tests/test_b.py": b"def test(): pass\n"}),
    Step("0004-odd-bytes.patch", {"latin1.txt": b"caf\xe9s\n\x85\x0c\r\x1c\nEND"}),
    Step("0005-mode-and-delete.patch", {"run.sh": ("100755", b"#!/bin/sh\n"), "crlf.txt": None}),
]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BASE)


def final_tree(lab: Lab, steps: list[Step]) -> str:
    tree = lab.base
    for step in steps:
        tree = lab.tree(tree, step.changes)
    return tree


def test_a_series_gives_the_tree_that_it_was_made_from(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    applied = apply_series(lab.git, lab.base, series)
    assert applied.tree == final_tree(lab, STEPS)
    assert [patch.verdict for patch in applied.patches] == ["clean"] * 5


@pytest.mark.parametrize("count", range(1, 6))
def test_every_beginning_of_a_series_gives_its_own_tree(
    lab: Lab, tmp_path: Path, count: int
) -> None:
    """The first three are applied at once, the longer ones (a mode, a deletion) one by one."""
    series = lab.series(tmp_path / TAG, STEPS[:count])
    assert apply_series(lab.git, lab.base, series).tree == final_tree(lab, STEPS[:count])


def test_an_exact_series_is_applied_at_once(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = lab.series(tmp_path / TAG, STEPS[:4])
    expected = final_tree(lab, STEPS[:4])
    asked: list[str] = []
    run = Git.run

    def counted(self: Git, *args: str, **more: Any) -> Output:
        asked.append(args[0])
        return run(self, *args, **more)

    monkeypatch.setattr(Git, "run", counted)
    assert apply_series(lab.git, lab.base, series).tree == expected
    assert asked == ["cat-file", "read-tree", "apply", "write-tree", "ls-tree"]


def test_the_json_has_the_promised_keys(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS[:1])
    applied = apply_series(lab.git, lab.base, series)
    assert applied.as_dict() == {
        "tag": TAG,
        "base_tree": lab.base,
        "tree": applied.tree,
        "patches": [
            {
                "file": "0001-change-a.patch",
                "subject": "change a",
                "topic": "eagle3-interface",
                "verdict": "clean",
            }
        ],
    }
    assert unpatched(TAG, "sdist", lab.base).as_dict() == {
        "tag": TAG,
        "base_tree": lab.base,
        "tree": lab.base,
        "patches": [],
    }


def test_only_objects_are_added(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)

    def state() -> list[str]:
        files = (path for path in lab.git.git_dir.rglob("*") if path.is_file())
        return sorted(str(path) for path in files if "objects" not in path.parts)

    before = state()
    apply_series(lab.git, lab.base, series)
    assert state() == before


def test_a_hostile_configuration_changes_nothing(
    lab: Lab, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    quiet = apply_series(lab.git, lab.base, series)
    request.getfixturevalue("hostile_git_config")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert apply_series(lab.git, lab.base, Series.read(tmp_path / TAG, TAG)) == quiet


def moved(lines: int) -> bytes:
    return b"# new\n" * lines + numbered(60)


def verdict_and_gits_word(lab: Lab, series: Series, base: str, folder: Path) -> tuple[str, bool]:
    """Our verdict, and whether git itself, asked in English, reports an offset."""
    applied = apply_series(lab.git, base, series)
    folder.mkdir()
    env = ("--git-dir", str(lab.git.git_dir), "--work-tree", str(folder))
    plain_git(*env, "read-tree", base, folder=folder)
    (folder / "p").write_bytes(series.patches[0].raw)
    said = plain_git(*env, "apply", "--cached", "-v", "p", folder=folder, both=True)
    return applied.patches[0].verdict, b"offset" in said


@pytest.mark.parametrize(
    "content",
    [
        numbered(60),
        moved(1),
        moved(7),
        numbered(60) + b"more\n",
        numbered(30) + b"between\n" + numbered(60)[len(numbered(30)) :],
        numbered(60, changed={1: "uno"}),
    ],
)
def test_the_verdict_is_what_git_saw(lab: Lab, tmp_path: Path, content: bytes) -> None:
    series = lab.series(tmp_path / TAG, STEPS[:1])
    base = lab.tree(lab.base, {"vllm/a.py": content})
    verdict, offset = verdict_and_gits_word(lab, series, base, tmp_path / "work")
    assert verdict == ("offset" if offset else "clean")


def test_a_hunk_at_the_end_that_finds_its_lines_twice_is_an_offset(
    lab: Lab, tmp_path: Path
) -> None:
    # git tries the end of the file first for a hunk without lines behind it.
    series = lab.series(
        tmp_path / TAG, [Step("0001-end.patch", {"vllm/b.py": numbered(20) + b"added\n"})]
    )
    tail = b"".join(split_lines(numbered(20))[-3:])
    base = lab.tree(lab.base, {"vllm/b.py": numbered(20) + b"x\n" + tail})
    applied = apply_series(lab.git, base, series)
    assert applied.patches[0].verdict == "offset"
    assert (
        lab.git.read_blobs([f"{applied.tree}:vllm/b.py"]).popitem()[1].endswith(tail + b"added\n")
    )


def conflict_of(lab: Lab, folder: Path, changes: dict[str, bytes | None]) -> PatchConflictError:
    series = lab.series(folder, STEPS)
    base = lab.tree(lab.base, changes)
    with pytest.raises(PatchConflictError) as caught:
        apply_series(lab.git, base, series)
    return caught.value


def test_a_conflict_says_patch_hunk_and_what_stands_there(lab: Lab, tmp_path: Path) -> None:
    now = b"# new\n" + numbered(60, changed={50: "somebody else's"})
    error = conflict_of(lab, tmp_path / TAG, {"vllm/a.py": now})
    assert error.exit_code == 3
    conflict = error.conflict
    assert conflict.file == "0001-change-a.patch"
    (misfit,) = conflict.misfits
    assert (misfit.path, misfit.hunk, misfit.reason) == ("vllm/a.py", 2, "lines-differ")
    assert misfit.header.startswith("@@ -47,7 +47,7 @@")
    assert misfit.line == 48
    assert misfit.wanted[3] == "line 50"
    assert misfit.standing == tuple(now.decode().split("\n")[47:54])
    assert misfit.standing[3] == "somebody else's"
    raw = (tmp_path / TAG / conflict.file).read_bytes().split(b"\n")
    assert raw[misfit.patch_line - 1].startswith(b"@@ -47,7")
    assert "0001-change-a.patch does not fit v9.9.9" in error.message
    assert "hunk 2 of vllm/a.py (@@ -47,7 +47,7 @@" in error.message
    assert error.message.endswith("do not stand at vllm/a.py:48")
    assert f"0001-change-a.patch:{misfit.patch_line}" in error.hint
    assert [patch.verdict for patch in conflict.patches] == ["conflict", *["not-tried"] * 4]
    assert conflict.not_tried == tuple(step.file for step in STEPS[1:])


def test_a_later_conflict_keeps_the_verdicts_before_it(lab: Lab, tmp_path: Path) -> None:
    error = conflict_of(lab, tmp_path / TAG, {"run.sh": None})
    assert [patch.verdict for patch in error.conflict.patches] == [*["clean"] * 4, "conflict"]
    assert error.conflict.misfits[0].reason == "missing-file"
    assert error.message.endswith("it changes run.sh, which is not there")


@pytest.mark.parametrize(
    ("after", "reason", "said"),
    [
        (
            {"tests/test_b.py/x": b"x\n"},
            "folder-exists",
            "it makes tests/test_b.py, and a folder of this name is there",
        ),
        (
            {"tests": b"x\n", "tests/test_a.py": None},
            "file-above",
            "it makes tests/test_b.py, and tests is a file there, no folder",
        ),
    ],
)
def test_a_folder_in_the_way_and_a_file_in_the_way_of_one(
    lab: Lab, tmp_path: Path, after: dict[str, bytes | None], reason: str, said: str
) -> None:
    error = conflict_of(lab, tmp_path / TAG, after)
    (misfit,) = error.conflict.misfits
    assert (misfit.reason, misfit.place) == (reason, "tests/test_b.py")
    assert error.exit_code == 3
    assert error.message == f"0003-add-a-test.patch does not fit {TAG}: {said}"


def test_a_file_in_the_way_is_named(lab: Lab, tmp_path: Path) -> None:
    error = conflict_of(lab, tmp_path / TAG, {"tests/test_b.py": b"taken\nmore\n"})
    (misfit,) = error.conflict.misfits
    assert (misfit.reason, misfit.place, misfit.standing) == (
        "file-exists",
        "tests/test_b.py:1",
        ("taken",),
    )
    assert error.message.endswith("it makes tests/test_b.py, which is already there")


def test_a_refusal_that_is_not_about_lines_shows_gits_word(lab: Lab, tmp_path: Path) -> None:
    # The file that is deleted has a line more than the patch knows.
    error = conflict_of(lab, tmp_path / TAG, {"crlf.txt": b"one\r\ntwo\r\nthree\r\n"})
    assert error.conflict.misfits[0].reason == "refused"
    assert "git refuses its change of crlf.txt (error: " in error.message


def test_a_disk_that_refuses_is_no_conflict(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS[:1])
    raw = series.patches[0].raw.replace(b"+fifty", b"+a line that is in no object yet")
    write_series(tmp_path / TAG, {STEPS[0].file: raw})
    for number in range(256):  # no folder for a new object can be made, not even by root
        place = lab.git.git_dir / "objects" / f"{number:02x}"
        if not place.exists():
            place.write_text("")
    with pytest.raises(HostError, match="unable to create"):
        apply_series(lab.git, lab.base, Series.read(tmp_path / TAG, TAG))


def test_every_bad_hunk_is_listed(lab: Lab, tmp_path: Path) -> None:
    now = numbered(60, changed={5: "x", 50: "y"})
    error = conflict_of(lab, tmp_path / TAG, {"vllm/a.py": now})
    assert [misfit.hunk for misfit in error.conflict.misfits] == [1, 2]
    entry = error.conflict.as_dict()
    assert entry["file"] == "0001-change-a.patch"
    assert isinstance(entry["misfits"], list)
    assert entry["misfits"][0]["standing"][3] == "x"


def test_a_wheel_has_no_tests_and_their_patches_are_set_aside_by_name(
    lab: Lab, tmp_path: Path
) -> None:
    steps = [STEPS[0], STEPS[2]]
    series = lab.series(tmp_path / TAG, steps)
    assert [is_set_aside(patch) for patch in series.patches] == [False, True]
    base = lab.tree(None, {"vllm/a.py": numbered(60)})
    applied = apply_series(lab.git, base, series, kind="wheel")
    assert [patch.verdict for patch in applied.patches] == ["clean", "set-aside"]
    assert [patch.file for patch in applied.patches] == [step.file for step in steps]
    assert list(lab.files(applied.tree)) == ["vllm/a.py"]
    assert "tests/test_b.py" in lab.files(apply_series(lab.git, base, series).tree)


def test_a_patch_of_both_is_not_set_aside(lab: Lab, tmp_path: Path) -> None:
    changes = {"vllm/b.py": b"new\n", "tests/test_a.py": b"new\n"}
    series = lab.series(tmp_path / TAG, [Step("0001-both.patch", changes)])
    base = lab.tree(None, {"vllm/b.py": numbered(20)})
    with pytest.raises(PatchConflictError, match=r"changes tests/test_a\.py, which is not there"):
        apply_series(lab.git, base, series, kind="wheel")


def test_fuzz_and_three_way_are_never_used(lab: Lab, tmp_path: Path) -> None:
    # GNU patch would apply this with fuzz 1; git am -3 would merge it.
    now = numbered(60, changed={2: "another first context line"})
    error = conflict_of(lab, tmp_path / TAG, {"vllm/a.py": now})
    assert error.conflict.misfits[0].hunk == 1


def hunk(old: int, new: int, body: list[tuple[str, bytes]]) -> Hunk:
    before = sum(sign != "+" for sign, _ in body)
    after = sum(sign != "-" for sign, _ in body)
    return Hunk(old, before, new, after, "", 1, tuple(body))


def change(*hunks: Hunk) -> FileChange:
    return FileChange("modify", "f", "f", "", "", "", "", False, 1, hunks)


def test_placing_is_exact() -> None:
    one = hunk(2, 2, [(" ", b"b\n"), ("-", b"c\n"), ("+", b"C\n")])
    assert applied_in_place(b"a\nb\nc\n", change(one)) == b"a\nb\nC\n"
    assert applied_in_place(b"b\nc\n", change(one)) is None
    assert applied_in_place(b"", change(one)) is None
    far = hunk(90, 90, [("+", b"C\n")])
    assert applied_in_place(b"a\n", change(far)) is None
    emptied = hunk(1, 0, [("-", b"a\n")])
    assert applied_in_place(b"a\n", change(emptied)) == b""


def test_only_whole_lines_count() -> None:
    one = change(hunk(1, 1, [("-", b"b\n")]))
    assert not misfits(b"a\nb\n", one)
    assert misfits(b"ab\n", one)
    assert not misfits(b"ab\nb\n", one)
    last = change(hunk(1, 1, [("-", b"b")]))
    assert not misfits(b"a\nb", last)
    assert misfits(b"b\nc", last)


def test_the_most_alike_place_is_shown_even_far_away() -> None:
    wanted = [(" ", b"one\n"), ("-", b"two\n"), (" ", b"three\n"), (" ", b"four\n")]
    elsewhere = [b"one\n", b"TWO\n", b"three\n", b"four\n"]
    impostor = [b"one\n", b"x\n"]
    now = b"".join([*impostor, *[b"y\n"] * 30, *elsewhere, *[b"z\n"] * 9])
    (found,) = misfits(now, change(hunk(1, 1, wanted)))
    assert (found.line, found.standing) == (33, ("one", "TWO", "three", "four"))
    twice = b"".join([*[b"y\n"] * 3, *elsewhere, *[b"y\n"] * 30, *elsewhere])
    (found,) = misfits(twice, change(hunk(36, 36, wanted)))
    assert found.line == 38


def test_a_file_that_turns_into_a_link_is_blamed_once(lab: Lab, tmp_path: Path) -> None:
    steps = [Step("0001-link.patch", {"run.sh": ("120000", b"vllm/a.py")})]
    series = lab.series(tmp_path / TAG, steps)
    assert [one.kind for one in series.patches[0].files] == ["delete", "add"]
    applied = apply_series(lab.git, lab.base, series)
    assert (applied.tree, applied.patches[0].verdict) == (final_tree(lab, steps), "clean")
    now = lab.tree(lab.base, {"run.sh": b"#!/bin/bash\n"})
    with pytest.raises(PatchConflictError) as caught:
        apply_series(lab.git, now, series)
    assert [misfit.reason for misfit in caught.value.conflict.misfits] == ["lines-differ"]


def test_a_big_hostile_file_is_explained_quickly() -> None:
    many = b"x\n" * 40_000
    wanted = [(" ", b"x\n")] * 3_000 + [("-", b"y\n")]
    started = time.perf_counter()
    (found,) = misfits(many, change(hunk(1, 1, wanted)))
    assert time.perf_counter() - started < 2
    assert found.reason == "lines-differ"


def test_an_empty_file_has_nothing_to_show(lab: Lab) -> None:
    (found,) = misfits(b"", change(hunk(1, 1, [("-", b"a\n")])))
    assert (found.standing, found.line, found.place) == ((), 0, "f")


def test_fifteen_patches_on_four_thousand_files_are_quick(tmp_path: Path) -> None:
    files = {f"vllm/pkg{n % 60}/sub{n % 7}/mod{n}.py": b"%d\n" % n for n in range(3985)}
    lab = quick_lab(tmp_path, files)
    steps = [
        Step(f"{n:04}-change.patch", {f"vllm/big{n}.py": numbered(400, changed={200: f"x{n}"})})
        for n in range(1, 16)
    ]
    base = lab.tree(lab.base, {f"vllm/big{n}.py": numbered(400) for n in range(1, 16)})
    commit, raws = lab.commit_tree(base, None, "base"), {}
    tree = base
    for step in steps:
        tree = lab.tree(tree, step.changes)
        commit = lab.commit_tree(tree, commit, step.message)
        raws[step.file] = lab.patch(commit)
    write_series(tmp_path / TAG, raws)
    series = Series.read(tmp_path / TAG, TAG)
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        applied = apply_series(lab.git, base, series)
        seconds.append(time.perf_counter() - started)
    assert applied.tree == tree
    assert min(seconds) < 1, seconds


def quick_lab(folder: Path, files: dict[str, bytes]) -> Lab:
    """A lab with many files, made in one process."""
    lab = Lab(folder, {})
    stream = b"commit refs/heads/many\ncommitter x <x> 0 +0000\ndata 0\n"
    for path, data in files.items():
        stream += b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data)
    lab.git.run("fast-import", "--quiet", stdin=stream)
    lab.base = lab.git.line("rev-parse", "refs/heads/many^{tree}")
    return lab
