"""`vpatch refresh`: one patch written anew, and nothing else of it changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kill_lab import contents, killed_at, moments, put_back, spread
from project_lab import STEPS, Project, vpatch
from series_lab import TAG, Step, numbered
from vpatch.errors import UsageError
from vpatch.findings import FindingsError
from vpatch.patches.apply import PatchConflictError
from vpatch.patches.check import check_series
from vpatch.patches.swap import read_folder
from vpatch.report import Report
from vpatch.verbs import refresh as verb

FIRST, FOURTH, LAST = "0001-a-say-five.patch", "0004-a-say-fifty.patch", "0005-c-say-one.patch"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def refresh(project: Project, name: str, *, check: bool = False) -> Report:
    return verb.run(TAG, project.repo, project.upstream, name, check=check)


def by_hand(project: Project, name: str, old: bytes, new: bytes) -> None:
    path = project.folder / name
    raw = path.read_bytes()
    assert raw.count(old) == 1
    path.write_bytes(raw.replace(old, new))


def changed(report: Report) -> list[str]:
    return [row["file"] for row in report.data["patches"] if row["change"] != "kept"]


def test_an_exact_patch_stays_byte_for_byte(project: Project) -> None:
    before = read_folder(project.folder)
    for name in (*project.names, "1", LAST[:4]):
        report = refresh(project, name)
        assert (changed(report), report.data["changed"], report.exit_code) == ([], False, 0)
    assert read_folder(project.folder) == before
    project.check()


def test_stale_blob_ids_and_section_names_are_renewed(project: Project) -> None:
    good = contents(project.folder)
    path = project.folder / FOURTH
    stale = re.sub(rb"(?m)^index [0-9a-f]{40}", b"index " + b"1" * 40, path.read_bytes(), count=1)
    path.write_bytes(re.sub(rb"(?m)^(@@ -\d.* @@).*$", rb"\1 def gone", stale))
    assert refresh(project, LAST, check=True).exit_code == 1  # the pin names other bytes
    assert changed(refresh(project, FOURTH)) == [FOURTH]
    after = contents(project.folder)
    assert after[FOURTH] == good[FOURTH]
    assert project.pin.revision == 1  # the bytes are those of revision 1 again
    project.check()


def test_a_hand_edited_patch_and_those_that_follow(project: Project) -> None:
    """A line more in the first patch: the fourth, in the same file, now fits at an offset."""
    before = contents(project.folder)
    by_hand(project, FIRST, b"@@ -2,7 +2,7 @@", b"@@ -2,7 +2,8 @@")
    by_hand(project, FIRST, b"+five\n", b"+five\n+and a half\n")
    report = refresh(project, FIRST, check=True)
    assert report.exit_code == 1
    assert changed(report) == [FIRST, FOURTH]
    verdicts = {row["file"]: row["verdict"] for row in report.data["patches"]}
    assert verdicts[FIRST] == "clean"
    assert verdicts[FOURTH] == "offset"
    report = refresh(project, FIRST)
    assert changed(report) == [FIRST, FOURTH]
    after = contents(project.folder)
    for name in (FIRST, FOURTH):
        old, new = (each[name].partition(b"\ndiff --git ") for each in (before, after))
        assert old[0] == new[0]
        assert old[2] != new[2]
    assert project.pin.revision == 2
    project.check()


def test_those_behind_it_name_the_blobs_that_are_there(project: Project) -> None:
    before = contents(project.folder)
    by_hand(project, FIRST, b"+five\n", b"+FIVE\n")
    report = refresh(project, FIRST)
    assert changed(report) == [FIRST, FOURTH]
    assert {row["verdict"] for row in report.data["patches"]} == {"clean"}
    after = contents(project.folder)
    lines = [re.findall(rb"(?m)^index .*$", each[FOURTH]) for each in (before, after)]
    assert lines[0][0] != lines[1][0]
    project.check()
    assert not check_series(project.folder, TAG)


def test_all_that_name_other_blobs_follow_and_no_others(project: Project) -> None:
    """Whatever id is wrong: the one that a file starts from, or the one that it ends with."""
    good = contents(project.folder)
    second, third = project.names[1:3]
    for name, pattern in (
        (third, rb"(?m)^(index )[0-9a-f]{7}"),
        (LAST, rb"(?m)^(index .*\.\.).{7}"),
    ):
        path = project.folder / name
        raw = path.read_bytes()
        path.write_bytes(re.sub(pattern, rb"\g<1>1111111", raw, count=1))
        assert path.read_bytes() != raw
    assert changed(refresh(project, FOURTH, check=True)) == [LAST]
    assert changed(refresh(project, second, check=True)) == [third, LAST]
    assert changed(refresh(project, FIRST)) == [third, LAST]
    assert contents(project.folder) == good
    project.check()


def test_only_the_named_patch_and_what_is_behind_it(project: Project) -> None:
    """An offset in front of it is told: it has to be refreshed itself."""
    by_hand(project, FIRST, b"@@ -2,7 +2,7 @@", b"@@ -4,7 +4,7 @@")
    with pytest.raises(FindingsError, match=f"{FIRST} fits .* only at an offset") as caught:
        refresh(project, LAST)
    assert caught.value.code == "offset"
    assert changed(refresh(project, FIRST)) == [FIRST]
    project.check()
    assert project.pin.revision == 1  # the bytes that it names again


def test_a_rename_a_mode_and_a_new_file(tmp_path: Path) -> None:
    steps = [
        *STEPS,
        Step(
            "0006-move.patch",
            {"vllm/b.py": None, "vllm/d.py": numbered(40, changed={10: "ten", 12: "x"})},
        ),
        Step("0007-run.patch", {"setup.py": ("100755", b"setup()\n")}),
        Step("0008-odd.patch", {"vllm/odd.py": b"caf\xe9\x85\x0c\nno end"}),
    ]
    project = Project(tmp_path, steps, kinds=("sdist",))
    for name in project.names:
        assert changed(refresh(project, name)) == []


def test_what_does_not_fit_is_a_conflict(project: Project) -> None:
    by_hand(project, FIRST, b"-line 5\n", b"-line V\n")
    before = read_folder(project.folder)
    with pytest.raises(PatchConflictError, match=FIRST):
        refresh(project, LAST)
    assert read_folder(project.folder) == before


def test_names_and_pins_that_are_not_there(project: Project) -> None:
    for name in ("0009-none.patch", "", "../pin.toml", "say"):
        with pytest.raises(UsageError) as caught:
            refresh(project, name)
        assert caught.value.code == "no-such-patch"
    (project.folder / "pin.toml").unlink()
    with pytest.raises(UsageError) as caught:
        refresh(project, FIRST)
    assert caught.value.code == "no-pin"


def test_the_command(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    by_hand(project, FIRST, b"@@ -2,7 +2,7 @@", b"@@ -4,7 +4,7 @@")
    arguments = ("refresh", TAG, FIRST, "--repo", str(project.repo), "--json")
    assert vpatch(*arguments, "--check") == 1
    answer = json.loads(capfd.readouterr().out)
    assert list(answer) == ["schema", "ok", "tag", "changed", "written", "revision", "patches"]
    assert answer["patches"][0]["verdict"] == "offset"
    assert vpatch(*arguments) == 0
    project.check()


@pytest.mark.nightly
@pytest.mark.slow
def test_kill_9_while_refreshing(project: Project) -> None:
    by_hand(project, FIRST, b"+five\n", b"+FIVE\n")
    old = contents(project.folder)
    refresh(project, FIRST)
    new = contents(project.folder)
    assert new != old

    def work_on() -> None:
        if vpatch("refresh", TAG, FIRST, "--repo", str(project.repo)):
            raise SystemExit(3)

    def restore() -> None:
        put_back(project.folder, old)

    seen = {"old": 0, "new": 0}
    for moment in spread(moments(work_on, restore), 30):
        restore()
        assert killed_at(moment, work_on)
        held = contents(project.folder)
        assert held in (old, new)
        seen["old" if held == old else "new"] += 1
    assert seen["old"] > 10
    assert seen["new"] > 1
    restore()
    work_on()
    project.check()
