"""vpatch import: mails and branches become patches, and the series stays whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kill_lab import contents, killed_at, moments, put_back, spread
from project_lab import STEPS, Project, committed, git, objects, vpatch, write
from series_lab import TAG, Content, Step, numbered, plain_git
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.series import Series, lint

PATCHES = Path(__file__).parent.parent / "patches"

MAIL = (
    "format-patch", "--stdout", "--full-index", "--binary", "--no-signature", "--no-stat",
    "--zero-commit",
)  # fmt: skip
TOPIC = ("--topic", "eagle3-interface")
SIGN = ("--sign-off", "A Tester <tester@example.com>")
A = "vllm/a.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    monkeypatch.chdir(made.repo)
    return made


@pytest.fixture
def work(project: Project) -> Path:
    """The series as commits, a branch `colleague` at its tip."""
    folder = project.worktree()
    git(folder, "checkout", "-q", "-b", "colleague")
    return folder


def mails(work: Path, since: str = f"vpatch/{TAG}", *options: str) -> bytes:
    return plain_git(*MAIL, *options, f"{since}..HEAD", folder=work)


def line(number: int, text: str, start: Mapping[int, str] | None = None) -> bytes:
    return numbered(60, changed={5: "five", 50: "fifty", **(start or {}), number: text})


def imported(project: Project, source: bytes | str, *options: str) -> int:
    if isinstance(source, bytes):
        (project.repo / "box").write_bytes(source)
        source = "box"
    return vpatch("import", TAG, source, *TOPIC, *options)


def error(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_a_mail_becomes_a_patch(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = project.raws()
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n\nBecause.\n")
    tree = git(work, "rev-parse", "HEAD^{tree}")
    assert imported(project, mails(work), *SIGN) == 0
    project.check()
    assert project.tree() == tree
    assert project.names[-1] == "0006-a-say-thirty.patch"
    assert project.raws().items() > before.items()
    patch = project.series.patches[-1]
    assert patch.body == (
        "Because.\n\nTopic: eagle3-interface\nUpstream-Status: Pending\n"
        "Signed-off-by: A Tester <tester@example.com>\n"
    )
    assert project.pin.revision == 2
    out = capsys.readouterr().out
    assert "clean" in out
    assert "mail 1 of box" in out
    assert "revision 1 -> 2" in out


def test_it_stands_behind_its_topic_and_the_later_ones_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = STEPS[0].trailers.replace("eagle3-interface", "other")
    steps = [*STEPS[:3], *(Step(s.file, s.changes, trailers=other) for s in STEPS[3:])]
    project = Project(tmp_path, steps)
    monkeypatch.chdir(project.repo)
    before = project.raws()
    work = project.worktree()
    committed(work, {A: line(20, "twenty\nand more")}, "a: say twenty\n")
    assert imported(project, mails(work, "HEAD~1"), *SIGN) == 0
    project.check()
    assert project.names == [
        *(step.file for step in steps[:3]),
        "0004-a-say-twenty.patch",
        "0005-a-say-fifty.patch",
        "0006-c-say-one.patch",
    ]
    after = project.raws()
    # One line more above its hunk: the patch is written anew. The others keep their bytes.
    changed = {subject for subject in before if after[subject] != before[subject]}
    assert changed == {"a say fifty"}
    assert b"@@ -47,7 +47,7 @@" in before["a say fifty"]
    assert b"@@ -47,7 +47,7 @@" not in after["a say fifty"]
    assert project.tree() == git(work, "rev-parse", "HEAD^{tree}")


def test_after_a_patch(project: Project, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed(work, {"vllm/z.py": b"z\n"}, "z: say z\n")
    before = project.raws()
    assert imported(project, mails(work), *SIGN, "--after", "1", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert project.names[:3] == [
        STEPS[0].file,
        "0002-z-say-z.patch",
        "0003-tests-five-is-said.patch",
    ]
    assert project.raws().items() > before.items()
    project.check()
    assert answer["schema"] == "vpatch/import/1"
    assert list(answer)[2:] == [
        "tag", "changed", "revision", "imported", "left_out", "patches", "findings",
    ]  # fmt: skip
    assert answer["imported"] == [
        {"from": "mail 1 of box", "subject": "z: say z", "verdict": "clean", "notes": []}
    ]
    changes = [row["change"] for row in answer["patches"]]
    assert changes == ["kept", "added", *["renumbered"] * 4]


def on_the_release(project: Project, changes: Mapping[str, bytes], message: str) -> bytes:
    """A colleague who has never heard of the series."""
    folder = project.repo.parent / "release"
    if not folder.exists():
        project.worktree(folder)
        git(folder, "checkout", "-q", f"vpatch/base/{TAG}")
    committed(folder, changes, message)
    return plain_git(*MAIL, f"vpatch/base/{TAG}..HEAD", folder=folder)


def test_three_way_where_the_lines_around_differ(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = on_the_release(project, {A: numbered(60, changed={7: "seven"})}, "a: say seven\n")
    assert imported(project, mail, *SIGN) == 0
    assert "three-way" in capsys.readouterr().out
    project.check()
    with_it = project.lab.git.read_blobs([f"{project.tree()}:{A}"]).popitem()[1]
    assert with_it == line(7, "seven")


def test_a_conflict_names_patch_file_and_hunk_and_nothing_is_written(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(project.folder)
    mail = on_the_release(project, {A: numbered(60, changed={5: "FIVE"})}, "a: say FIVE\n")
    assert imported(project, mail, *SIGN) == 3
    told = error(capsys)
    assert "mail 1 of box ('a: say FIVE') does not fit behind 0005-c-say-one.patch" in told
    assert f"hunk 1 of {A}" in told
    assert "line 5" in told  # what it asks for, and what stands there
    assert "| five" in told
    assert contents(project.folder) == before
    (project.repo / "box").write_bytes(mail)
    assert vpatch("import", TAG, "box", "--topic", "x", "--after", STEPS[2].file, "--json") == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["code"] == "conflict"
    assert answer["conflict"]["misfits"][0]["path"] == A
    assert contents(project.folder) == before


def test_a_conflict_names_only_what_a_merge_cannot_take(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        A: numbered(60, changed={7: "seven"}),  # its context differs, and a merge takes it
        "vllm/b.py": numbered(40, changed={10: "TEN"}),
    }
    mail = on_the_release(project, changes, "a, b: say more\n")
    assert imported(project, mail, *SIGN, "--json") == 3
    answer = json.loads(capsys.readouterr().out)
    assert [misfit["path"] for misfit in answer["conflict"]["misfits"]] == ["vllm/b.py"]
    assert "hunk 1 of vllm/b.py" in answer["error"]["message"]


def test_a_later_patch_that_does_not_fit_any_more(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(work, "checkout", "-q", f"vpatch/{TAG}~2")  # behind 0003
    committed(work, {A: numbered(60, changed={5: "five", 50: "FIFTY"})}, "a: say FIFTY\n")
    before = contents(project.folder)
    mail = plain_git(*MAIL, "-1", folder=work)
    assert imported(project, mail, *SIGN, "--after", STEPS[2].file) == 3
    told = error(capsys)
    assert "0004-a-say-fifty.patch does not fit behind mail 1 of box" in told
    assert f"hunk 1 of {A}" in told
    assert contents(project.folder) == before


def test_a_later_patch_that_has_nothing_left_to_do_is_not_lost_in_silence(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(work, "checkout", "-q", f"vpatch/{TAG}~3")
    committed(work, {"vllm/b.py": numbered(40, changed={10: "ten"})}, "b: ten too\n")
    mail = plain_git(*MAIL, "-1", folder=work)
    assert imported(project, mail, *SIGN, "--after", STEPS[1].file) == 1
    assert "0003-b-say-ten.patch: the new patches do all that this one does" in error(capsys)


PAD = "".join(f"    step{n}()\n" for n in range(4))
TWINS = "".join(f"def f{n}():\n{PAD}    b = 2\n{PAD}\n\n" for n in (1, 2)).encode()


def test_24_a_hunk_does_not_land_in_the_function_that_looks_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """git apply takes it, at an offset, and changes f2: f1 is gone."""
    second = TWINS[TWINS.index(b"def f2") :]
    base = {"vllm/t.py": TWINS, "vllm/a.py": numbered(9)}
    project = Project(tmp_path, [Step("0001-f1-goes.patch", {"vllm/t.py": second})], base)
    monkeypatch.chdir(project.repo)
    mail = on_the_release(
        project, {"vllm/t.py": TWINS.replace(b"b = 2", b"b = 22", 1)}, "f1: more b\n"
    )
    work = project.worktree()
    plain_git("apply", folder=work, stdin=mail[mail.index(b"diff --git") :])
    assert b"b = 22" in (work / "vllm/t.py").read_bytes()
    before = contents(project.folder)
    assert imported(project, mail, *SIGN) == 3
    assert "vllm/t.py" in error(capsys)
    assert contents(project.folder) == before


def test_23_an_appended_line_is_not_appended_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """git apply takes it a second time: the lines that it asks for stand there."""
    base = {"vllm/r.py": b"x\n" * 9}
    project = Project(tmp_path, [Step("0001-r-one-more.patch", {"vllm/r.py": b"x\n" * 10})], base)
    monkeypatch.chdir(project.repo)
    mail = on_the_release(project, {"vllm/r.py": b"x\n" * 10}, "r: another one\n")
    work = project.worktree()
    plain_git("apply", folder=work, stdin=mail[mail.index(b"diff --git") :])
    assert (work / "vllm/r.py").read_bytes() == b"x\n" * 11
    assert imported(project, mail, *SIGN) == 1
    assert "changes nothing behind 0001-r-one-more.patch" in error(capsys)


def test_the_series_as_a_mailbox_is_the_series(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Import, export, import: a fixed point, to the byte."""
    wanted = contents(project.folder)
    box = b"".join(patch.raw for patch in project.series.patches)
    # Again: all of it is there.
    assert imported(project, box) == 0
    assert "the series has it, as 0001-a-say-five.patch" in capsys.readouterr().out
    assert contents(project.folder) == wanted
    # Into an empty series of the same release.
    for path in project.folder.glob("*.patch"):
        path.unlink()
    (project.folder / "series").write_bytes(b"")
    project.pin_now()
    assert imported(project, box) == 0
    made = contents(project.folder)
    assert {name: made[name] for name in made if name != "pin.toml"} == {
        name: wanted[name] for name in wanted if name != "pin.toml"
    }
    # And by the branch, which export writes as the same bytes.
    work = project.worktree()
    assert vpatch("export", TAG, "--from", str(work), "--check") == 0
    assert vpatch("import", TAG, str(work), *TOPIC) == 0
    assert contents(project.folder) == made


KINDS: dict[str, dict[str, Content]] = {
    "link added": {"vllm/l": ("120000", b"a.py")},
    "file to link": {"vllm/b.py": ("120000", b"a.py")},
    "emptied": {"vllm/c.py": b""},
    "empty added": {"vllm/e.py": b"", "vllm/x.sh": ("100755", b"")},
    "deleted": {"vllm/c.py": None},
    "mode": {"vllm/c.py": ("100755", numbered(40, changed={1: "one"}))},
    "renamed": {"vllm/c.py": None, "vllm/d.py": numbered(40, changed={1: "one", 9: "nine"})},
    "no newline": {"vllm/z.py": b"no\nend", A: line(60, "end").rstrip(b"\n")},
    "odd bytes": {"vllm/z.py": b"caf\xe9\n\x0c\n\x85\n\xff", "über/a b": b"x\n", "caf\udce9": b""},
    "mail-like": {"vllm/z.py": b"From " + b"0" * 40 + b" Mon\n-- \n---\ndiff --git a/x b/x\n"},
    "lone CRs": {"vllm/z.py": b"a\rb\n"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["mail", "branch"])
def test_19_changes_of_every_kind_come_through(
    project: Project, work: Path, kind: str, way: str
) -> None:
    lab = project.lab
    tree = lab.tree(project.tree(), KINDS[kind])
    # The worktree borrows what the lab has.
    (work / ".git/objects/info/alternates").write_text(f"{lab.git.git_dir}/objects\n")
    tip = git(work, "rev-parse", "HEAD")
    (lab.git.git_dir / "objects/info").mkdir(exist_ok=True)
    made = plain_git("commit-tree", tree, "-p", tip, "-m", f"{kind} it is", folder=work)
    git(work, "update-ref", "HEAD", made.decode().strip())
    if way == "mail":
        assert imported(project, mails(work), *SIGN) == 0
    else:
        git(work, "read-tree", "HEAD")
        (project.repo / "box").unlink(missing_ok=True)
        options = (*SIGN, "--repo", str(project.repo), "--base", "HEAD~1")
        assert in_folder(work, lambda: imported(project, "colleague", *options)) == 0
    project.check()
    assert project.tree() == tree


def in_folder(folder: Path, work: Callable[[], int]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return work()


REFUSED: dict[str, tuple[dict[str, Content], str]] = {
    "binary": ({"vllm/b.bin": bytes(range(256))}, "binary"),
    "CR LF": ({"vllm/z.py": b"a\r\nb\n"}, "crlf"),
    "folder for a file": ({A: None, f"{A}/x": b"x\n"}, "file-and-folder"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_11_what_three_tools_cannot_take_is_refused(
    project: Project, work: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, code = REFUSED[kind]
    lab = project.lab
    (work / ".git/objects/info/alternates").write_text(f"{lab.git.git_dir}/objects\n")
    tree = lab.tree(project.tree(), changes)
    made = plain_git("commit-tree", tree, "-p", "HEAD", "-m", kind, folder=work)
    git(work, "update-ref", "HEAD", made.decode().strip())
    before = contents(project.folder)
    assert imported(project, mails(work), *SIGN, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert code in {finding["code"] for finding in answer["findings"]}
    assert contents(project.folder) == before


def test_a_backport_is_set_apart_from_its_tests_and_loses_brackets_aloud(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {A: line(30, "thirty"), "tests/test_a.py": numbered(20, changed={9: "9", 15: "15"})}
    committed(work, changes, "[Bugfix][Spec] a: say thirty (#1)\n\nWhy.\n")
    status = "Backport [https://github.com/vllm-project/vllm/pull/1]"
    options = (*SIGN, "--upstream-status", status, "--repo", str(project.repo))
    assert in_folder(work, lambda: imported(project, "colleague", *options)) == 0
    project.check()
    first, second = project.series.patches[-2:]
    assert (first.subject, second.subject) == (
        "a: say thirty (#1)",
        "tests: a: say thirty (#1)",
    )
    assert (first.paths, second.paths) == ((A,), ("tests/test_a.py",))
    assert first.trailer("Upstream-Status") == (status,)
    assert project.tree() == git(work, "rev-parse", "HEAD^{tree}")
    assert "`[Bugfix][Spec]` left the subject" in capsys.readouterr().out


def test_an_author_whose_name_git_cuts(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which punctuation goes depends on git's version: here it goes always, and is told."""
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    mail = mails(work).replace(b"From: A Tester <", b'From: "A. Tester, Jr." <')
    assert imported(project, mail, *SIGN) == 0
    assert project.series.patches[-1].mail.author_name == "A. Tester, Jr"
    assert "the author 'A. Tester, Jr.' is written 'A. Tester, Jr'" in capsys.readouterr().out
    project.check()


def test_a_pin_of_the_wheel_alone_has_no_place_for_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path, kinds=("wheel",))
    monkeypatch.chdir(project.repo)
    assert imported(project, b"From: x\n\n", *SIGN) == 2
    assert "0002-tests-five-is-said.patch has no place" in error(capsys)


def test_without_the_release_and_without_network(
    project: Project, work: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    before = contents(project.folder)
    monkeypatch.setenv("VPATCH_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert imported(project, mails(work), *SIGN) == 4
    assert contents(project.folder) == before


def test_trailers_that_are_there_stay(project: Project, work: Path) -> None:
    message = (
        "a: say thirty\n\nWhy.\n\nCo-authored-by: B <b@example.com>\nTopic: mine\n"
        "Signed-off-by: A Tester <tester@example.com>\n"
    )
    committed(work, {A: line(30, "thirty")}, message)
    assert imported(project, mails(work), "--sign-off", "C <c@example.com>") == 0
    assert project.series.patches[-1].body == (
        "Why.\n\nUpstream-Status: Pending\nCo-authored-by: B <b@example.com>\nTopic: mine\n"
        "Signed-off-by: A Tester <tester@example.com>\nSigned-off-by: C <c@example.com>\n"
    )


def test_a_missing_sign_off_is_the_authors_to_give(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    assert imported(project, mails(work)) == 0
    assert "still to mend: " in (told := capsys.readouterr().out)
    assert "[trailer-signed-off-by]" in told
    assert [finding.code for finding in lint(project.folder)] == ["trailer-signed-off-by"]


def test_21_the_same_bytes_under_hostile_settings(
    project: Project, work: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(work, {A: line(30, "Grüße"), "über.py": b"x\n"}, "a: Grüße " + "lang " * 20 + "\n")
    git(work, "notes", "add", "-m", "note", "HEAD")
    before = contents(project.folder)
    mail = mails(work)
    assert imported(project, mail, *SIGN) == 0
    wanted = contents(project.folder)
    home = request.getfixturevalue("hostile_git_config")
    for settings in (work / ".git/config", project.repo / ".git/config"):
        settings.parent.mkdir(exist_ok=True)
        shutil.copy(home / ".gitconfig", settings)
    (work / ".gitattributes").write_text("* -diff\n")
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/attributes").write_text("* binary\n")
    for name, value in (("DIFF_OPTS", "--unified=0"), ("DIR", "/nowhere"), ("INDEX_FILE", "/no")):
        monkeypatch.setenv(f"GIT_{name}", value)
    for source in (mail, "colleague"):
        for path in project.folder.iterdir():
            path.unlink()
        for name, data in before.items():
            (project.folder / name).write_bytes(data)
        where = project.repo if isinstance(source, bytes) else work
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(where)
            assert imported(project, source, *SIGN, "--repo", str(project.repo)) == 0
        assert contents(project.folder) == wanted


def test_a_branch_by_where_it_left_head(project: Project, work: Path) -> None:
    """A clone of the colleague's, whose base is noted nowhere."""
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    committed(work, {A: line(30, "thirty", {31: "more"})}, "a: say more\n")
    git(work, "update-ref", "-d", f"refs/vpatch/base/{TAG}")
    tree = git(work, "rev-parse", "HEAD^{tree}")
    git(work, "checkout", "-q", f"vpatch/{TAG}")
    options = (*SIGN, "--repo", str(project.repo))
    assert in_folder(work, lambda: imported(project, "colleague", *options)) == 0
    assert project.names[5:] == ["0006-a-say-thirty.patch", "0007-a-say-more.patch"]
    assert project.tree() == tree
    known = objects(work / ".git")
    assert in_folder(work, lambda: imported(project, "colleague", *options)) == 0
    assert objects(work / ".git") == known


def test_a_worktree_brings_what_the_series_lacks(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    assert imported(project, str(work), *SIGN) == 0
    assert capsys.readouterr().out.count("left out: ") == 5
    assert project.names[-1] == "0006-a-say-thirty.patch"
    project.check()
    write(work, {A: b"dirty\n"})
    assert imported(project, str(work), *SIGN) == 1
    assert A in error(capsys)


def unwanted(work: Path, kind: str) -> None:
    if kind == "merge":
        git(work, "checkout", "-q", "-b", "side", "HEAD~1")
        committed(work, {"vllm/s.py": b"s\n"}, "side")
        git(work, "checkout", "-q", "colleague")
        git(work, "merge", "-q", "--no-edit", "side")
    elif kind == "empty":
        git(work, "commit", "-q", "--allow-empty", "-m", "nothing")
    elif kind == "same subject":
        committed(work, {A: line(30, "thirty")}, "a say five")
    else:
        committed(work, {A: line(30, "thirty")}, kind)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("merge", "merge"),
        ("empty", "empty-commit"),
        ("same subject", "same-subject"),
        ("s\n\nWhy.\n---\nMore.\n", "cut-message"),
        ("s\n\nWhy.\ndiff --git a/x b/x\nmore\n", "cut-message"),
        ("s\n\nWhy.\nIndex: x\nmore\n", "cut-message"),
        ("s\n\nFrom: B <b@example.com>\n\nWhy.\n", "in-body-header"),
        ("s\n\nSubject: b\n\nWhy.\n", "in-body-header"),
        ("s\n\nDate: b\n\nWhy.\n", "in-body-header"),
        ("s\n\nWhy\nFrom here\n", "second-mail"),
        ("s\nof two lines\n", "long-subject"),
    ],
)
def test_commits_that_git_am_would_not_make_are_refused(
    project: Project, work: Path, kind: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    unwanted(work, kind)
    before = contents(project.folder)
    options = (*SIGN, "--repo", str(project.repo), "--json", "--base", f"vpatch/{TAG}")
    assert in_folder(work, lambda: imported(project, "colleague", *options)) == 1
    answer = json.loads(capsys.readouterr().out)
    assert code in {finding["code"] for finding in answer["findings"]}
    assert contents(project.folder) == before


def hand_made(work: Path, author: str) -> None:
    """A commit that git itself would not make."""
    write(work, {A: line(30, "thirty")})
    git(work, "add", ".")
    tree, parent = git(work, "write-tree"), git(work, "rev-parse", "HEAD")
    who = (
        f"tree {tree}\nparent {parent}\nauthor {author}\ncommitter A <a@b.c> 1 +0000\n\nhand made\n"
    )
    made = plain_git(
        "hash-object", "-t", "commit", "-w", "--stdin", "--literally",
        folder=work, stdin=who.encode(),
    )  # fmt: skip
    git(work, "reset", "-q", "--hard", made.decode().strip())


@pytest.mark.parametrize(
    "author", ["A <a@b.c> -99999 +0000", " <a@b.c> 1 +0000"], ids=["before 1970", "no name"]
)
def test_an_author_that_git_does_not_take_is_a_finding(
    project: Project, work: Path, author: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_made(work, author)
    before = contents(project.folder)
    options = (*SIGN, "--repo", str(project.repo), "--json", "--base", f"vpatch/{TAG}")
    assert in_folder(work, lambda: imported(project, "colleague", *options)) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["error"]["code"], answer["error"]["hint"] != "") == ("bad-author", True)
    assert answer["findings"][0]["file"].startswith("commit ")
    assert contents(project.folder) == before


@pytest.mark.parametrize("date", ["yesterday", "Thu, 1 Jan 1960 00:00:00 +0000", "@\0"])
def test_a_date_that_git_does_not_take_is_a_finding(
    project: Project, work: Path, date: str, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    box = re.sub(rb"\nDate: .*", f"\nDate: {date}".encode(), mails(work))
    assert imported(project, box, *SIGN, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["code"] in {"bad-author", "no-date"}
    assert answer["findings"][0]["file"] == "mail 1 of box"


def test_the_same_mixed_change_again_is_left_out(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = {A: line(30, "thirty"), "tests/test_a.py": numbered(20, changed={9: "nine", 3: "3"})}
    committed(work, both, "say thirty\n")
    box = mails(work)
    assert imported(project, box, *SIGN) == 0
    held = contents(project.folder)
    assert imported(project, box, *SIGN) == 0
    assert capsys.readouterr().out.count("left out: mail 1 of box") == 2
    assert contents(project.folder) == held


def test_from_a_pipe_that_the_shell_names(project: Project, work: Path, tmp_path: Path) -> None:
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n")
    (tmp_path / "box").write_bytes(mails(work))
    call = f'"{sys.executable}" -m vpatch import {TAG} <(cat "$0") --topic eagle3-interface'
    subprocess.run(["/bin/bash", "-c", call, str(tmp_path / "box")], check=True, cwd=project.repo)
    assert project.names[-1] == "0006-a-say-thirty.patch"


def test_a_closed_standard_input_is_told(project: Project) -> None:
    call = f'"{sys.executable}" -m vpatch import {TAG} - --topic eagle3-interface <&-'
    done = subprocess.run(
        ["/bin/bash", "-c", call], capture_output=True, check=False, cwd=project.repo
    )
    assert done.returncode == 2, done.stderr
    assert b"standard input is closed" in done.stderr


USAGE = [
    (("v9.9.8", "box", *TOPIC), 2, "no-pin"),
    (("seventeen", "box", *TOPIC), 2, "bad-tag"),
    ((TAG, "box"), 2, "usage"),
    ((TAG, "nosuch", *TOPIC), 2, "no-source"),
    ((TAG, "--", "--all"), 2, "usage"),
    ((TAG, "box", "--topic", "EAGLE 3"), 2, "bad-topic"),
    ((TAG, "box", *TOPIC, "--sign-off", "me"), 2, "bad-sign-off"),
    ((TAG, "box", *TOPIC, "--upstream-status", "a\nb"), 2, "bad-status"),
    ((TAG, "box", *TOPIC, "--after", "nosuch.patch"), 2, "no-such-patch"),
    ((TAG, "box", *TOPIC, "--base", "HEAD"), 2, "usage"),
    ((TAG, "box", *TOPIC), 1, "not-a-mailbox"),
    ((TAG, "empty", *TOPIC), 1, "not-a-mailbox"),
    ((TAG, "binary", *TOPIC), 1, "not-a-mailbox"),
]


@pytest.mark.parametrize(("args", "status", "code"), USAGE)
def test_wrong_input_has_its_exit_code(
    project: Project,
    args: tuple[str, ...],
    status: int,
    code: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project.repo / "box").write_bytes(b"no mail at all\n")
    (project.repo / "empty").write_bytes(b"\n")
    (project.repo / "binary").write_bytes(bytes(range(256)) * 9)
    before = contents(project.repo)
    assert vpatch("import", *(("--json", *args) if "--" in args else (*args, "--json"))) == status
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code
    after = contents(project.repo)
    assert set(after) == set(before)
    assert all(after[name] == data for name, data in before.items())


@pytest.mark.nightly
def test_kill_9_while_importing(project: Project, work: Path) -> None:
    committed(work, {A: line(20, "twenty\nand more")}, "a: say twenty\n")
    mail = mails(work)
    old = contents(project.folder)
    options = (*SIGN, "--after", STEPS[0].file)
    assert imported(project, mail, *options) == 0
    new = contents(project.folder)
    assert new != old

    def work_on() -> None:
        if imported(project, "box", *options, "--json"):
            raise SystemExit(3)

    def restore() -> None:
        put_back(project.folder, old)

    restore()
    count = moments(work_on, restore)
    seen = {"old": 0, "new": 0}
    for moment in spread(count, 24):
        restore()
        assert killed_at(moment, work_on)
        held = contents(project.folder)
        assert held in (old, new)
        seen["old" if held == old else "new"] += 1
    assert seen["old"] > 6
    assert seen["new"] > 0
    restore()
    assert imported(project, "box", *options) == 0
    assert contents(project.folder) == new
    project.check()


def test_two_at_once_wait_for_each_other(project: Project, work: Path) -> None:
    for number, name in ((20, "one"), (40, "two")):
        git(work, "checkout", "-q", "-b", name, f"vpatch/{TAG}")
        committed(work, {A: line(number, name)}, f"a: say {name}\n")
    command = [sys.executable, "-m", "vpatch", "import", TAG, "--repo", str(project.repo), *TOPIC]
    running = [
        subprocess.Popen([*command, *SIGN, name], cwd=work, stdout=subprocess.DEVNULL)
        for name in ("one", "two")
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    assert {patch.subject for patch in project.series.patches[5:]} == {"a: say one", "a: say two"}
    assert project.pin.revision == 3
    project.check()


def test_standard_input_and_hundred_patches(project: Project, work: Path) -> None:
    for number in range(100):
        committed(work, {f"vllm/n{number % 9}.py": b"%d\n" % number}, f"n: say {number}\n")
    ran = subprocess.run(
        [sys.executable, "-m", "vpatch", "import", TAG, "-", *TOPIC, *SIGN, "--json"],
        input=mails(work),
        cwd=project.repo,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)["imported"]) == 100
    assert len(project.names) == 105
    assert project.tree() == git(work, "rev-parse", "HEAD^{tree}")
    project.check()


@pytest.mark.network
@pytest.mark.parametrize("tag", sorted(path.parent.name for path in PATCHES.glob("*/series")))
def test_the_real_series_as_a_mailbox_is_the_series(
    tag: str, tmp_path: Path, release_cache: Path
) -> None:
    """All of it, on the release as it is: every byte comes back."""
    folder = tmp_path / "repo/patches" / tag
    shutil.copytree(PATCHES / tag, folder)
    (tmp_path / "repo/pyproject.toml").touch()
    series = Series.read(folder)
    (tmp_path / "box").write_bytes(b"".join(patch.raw for patch in series.patches))
    for patch in series.patches:
        (folder / patch.file).unlink()
    (folder / "series").write_bytes(b"")
    pin = Pin.read(folder / PIN)
    sources = {
        kind: replace(source, patched_tree=source.base_tree) for kind, source in pin.sources.items()
    }
    empty = Series.read(folder).sha256
    (folder / PIN).write_bytes(
        replace(pin, sources=sources, series_sha256=empty, blobs={}).to_toml()
    )
    options = ("--topic", "x", "--repo", str(tmp_path / "repo"))
    assert vpatch("import", tag, str(tmp_path / "box"), *options) == 0
    made = contents(folder)
    assert Pin.read(folder / PIN) == replace(pin, revision=pin.revision + 1)
    assert {**made, PIN: b""} == {**contents(PATCHES / tag), PIN: b""}
