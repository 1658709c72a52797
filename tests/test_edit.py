"""`vpatch edit`: a worktree to work in, which is never thrown away with work in it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kill_lab import clear_leftovers, contents, killed_at, moments, spread
from project_lab import Project, committed, fixup, git, rearranged, vpatch, write
from series_lab import TAG, TRAILERS, numbered, plain_git
from vpatch.errors import FindingError, UsageError
from vpatch.report import Report
from vpatch.verbs import edit as verb
from vpatch.verbs import export


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def edit(project: Project, folder: Path | None = None, *, discard: bool = False) -> Report:
    return verb.run(TAG, project.repo, project.upstream, folder or project.work, discard=discard)


def exported(project: Project) -> None:
    wish = export.Wish(str(project.work), project.repo)
    export.run(TAG, project.repo, project.upstream, wish)


def test_edit_change_export_edit(project: Project, tmp_path: Path) -> None:
    report = edit(project)
    assert report.data["written"]
    work = project.work
    assert git(work, "rev-list", "--count", f"{report.data['base']}..HEAD") == "5"
    assert git(work, "symbolic-ref", "--short", "HEAD") == report.data["branch"]
    assert git(work, "status", "--porcelain") == ""
    assert {path.name for path in tmp_path.iterdir()} == {"home", "cache", "repo", "work"}
    assert not edit(project).data["written"]
    fixup(work, 3, {"vllm/b.py": numbered(40, changed={10: "TEN"})})
    with pytest.raises(FindingError, match="b say ten") as caught:
        edit(project)
    assert caught.value.code == "unknown-work"
    exported(project)
    assert not edit(project).data["written"]
    project.check()


def test_a_series_with_blob_ids_of_an_earlier_one_is_known_again(project: Project) -> None:
    path = project.folder / "0004-a-say-fifty.patch"
    stale = re.sub(rb"(?m)^index [0-9a-f]{40}", b"index " + b"1" * 40, path.read_bytes(), count=1)
    path.write_bytes(stale)
    project.pin_now()
    assert edit(project).data["written"]
    assert not edit(project).data["written"]
    exported(project)
    assert path.read_bytes() != stale
    project.check()


def test_the_folder_is_beside_the_repository(project: Project) -> None:
    report = verb.run(TAG, project.repo, project.upstream, None, discard=False)
    assert report.data["folder"] == str(project.repo.parent / f"vllm-{TAG}")
    assert (project.repo.parent / f"vllm-{TAG}/vllm/a.py").is_file()


def test_the_printed_commands_work(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    folder = project.repo.parent / "my work"
    assert vpatch("edit", TAG, str(folder), "--repo", str(project.repo)) == 0
    printed = capfd.readouterr().out.splitlines()
    assert printed[2] == f"  vpatch export {TAG} --from '{folder}' --check"
    assert vpatch("export", TAG, "--from", str(folder), "--check", "--repo", str(project.repo)) == 0
    capfd.readouterr()
    assert vpatch("edit", TAG, str(folder), "--repo", str(project.repo), "--json") == 0
    answer = json.loads(capfd.readouterr().out)
    assert list(answer) == ["schema", "ok", "tag", "folder", "branch", "base", "written", "next"]
    assert answer["written"] is False


def test_another_state_with_nothing_of_its_own_is_discarded_on_request(
    project: Project, tmp_path: Path
) -> None:
    edit(project)
    other = project.worktree(tmp_path / "other")
    fixup(other, 1, {"vllm/a.py": b"more\n" + numbered(60, changed={5: "five"})})
    wish = export.Wish(str(other), project.repo)
    export.run(TAG, project.repo, project.upstream, wish)
    write(project.work, {"vllm/__pycache__/a.pyc": b"x", ".pytest_cache/.gitignore": b"*\n"})
    write(project.work, {".gitignore": b""})
    (project.work / ".gitignore").unlink()
    shutil.rmtree(project.work / ".pytest_cache")
    (project.work / ".git/info").mkdir(exist_ok=True)
    (project.work / ".git/info/exclude").write_text("__pycache__/\n")
    with pytest.raises(FindingError) as caught:
        edit(project)
    assert caught.value.code == "other-state"
    assert "--discard" in caught.value.hint
    assert edit(project, discard=True).data["written"]
    assert git(project.work, "rev-parse", "HEAD^{tree}") == git(other, "rev-parse", "HEAD^{tree}")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "cache", "repo", "work", "other"}
    assert not edit(project).data["written"]


def stashed(work: Path) -> None:
    write(work, {"vllm/a.py": b"x\n"})
    git(work, "stash", "--quiet")


def on_another_branch(work: Path) -> None:
    git(work, "checkout", "-q", "-b", "idea")
    committed(work, {"vllm/x.py": b"x\n"}, "an idea")
    git(work, "checkout", "-q", f"vpatch/{TAG}")


def detached(work: Path) -> None:
    git(work, "checkout", "-q", "--detach")
    committed(work, {"vllm/x.py": b"x\n"}, "loose")


def orphaned(work: Path) -> None:
    on_another_branch(work)
    git(work, "branch", "-q", "-D", "idea")
    git(work, "checkout", "-q", "--orphan", "fresh")


def merged(work: Path) -> None:
    on_another_branch(work)
    git(work, "merge", "-q", "--no-ff", "-m", "merged", "idea")
    git(work, "branch", "-D", "idea")


def ignored(work: Path) -> None:
    (work / ".git/info").mkdir(exist_ok=True)
    (work / ".git/info/exclude").write_text("notes.txt\n")
    write(work, {"notes.txt": b"precious\n"})


def hidden(flag: str) -> Callable[[Path], None]:
    def hide(work: Path) -> None:
        git(work, "update-index", flag, "vllm/a.py")
        write(work, {"vllm/a.py": b"hidden work\n"})

    return hide


def rebasing(work: Path) -> None:
    git(work, "checkout", "-q", "-b", "other", "HEAD~1")
    committed(work, {"vllm/c.py": numbered(40, changed={1: "two"})}, "other")
    git(work, "checkout", "-q", f"vpatch/{TAG}")
    with pytest.raises(Exception, match="rebase"):
        plain_git("rebase", "other", folder=work)


UNKNOWN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed file": (lambda work: write(work, {"vllm/a.py": b"x\n"}), "the file vllm/a.py"),
    "an untracked file": (lambda work: write(work, {"new/n.txt": b"x\n"}), "the file new/n.txt"),
    "a staged file": (lambda work: git(work, "rm", "-q", "setup.py"), "the file setup.py"),
    "an ignored file": (ignored, "the file notes.txt"),
    "a hidden change": (hidden("--assume-unchanged"), "vllm/a.py, which git is told not to"),
    "a skipped file": (hidden("--skip-worktree"), "vllm/a.py, which git is told not to"),
    "a commit": (lambda work: committed(work, {"x.py": b"x\n"}, "mine"), r"commit \w+ \('mine'\)"),
    "a loose commit": (detached, r"\('loose'\)"),
    "an unborn branch": (orphaned, "the file vllm/a.py"),
    "a merge": (merged, r"\('merged'\)"),
    "a branch": (on_another_branch, "the ref idea"),
    "a branch at a known commit": (lambda work: git(work, "branch", "here"), "the ref here"),
    "a tag": (lambda work: git(work, "tag", "here"), "the ref refs/tags/here"),
    "a stash": (stashed, "a stash"),
    "a rebase": (rebasing, "a rebase that is not finished"),
    "a linked worktree": (
        lambda work: git(work, "worktree", "add", "-q", "--detach", "../linked"),
        "the linked worktree linked",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_unknown_work_is_never_discarded(what: str, project: Project) -> None:
    change, said = UNKNOWN[what]
    edit(project)
    change(project.work)
    before = contents(project.work)
    for discard in (False, True):
        with pytest.raises(FindingError, match=said) as caught:
            edit(project, discard=discard)
        assert caught.value.code == "unknown-work"
        assert caught.value.exit_code == 1
    assert contents(project.work) == before


def test_a_branch_with_less_than_the_series_has_nothing_of_its_own(project: Project) -> None:
    edit(project)
    rearranged(project.work, [1, 2])
    with pytest.raises(FindingError) as caught:
        edit(project)
    assert caught.value.code == "other-state"
    assert edit(project, discard=True).data["written"]


def test_what_is_not_ours_is_not_touched(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    committed(other, {"f": b"f\n"}, "theirs")
    file, link, full = tmp_path / "file", tmp_path / "link", tmp_path / "full"
    file.write_text("precious")
    link.symlink_to(other)
    write(full, {"mine": b"precious"})
    for folder in (other, file, link, full, project.repo):
        for discard in (False, True):
            with pytest.raises(UsageError) as caught:
                edit(project, folder, discard=discard)
            assert caught.value.code == "not-vacant"
    assert (other / "f").is_file()
    assert (full / "mine").is_file()


def test_no_worktree_among_the_series(project: Project, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project.folder)
    patches = project.folder.parent
    for folder in (project.folder / "work", patches / "work", link / "a/b"):
        with pytest.raises(UsageError, match="holds the series") as caught:
            edit(project, folder)
        assert caught.value.code == "among-series"
        assert not folder.exists()
    project.check()


def test_an_empty_folder_is_welcome(project: Project) -> None:
    project.work.mkdir()
    assert edit(project).data["written"]
    assert (project.work / "vllm/a.py").is_file()


@pytest.mark.nightly
@pytest.mark.slow
def test_kill_9_while_discarding(project: Project, tmp_path: Path) -> None:
    edit(project)
    rearranged(project.work, [1, 2])
    stale = tmp_path / "stale"
    shutil.copytree(project.work, stale, symlinks=True)

    def work_on() -> None:
        if vpatch("edit", TAG, str(project.work), "--discard", "--repo", str(project.repo)):
            raise SystemExit(3)

    def restore() -> None:
        clear_leftovers(project.work)
        shutil.rmtree(project.work)
        shutil.copytree(stale, project.work, symlinks=True)

    seen = {"2": 0, "5": 0}
    for moment in spread(moments(work_on, restore), 30):
        restore()
        killed_at(moment, work_on)  # the number of steps varies by a few: the last one may survive
        seen[git(project.work, "rev-list", "--count", f"vpatch/base/{TAG}..HEAD")] += 1
        git(project.work, "fsck", "--strict")
    assert seen["2"] > 10
    assert seen["5"] > 1
    restore()
    work_on()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"home", "cache", "repo", "work", "stale"}


def test_a_series_without_patches(project: Project) -> None:
    work = project.worktree()
    git(work, "reset", "--quiet", "--hard", f"vpatch/base/{TAG}")
    wish = export.Wish(str(work), project.repo, drop=tuple(project.names))
    export.run(TAG, project.repo, project.upstream, wish)
    shutil.rmtree(work)
    assert edit(project).data["written"]
    assert not edit(project).data["written"]
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\n{TRAILERS}")
    exported(project)
    assert project.names == ["0001-x-say-x.patch"]
    project.check()
