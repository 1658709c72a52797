"""`vpatch export`: commits become the series, old bytes stay, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kill_lab import contents, killed_at, moments, put_back, spread
from project_lab import (
    BASE,
    STEPS,
    Project,
    committed,
    fixup,
    git,
    objects,
    rearranged,
    vpatch,
    write,
)
from series_lab import TAG, TRAILERS, Step, numbered, plain_git
from vpatch.errors import FindingError, UsageError
from vpatch.findings import FindingsError
from vpatch.patches.apply import PatchConflictError
from vpatch.patches.check import check_series
from vpatch.patches.export import Entry, NewSeries, listing, slug
from vpatch.patches.series import Series
from vpatch.patches.swap import read_folder
from vpatch.report import Report
from vpatch.verbs import export as verb

REAL = Path(__file__).parent.parent / "patches"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def export(project: Project, source: Path | str = "", **wish: Any) -> Report:
    here = wish.pop("here", project.repo)
    return verb.run(
        TAG,
        project.repo,
        project.upstream,
        verb.Wish(source=str(source or project.work), here=here, **wish),
    )


def changes(report: Report) -> dict[str, str]:
    """new name (or the old one of a dropped patch) -> what became of it."""
    return {row["file"] or row["was"]: row["change"] for row in report.data["patches"]}


def test_nothing_changes_where_nothing_changed(project: Project) -> None:
    project.worktree()
    before, mirror = read_folder(project.folder), objects(project.lab.git.git_dir)
    for check in (True, False):
        report = export(project, check=check)
        assert set(changes(report).values()) == {"kept"}
        assert (report.data["changed"], report.data["written"]) == (False, False)
        assert report.exit_code == 0
        assert read_folder(project.folder) == before
        assert [path.name for path in project.folder.parent.iterdir()] == [TAG]
    assert objects(project.lab.git.git_dir) == mirror
    project.check()


def test_one_changed_commit_changes_one_patch(project: Project) -> None:
    work = project.worktree()
    before = project.raws()
    fixup(work, 3, {"vllm/b.py": numbered(40, changed={10: "TEN"})})
    report = export(project, check=True)
    assert report.exit_code == 1
    assert report.data["changed"]
    assert project.raws() == before
    report = export(project)
    assert changes(report) == {
        "0001-a-say-five.patch": "kept",
        "0002-tests-five-is-said.patch": "kept",
        "0003-b-say-ten.patch": "rewritten",
        "0004-a-say-fifty.patch": "kept",
        "0005-c-say-one.patch": "kept",
    }
    after = project.raws()
    assert [name for name in after if after[name] != before[name]] == ["b say ten"]
    assert b"+TEN\n" in after["b say ten"]
    assert (project.pin.revision, report.data["revision"]) == (2, 2)
    assert project.tree() == git(work, "rev-parse", "HEAD^{tree}")
    project.check()
    assert export(project, check=True).exit_code == 0


def test_a_patch_behind_one_of_the_same_file_names_the_blobs_that_are_there(
    project: Project,
) -> None:
    """Its hunks stay; git am -3 finds the files that its index line names."""
    work = project.worktree()
    before = project.raws()
    fixup(work, 1, {"vllm/a.py": numbered(60, changed={5: "FIVE"})})
    report = export(project)
    assert [file for file, change in changes(report).items() if change == "rewritten"] == [
        "0001-a-say-five.patch",
        "0004-a-say-fifty.patch",
    ]
    old, new = (raws["a say fifty"].splitlines() for raws in (before, project.raws()))
    differing = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    assert [[line.split()[0] for line in pair] for pair in differing] == [[b"index", b"index"]]
    ids = git(work, "rev-parse", "HEAD~2:vllm/a.py", "HEAD~1:vllm/a.py").split()
    assert differing[0][1] == f"index {'..'.join(ids)} 100644".encode()
    assert project.tree() == git(work, "rev-parse", "HEAD^{tree}")
    project.check()
    assert not check_series(project.folder, TAG)


def test_case_20_what_others_do_elsewhere_is_no_reason_to_rewrite(project: Project) -> None:
    """Not even where git would write the mail in another way."""
    for name in project.names:
        path = project.folder / name
        path.write_bytes(path.read_bytes().replace(b"[PATCH] ", b"[PATCH 1/9] "))
    project.pin_now()
    work = project.worktree()
    before = project.raws()
    fixup(work, 3, {"vllm/b.py": numbered(40, changed={10: "TEN"})})
    assert changes(export(project))["0003-b-say-ten.patch"] == "rewritten"
    after = project.raws()
    assert [name for name in after if after[name] != before[name]] == ["b say ten"]
    assert b"[PATCH 1/9] " in after["c say one"]
    project.check()


def test_a_hunk_that_would_need_an_offset_is_written_anew(project: Project) -> None:
    work = project.worktree()
    fixup(work, 1, {"vllm/a.py": b"one more line\n" + numbered(60, changed={5: "five"})})
    report = export(project)
    assert changes(report)["0004-a-say-fifty.patch"] == "rewritten"
    assert changes(report)["0005-c-say-one.patch"] == "kept"
    project.check()  # `pin --check` finds no offset


def test_a_new_message_author_or_date_is_a_new_patch(project: Project) -> None:
    work = project.worktree()
    old = project.raws()["c say one"]
    for options in (
        ["-m", f"c say one\n\nFor another reason.\n\n{TRAILERS}"],
        ["--no-edit", "--date=2026-05-05T05:05:05+0530"],
        ["--no-edit", "--author=A Tester <tester+new@example.com>"],
    ):
        git(work, "commit", "--amend", "--quiet", "--signoff", *options)
        if "author" in options[-1]:
            body = git(work, "log", "-1", "--format=%B")
            signed = f"{body}\nSigned-off-by: A Tester <tester+new@example.com>"
            git(work, "commit", "--amend", "--quiet", "-m", signed)
        assert changes(export(project))["0005-c-say-one.patch"] == "rewritten"
        assert project.raws()["c say one"] != old
        old = project.raws()["c say one"]
    assert project.pin.revision == 4
    project.check()


def test_a_commit_in_the_middle_renumbers_what_is_behind(project: Project) -> None:
    work = project.worktree()
    before = project.raws()
    new = committed(work, {"vllm/x.py": b"x\n"}, f"Kimi-K2.5's x: say Grüße\n\n{TRAILERS}")
    git(work, "reset", "--quiet", "--hard", "HEAD~3")
    git(work, "cherry-pick", new)
    git(work, "cherry-pick", f"{new}~3..{new}~1")
    report = export(project)
    assert changes(report) == {
        "0001-a-say-five.patch": "kept",
        "0002-tests-five-is-said.patch": "kept",
        "0003-b-say-ten.patch": "kept",
        "0004-kimi-k25-x-say-grusse.patch": "added",
        "0005-a-say-fifty.patch": "renumbered",
        "0006-c-say-one.patch": "renumbered",
    }
    assert {name: project.raws()[name] for name in before} == before
    assert project.names == list(changes(report))
    project.check()


def test_another_order(project: Project) -> None:
    work = project.worktree()
    rearranged(work, [5, 1, 2, 3, 4])
    report = export(project)
    assert list(changes(report).values()) == ["renumbered"] * 5
    assert project.names[0] == "0001-c-say-one.patch"
    project.check()


def test_a_lost_patch_is_refused_unless_it_is_named(project: Project) -> None:
    work = project.worktree()
    rearranged(work, [1, 4, 5])
    before = read_folder(project.folder)
    with pytest.raises(FindingsError) as caught:
        export(project)
    assert [Path(found.file).name for found in caught.value.findings] == [
        "0002-tests-five-is-said.patch",
        "0003-b-say-ten.patch",
    ]
    assert {found.code for found in caught.value.findings} == {"lost-patch"}
    assert "--drop 0002-tests-five-is-said.patch --drop 0003-b-say-ten.patch" in caught.value.hint
    with pytest.raises(FindingsError):
        export(project, drop=("0003-b-say-ten.patch",))
    for wrong in ("0001-a-say-five.patch", "0009-none.patch", "../x"):
        with pytest.raises(UsageError) as usage:
            export(project, drop=("0002-tests-five-is-said.patch", "0003-b-say-ten.patch", wrong))
        assert usage.value.code == "drop-not-lost"
    assert read_folder(project.folder) == before
    report = export(project, drop=("2", "0003-b-say-ten"))
    assert changes(report) == {
        "0001-a-say-five.patch": "kept",
        "0002-a-say-fifty.patch": "renumbered",
        "0003-c-say-one.patch": "renumbered",
        "0002-tests-five-is-said.patch": "dropped",
        "0003-b-say-ten.patch": "dropped",
    }
    project.check()


def test_a_branch_without_commits_loses_all(project: Project) -> None:
    work = project.worktree()
    git(work, "reset", "--quiet", "--hard", f"vpatch/base/{TAG}")
    with pytest.raises(FindingsError, match="and 4 more"):
        export(project)
    report = export(project, drop=tuple(project.names))
    assert set(changes(report).values()) == {"dropped"}
    assert project.names == []
    project.check()


def test_a_new_subject_is_the_same_patch_under_a_new_name(project: Project) -> None:
    work = project.worktree()
    body = git(work, "log", "-1", "--format=%b")
    git(work, "commit", "--amend", "--quiet", "-m", f"c: say ONE, and why\n\n{body}")
    report = export(project)
    assert changes(report)["0005-c-say-one-and-why.patch"] == "rewritten"
    assert list(changes(report).values()).count("kept") == 4
    project.check()


def test_the_same_change_elsewhere_in_the_file_is_the_same_patch(project: Project) -> None:
    work = project.worktree()
    fixup(work, 1, {"vllm/a.py": b"more\n" + numbered(60, changed={5: "five"})})
    body = git(work, "log", "-1", "--format=%b", "HEAD~1")
    later = {"vllm/a.py": b"more\n" + numbered(60, changed={5: "five", 50: "fifty"})}
    fixup(work, 4, later, f"a: say 50\n\n{body}")
    assert changes(export(project))["0004-a-say-50.patch"] == "rewritten"
    project.check()


def test_a_name_that_a_person_chose_stays_while_the_subject_does(tmp_path: Path) -> None:
    steps = [
        Step("0001-short.patch", {"vllm/b.py": numbered(40, changed={3: "x"})}, subject="b: say x"),
        *(replace(step, file=f"{n:04d}{step.file[4:]}") for n, step in enumerate(STEPS[3:], 2)),
    ]
    project = Project(tmp_path, steps)
    work = project.worktree()
    fixup(work, 1, {"vllm/b.py": numbered(40, changed={3: "y"})})
    assert next(iter(changes(export(project)))) == "0001-short.patch"
    project.check()


def test_comments_in_series_stay_with_their_patch(project: Project) -> None:
    names = project.names
    old = (
        f"# The series of {TAG}.\n\n{names[0]}\n# Tests.\n{names[1]}  # slow\n"
        f"{names[2]}\n{names[3]}\n\n# Last.\n{names[4]}\n# The end.\n"
    )
    (project.folder / "series").write_text(old)
    work = project.worktree()
    assert not export(project).data["changed"]
    assert (project.folder / "series").read_text() == old
    rearranged(work, [1, 5, 2, 4])
    export(project, drop=[names[2]])
    assert (project.folder / "series").read_text() == (
        f"# The series of {TAG}.\n\n0001-a-say-five.patch\n\n# Last.\n0002-c-say-one.patch\n"
        "# Tests.\n0003-tests-five-is-said.patch  # slow\n0004-a-say-fifty.patch\n# The end.\n"
    )
    project.check()


def test_what_stands_above_all_stays_when_the_first_patch_goes() -> None:
    """A block that an empty line sets apart is about the series, not about the next patch."""
    new = NewSeries((Entry("0001-c.patch", b"x", "0003-c.patch", b"x"),), ("0001-a", "0002-b"))
    old = (
        b"# The series.\n\n# About a.\n0001-a.patch\n\n# Part two.\n\n0002-b.patch\n"
        b"# About c.\n0003-c.patch\n"
    )
    assert listing(old, new) == (b"# The series.\n\n\n# Part two.\n\n# About c.\n0001-c.patch\n")
    last = NewSeries((Entry("0001-a.patch", b"x", "0001-a.patch", b"x"),), ("0002-b", "0003-c"))
    assert listing(old, last) == (b"# The series.\n\n# About a.\n0001-a.patch\n\n# Part two.\n\n")


def test_a_series_without_a_last_newline_gets_one_when_it_is_written() -> None:
    new = NewSeries(
        (Entry("0001-b.patch", b"x", "0002-b.patch", b"x"), Entry("0002-c.patch", b"y"))
    )
    assert listing(b"0001-a.patch\r\n0002-b.patch", new) == b"0001-b.patch\n0002-c.patch\n"


def test_what_is_not_ours_is_carried_over(project: Project) -> None:
    work = project.worktree()
    write(project.folder, {"notes/why.md": b"why\n", "notes/a.patch": b"not listed\n"})
    (project.folder / "link").symlink_to("README.md")
    (project.folder / "README.md").chmod(0o600)
    git(work, "commit", "--amend", "--quiet", "-m", f"c say two\n\n{TRAILERS}")
    export(project)
    assert (project.folder / "notes/why.md").read_bytes() == b"why\n"
    assert (project.folder / "notes/a.patch").read_bytes() == b"not listed\n"
    assert (project.folder / "link").is_symlink()
    assert (project.folder / "README.md").stat().st_mode & 0o777 == 0o600
    project.check()


def hidden(work: Path, how: str, path: str, data: bytes | None) -> None:
    """A file that git is told not to look at, with a change."""
    git(work, "update-index", f"--{how}", path)
    if data is None:
        (work / path).unlink()
    else:
        write(work, {path: data})


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda work: hidden(work, "assume-unchanged", "vllm/a.py", b"x"), "uncommitted", "a.py"),
        (lambda work: hidden(work, "skip-worktree", "vllm/a.py", b"x"), "uncommitted", "a.py"),
        (lambda work: hidden(work, "assume-unchanged", "vllm/a.py", None), "uncommitted", "a.py"),
        (lambda work: write(work, {"vllm/a.py": b"x\n"}), "uncommitted", "vllm/a.py"),
        (lambda work: write(work, {"vllm/forgotten.py": b"x\n"}), "uncommitted", "forgotten.py"),
        (lambda work: git(work, "rm", "-q", "--cached", "setup.py"), "uncommitted", "setup.py"),
        (lambda work: (work / "vllm/b.py").unlink(), "uncommitted", "vllm/b.py"),
        (lambda work: (work / "vllm/b.py").chmod(0o755), "uncommitted", "vllm/b.py"),
    ],
)
def test_a_worktree_with_changes_is_refused(
    change: Any, code: str, said: str, project: Project
) -> None:
    work = project.worktree()
    change(work)
    with pytest.raises(FindingError, match=said) as caught:
        export(project)
    assert caught.value.code == code
    # The commits themselves can still be exported, by the branch's name.
    assert not export(project, f"vpatch/{TAG}", here=work).data["changed"]


def test_hidden_files_without_a_change_are_none(project: Project) -> None:
    work = project.worktree()
    hidden(work, "assume-unchanged", "vllm/a.py", (work / "vllm/a.py").read_bytes())
    hidden(work, "skip-worktree", "vllm/b.py", (work / "vllm/b.py").read_bytes())
    hidden(work, "skip-worktree", "vllm/c.py", None)  # as in a sparse checkout
    index = (work / ".git/index").read_bytes()
    assert export(project, check=True).exit_code == 0
    assert (work / ".git/index").read_bytes() == index


def test_ignored_files_are_no_changes(project: Project) -> None:
    work = project.worktree()
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/exclude").write_text("*.so\n")
    write(work, {"vllm/_C.so": b"x"})
    assert export(project, check=True).exit_code == 0


@pytest.mark.parametrize("what", ["rebase", "am", "merge", "cherry-pick", "revert", "bisect"])
def test_something_unfinished_is_refused(what: str, project: Project) -> None:
    work = project.worktree()
    git(work, "checkout", "-q", "-b", "other", "HEAD~1")
    committed(work, {"vllm/c.py": numbered(40, changed={1: "two"})}, "other")
    mail = plain_git("format-patch", "--stdout", "-1", folder=work)
    git(work, "checkout", "-q", f"vpatch/{TAG}")
    stuck = {
        "rebase": ["rebase", "other"],
        "am": ["am"],
        "merge": ["merge", "other"],
        "cherry-pick": ["cherry-pick", "other"],
        "revert": ["revert", "--no-commit", "HEAD~2"],
        "bisect": ["bisect", "start", "HEAD", "HEAD~3"],
    }[what]
    with contextlib.suppress(subprocess.CalledProcessError):
        plain_git(*stuck, folder=work, stdin=mail)
    with pytest.raises(FindingError) as caught:
        export(project)
    assert caught.value.code == "unfinished"
    assert what.split(" ", maxsplit=1)[0] in caught.value.message or what == "bisect"


def test_from_a_revision_of_the_repository_of_the_current_folder(project: Project) -> None:
    work = project.worktree()
    git(work, "tag", "mine")
    for source in ("mine", f"vpatch/{TAG}", "HEAD", git(work, "rev-parse", "HEAD")):
        assert not export(project, source, here=work / "vllm").data["changed"]
    for source in ("nothing", "--help", "", "vllm"):
        with pytest.raises(UsageError) as caught:
            export(project, source or "''", here=work)
        assert caught.value.code == "no-source"
    with pytest.raises(UsageError, match="in no repository"):
        export(project, "HEAD", here=project.repo)


def test_a_linked_worktree_and_a_bare_clone(project: Project, tmp_path: Path) -> None:
    work = project.worktree()
    git(work, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    assert not export(project, tmp_path / "linked").data["changed"]
    git(work, "clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert not export(project, tmp_path / "bare.git").data["changed"]  # the base by its tree


def test_the_base_by_its_tree_by_the_tag_and_by_name(tmp_path: Path) -> None:
    project = Project(tmp_path, kinds=("sdist",))
    work = project.worktree()
    git(work, "update-ref", "-d", f"refs/vpatch/base/{TAG}")
    assert export(project).data["base"]["kind"] == "sdist"
    # Upstream's own git has files that no sdist has, and history.
    other = tmp_path / "upstream"
    git(work, "clone", "-q", ".", str(other))
    git(other, "checkout", "-q", "--orphan", "main")
    git(other, "rm", "-rfq", ".")
    committed(other, {".github/x.yml": b"x\n"}, "older")
    git(other, "checkout", "-q", f"origin/vpatch/{TAG}~5", "--", ".")
    release = committed(other, {}, "the release")
    git(other, "cherry-pick", f"origin/vpatch/{TAG}~5..origin/vpatch/{TAG}")
    with pytest.raises(UsageError) as caught:
        export(project, other)
    assert caught.value.code == "no-base"
    assert "--base REV" in caught.value.hint
    report = export(project, other, base=release)
    assert (report.data["base"]["kind"], report.data["changed"]) == ("git", False)
    git(other, "tag", TAG, release)
    assert export(project, other).data["base"]["commit"] == release
    # A patch of a file that no pin knows, below all others, is found: it is behind the tag.
    git(other, "checkout", "-q", "-b", "more", release)
    committed(other, {"setup.py": b"setup(1)\n"}, f"setup: say one\n\n{TRAILERS}")
    git(other, "cherry-pick", f"{release}..main")
    report = export(project, other)
    assert next(iter(changes(report))) == "0001-setup-say-one.patch"
    project.check()


def test_a_base_that_is_not_the_release(project: Project) -> None:
    work = project.worktree()
    with pytest.raises(FindingError) as caught:
        export(project, base="HEAD~1")
    assert caught.value.code == "base-mismatch"
    with pytest.raises(UsageError) as usage:
        export(project, base="nothing")
    assert usage.value.code == "no-revision"
    git(work, "checkout", "-q", "--orphan", "other")
    committed(work, {"vllm/a.py": b"x\n"}, "other")
    with pytest.raises(UsageError) as usage:
        export(project, base=f"vpatch/{TAG}")
    assert usage.value.code == "not-an-ancestor"
    with pytest.raises(UsageError) as usage:
        export(project)
    assert usage.value.code == "no-base"


def test_a_patch_that_the_wheel_cannot_take_is_a_conflict(project: Project) -> None:
    work = project.worktree()
    before = read_folder(project.folder)
    committed(work, {"setup.py": b"setup(1)\n"}, f"setup: say one\n\n{TRAILERS}")
    with pytest.raises(PatchConflictError, match=r"setup\.py"):
        export(project)
    assert read_folder(project.folder) == before
    project.check()


def test_a_worktree_of_the_wheel_lacks_the_patches_of_tests(project: Project) -> None:
    work = project.worktree(kind="wheel")
    with pytest.raises(FindingsError, match="0002-tests-five-is-said") as caught:
        export(project, work)
    assert "wheel" in caught.value.hint


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("x: y\n\nNo trailers.\n", "trailer-topic"),
        (f"a say five\n\n{TRAILERS}", "same-subject"),
        (f"x\n\nbody\n---\nlost\n\n{TRAILERS}", "cut-message"),
    ],
)
def test_what_lint_finds_is_not_written(message: str, code: str, project: Project) -> None:
    work = project.worktree()
    before = read_folder(project.folder)
    committed(work, {"vllm/x.py": b"x\n"}, message)
    with pytest.raises(FindingsError) as caught:
        export(project)
    assert code in {found.code for found in caught.value.findings}
    assert read_folder(project.folder) == before
    project.check()


def test_a_series_that_was_changed_by_hand_is_not_overwritten(project: Project) -> None:
    project.worktree()
    patch = project.folder / project.names[0]
    patch.write_bytes(patch.read_bytes().replace(b"+five", b"+FIVE"))
    with pytest.raises(FindingsError) as caught:
        export(project)
    assert caught.value.code == "series-changed"
    assert b"+FIVE" in patch.read_bytes()


def test_a_tag_without_a_pin(project: Project) -> None:
    project.worktree()
    with pytest.raises(UsageError) as caught:
        verb.run(
            "v1.2.3", project.repo, project.upstream, verb.Wish(str(project.work), project.repo)
        )
    assert caught.value.code == "no-pin"
    assert [path.name for path in project.folder.parent.iterdir()] == [TAG]


def test_export_then_apply_then_export_changes_nothing(project: Project, tmp_path: Path) -> None:
    work = project.worktree()
    fixup(work, 1, {"vllm/a.py": b"more\n" + numbered(60, changed={5: "five"})})
    committed(work, {"vllm/x.py": b"x"}, f"x: no newline\n\n{TRAILERS}")
    export(project)
    before = read_folder(project.folder)
    again = project.worktree(tmp_path / "again")
    assert git(again, "rev-parse", "HEAD^{tree}") == git(work, "rev-parse", "HEAD^{tree}")
    assert not export(project, again).data["changed"]
    assert read_folder(project.folder) == before


@pytest.mark.slow
def test_a_hundred_patches(tmp_path: Path) -> None:
    steps, lines = [], {}
    for number in range(1, 101):
        lines[number * 5] = f"changed by {number}"
        steps.append(
            Step(f"{number:04d}-change-{number}.patch", {"vllm/a.py": numbered(600, changed=lines)})
        )
    project = Project(tmp_path, steps, {**BASE, "vllm/a.py": numbered(600)})
    work = project.worktree()
    assert set(changes(export(project, check=True)).values()) == {"kept"}
    fixup(work, 1, {"vllm/a.py": numbered(600, changed={5: "CHANGED"})})
    told = list(changes(export(project)).values())
    # All of one file: each names the blob that the one before it makes now.
    assert told == ["rewritten"] * 100
    project.check()


@pytest.mark.parametrize(
    ("locale", "seed", "umask"), [("C", "1", "077"), ("C.UTF-8", "4294967295", "000")]
)
def test_two_machines_settings_give_the_same_bytes(
    locale: str,
    seed: str,
    umask: str,
    project: Project,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    work = project.worktree()
    fixup(work, 1, {"vllm/a.py": numbered(60, changed={5: "Fünf ", 6: "\tsix"})})
    text = f"x: Grüße {'und so ' * 20}\n\nÜber.\n\n{TRAILERS}"
    committed(work, {"vllm/x.py": b"def f():\n\n\n\n    x\n"}, text)
    shutil.copytree(project.folder, tmp_path / "old")
    export(project)
    first = contents(project.folder)
    shutil.rmtree(project.folder)
    shutil.copytree(tmp_path / "old", project.folder)
    home = request.getfixturevalue("hostile_git_config")
    with (work / ".git/config").open("a") as own:
        own.write((home / ".gitconfig").read_text())
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/attributes").write_text("* text eol=crlf ident\n*.py binary\n")
    environment = {
        **os.environ,
        "GIT_DIFF_OPTS": "-u0",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_TEMPLATE_DIR": str(home / "init-template"),
        "TZ": "Asia/Tokyo",
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": locale,
        "PYTHONHASHSEED": seed,
        "PYTHONUTF8": "0",
    }
    # Another umask, too: a file that is written anew may be another's to read, not its bytes.
    shell = ["/bin/sh", "-c", f'umask {umask}; exec "$@"', "sh"]
    command = [sys.executable, "-m", "vpatch", "export", TAG, "--from", str(work), "--json"]
    command = [*shell, *command, "--repo", str(project.repo)]
    ran = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["written"]
    assert contents(project.folder) == first


def test_the_command_and_its_object(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    work = project.worktree()
    arguments = ("export", TAG, "--from", str(work), "--repo", str(project.repo))
    assert vpatch(*arguments, "--check") == 0
    assert capfd.readouterr().out == f"{TAG}: 5 kept; nothing changes, revision 1\n"
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\n{TRAILERS}")
    assert vpatch(*arguments, "--check", "--json") == 1
    answer = json.loads(capfd.readouterr().out)
    assert list(answer) == [
        "schema", "ok", "tag", "base", "head", "changed", "written", "revision", "patches",
    ]  # fmt: skip
    assert (answer["schema"], answer["ok"], answer["written"]) == ("vpatch/export/1", False, False)
    assert answer["patches"][-1] == {"change": "added", "file": "0006-x-say-x.patch", "was": ""}
    assert vpatch(*arguments) == 0
    out = capfd.readouterr().out
    assert "5 kept, 1 added; revision 1 -> 2" in out
    assert [line.split()[0] for line in out.splitlines()] == ["change", "added", f"{TAG}:"]
    rearranged(work, [1])
    assert vpatch(*arguments, "--json") == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["error"]["code"] == "lost-patch"
    assert len(answer["findings"]) == 5


@pytest.mark.nightly
@pytest.mark.slow
def test_kill_9_while_exporting(project: Project) -> None:
    work = project.worktree()
    fixup(work, 1, {"vllm/a.py": numbered(60, changed={5: "FIVE"})})
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\n{TRAILERS}")
    old = contents(project.folder)
    export(project)
    new = contents(project.folder)
    assert new != old

    def work_on() -> None:
        if vpatch("export", TAG, "--from", str(work), "--repo", str(project.repo), "--json"):
            raise SystemExit(3)

    def restore() -> None:
        put_back(project.folder, old)

    seen = {"old": 0, "new": 0}
    count = moments(work_on, restore)
    for moment in spread(count, 40):
        restore()
        assert killed_at(moment, work_on)
        held = contents(project.folder)
        assert held in (old, new)
        seen["old" if held == old else "new"] += 1
    assert seen["old"] > 10
    assert seen["new"] > 1
    export(project)
    assert contents(project.folder) == new
    project.check()


def test_slugs() -> None:
    assert slug("eagle3: accept Kimi-K2.5's ids") == "eagle3-accept-kimi-k25-ids"
    assert slug("Größe, naïve & \ufb01ne") == "grosse-naive-fine"
    assert slug("日本語") == "patch"
    assert slug("../../etc/passwd\n-x") == "etc-passwd-x"
    long = slug("one two three " * 20)
    assert len(long) <= 70
    assert long.split("-")[-1] in {"one", "two", "three"}
    assert slug("x" * 100) == "x" * 70


@pytest.mark.parametrize("tag", sorted(path.name for path in REAL.glob("v*")))
def test_the_names_of_the_real_series_are_those_of_their_subjects(tag: str) -> None:
    for patch in Series.read(REAL / tag).patches:
        assert patch.file[5:] == f"{slug(patch.subject)}.patch"


@pytest.mark.network
@pytest.mark.parametrize("tag", sorted(path.name for path in REAL.glob("v*")))
def test_the_real_series_come_back_from_their_worktrees(
    tag: str, release_cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert vpatch("apply", tag, "--worktree", str(tmp_path / "work")) == 0
    capfd.readouterr()
    assert vpatch("export", tag, "--from", str(tmp_path / "work"), "--check", "--json") == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["changed"] is False
    assert {row["change"] for row in answer["patches"]} == {"kept"}
