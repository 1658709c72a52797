"""`vpatch apply --worktree`: git am's own commits, in a repository that stands alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from series_lab import TAG, TRAILERS, Content, Lab, Step, numbered, plain_git
from test_three_tools import BASE, STEPS, by_git_am
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.patches.apply import Applied, apply_series, unpatched
from vpatch.patches.series import Series
from vpatch.patches.worktree import Worktree, write_worktree

FORMAT = "--format=%an <%ae>%n%ad%n%B%n%T%n%cd"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BASE)


def written(lab: Lab, folder: Path, steps: list[Step]) -> tuple[Worktree, Applied, Series]:
    series = lab.series(folder / TAG, steps)
    applied = apply_series(lab.git, lab.base, series)
    return write_worktree(lab.git, lab.commit, applied, series, folder / "work"), applied, series


def git(folder: Path, *args: str) -> str:
    return plain_git(*args, folder=folder).decode().strip()


def test_the_commits_are_those_of_git_am(lab: Lab, tmp_path: Path) -> None:
    odd = Step(
        "0011-odd.patch", {"vllm/z.py": b"z\n"}, subject="Grüße: " + "lang " * 30, body="a\n\n\nb  "
    )
    work, applied, series = written(lab, tmp_path, [*STEPS, odd])
    assert by_git_am(lab.git, lab.commit, series, tmp_path / "am") == applied.tree
    assert work.tree == applied.tree
    assert git(work.folder, "rev-parse", "HEAD^{tree}") == applied.tree
    log = ("log", FORMAT.replace("%n%cd", ""))
    assert git(work.folder, *log) == git(tmp_path / "am", *log)
    assert git(work.folder, "rev-list", "--count", f"{work.base_ref}..") == "11"
    assert git(work.folder, "log", "-1", "--format=%ad") == git(
        work.folder, "log", "-1", "--format=%cd"
    )


def test_the_repository_is_ready_to_work_in(lab: Lab, tmp_path: Path) -> None:
    work, _, _ = written(lab, tmp_path, STEPS)
    assert git(work.folder, "symbolic-ref", "HEAD") == f"refs/heads/vpatch/{TAG}"
    assert git(work.folder, "rev-parse", work.base_ref) == lab.commit
    assert git(work.folder, "status", "--porcelain") == ""
    assert (work.folder / "vllm/a.py").read_bytes() == numbered(60, changed={5: "5", 58: "end"})
    assert git(work.folder, "rev-parse", "--show-toplevel") == str(work.folder)
    assert "worktree" not in (work.folder / ".git/config").read_text()
    (work.folder / "vllm/a.py").write_text("mine\n")
    git(work.folder, "commit", "-qam", "mine")


def test_the_same_commit_ids_everywhere(
    lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first, applied, series = written(lab, tmp_path, STEPS)
    request.getfixturevalue("hostile_git_config")
    second = write_worktree(lab.git, lab.commit, applied, series, tmp_path / "again")
    assert second.head == first.head


def test_it_outlives_the_cache(lab: Lab, tmp_path: Path) -> None:
    work, _, _ = written(lab, tmp_path, STEPS)
    shutil.rmtree(lab.git.git_dir)
    git(work.folder, "fsck", "--full", "--strict")
    git(work.folder, "clone", "-q", ".", str(tmp_path / "clone"))
    assert not (work.folder / ".git/objects/info/alternates").exists()


def test_the_release_as_it_is(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    bare = unpatched(TAG, "sdist", lab.base)
    work = write_worktree(lab.git, lab.commit, bare, series, tmp_path / "work")
    assert work.head == lab.commit
    assert git(work.folder, "status", "--porcelain") == ""


def test_patches_that_were_set_aside_make_no_commit(lab: Lab, tmp_path: Path) -> None:
    steps = [STEPS[0], Step("0002-test.patch", {"tests/test_a.py": b"\n"})]
    series = lab.series(tmp_path / TAG, steps)
    applied = apply_series(lab.git, lab.base, series, kind="wheel")
    work = write_worktree(lab.git, lab.commit, applied, series, tmp_path / "work")
    assert git(work.folder, "rev-list", "--count", f"{work.base_ref}..") == "1"


def test_a_shallow_mirror_is_no_trouble(lab: Lab, tmp_path: Path) -> None:
    # A mirror that fetched one commit of a longer history from git.
    tip = lab.commit_tree(lab.base, lab.commit, "The tip")
    lab.git.run("update-ref", "refs/heads/tip", tip)
    shallow = Lab(tmp_path / "shallow", {})
    url = f"file://{lab.git.git_dir}"
    shallow.git.run("fetch", "-q", "--depth=1", url, "refs/heads/tip:refs/heads/tip")
    assert (shallow.git.git_dir / "shallow").is_file()
    series = lab.series(tmp_path / TAG, STEPS)
    applied = apply_series(shallow.git, lab.base, series)
    work = write_worktree(shallow.git, tip, applied, series, tmp_path / "work")
    shutil.rmtree(shallow.git.git_dir)
    git(work.folder, "fsck", "--full")


def test_nothing_is_overwritten(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    bare = unpatched(TAG, "sdist", lab.base)
    full, file, link = tmp_path / "full", tmp_path / "file", tmp_path / "link"
    full.mkdir()
    (full / "mine").write_text("precious")
    file.write_text("precious")
    link.symlink_to(tmp_path / "nowhere")
    for folder in (full, file, link):
        with pytest.raises(UsageError) as caught:
            write_worktree(lab.git, lab.commit, bare, series, folder)
        assert caught.value.code == "not-vacant"
    assert (full / "mine").read_text() == file.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_folder_and_missing_parents_are_welcome(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    bare = unpatched(TAG, "sdist", lab.base)
    (tmp_path / "empty").mkdir()
    write_worktree(lab.git, lab.commit, bare, series, tmp_path / "empty")
    deep = write_worktree(lab.git, lab.commit, bare, series, tmp_path / "a/b/c")
    assert git(deep.folder, "status", "--porcelain") == ""
    assert (deep.folder.stat().st_mode & 0o777) == (tmp_path / "a").stat().st_mode & 0o777


def test_a_failure_leaves_nothing_behind(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(HostError):
        write_worktree(lab.git, "0" * 40, unpatched(TAG, "sdist", lab.base), series, place / "work")
    assert list(place.iterdir()) == []


def test_a_tree_that_git_am_does_not_make_is_refused(lab: Lab, tmp_path: Path) -> None:
    # git am drops the CR of CR LF; git apply does not.
    content: Content = b"one\r\ntwo\r\n"
    other = Lab(tmp_path / "crlf", {"f": content})
    series = other.series(tmp_path / TAG, [Step("0001-crlf.patch", {"g": content})])
    applied = apply_series(other.git, other.base, series)
    with pytest.raises(FindingError, match="git am makes") as caught:
        write_worktree(other.git, other.commit, applied, series, tmp_path / "work")
    assert caught.value.code == "trees-differ"
    assert not (tmp_path / "work").exists()


def test_a_name_with_a_dollar_is_only_a_name(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / TAG, STEPS)
    bare = unpatched(TAG, "sdist", lab.base)
    work = write_worktree(lab.git, lab.commit, bare, series, tmp_path / "$HOME ~ -x")
    assert work.folder.name == "$HOME ~ -x"
    assert (work.folder / "vllm/a.py").is_file()


def test_the_users_hooks_and_trailers_stay_theirs(lab: Lab, tmp_path: Path) -> None:
    work, _, _ = written(lab, tmp_path, STEPS)
    assert TRAILERS.strip() in git(work.folder, "log", "-1", "--format=%B")
    assert not (work.folder / ".git/rebase-apply").exists()
