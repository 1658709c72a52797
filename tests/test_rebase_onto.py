"""`vpatch rebase` on real repositories: --onto-git, --upstream-git, --commit, and what is odd."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from project_lab import BASE, git, vpatch
from rebase_lab import NEXT
from series_lab import TAG, Step, numbered, plain_git
from session_lab import Sessions, listing, said, write

NAME = "0001-b-say-ten.patch"
STEPS = [Step(NAME, {"vllm/b.py": numbered(40, changed={10: "ten"})})]
CLASHES = {**BASE, "vllm/b.py": numbered(40, changed={10: "dix"})}
FITS = {**BASE, "vllm/b.py": b"zero\n" + numbered(40)}


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next release."""
    with listing(monkeypatch, "9.9.10"):
        yield


@pytest.fixture
def project(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path, FITS, STEPS)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A clone of upstream's: branch ``fits`` behind ``clashes``, with a tag of the next release."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    plain_git("init", "--quiet", "--initial-branch=fits", folder=folder)
    for branch, files in (("clashes", CLASHES), ("fits", FITS)):
        write(folder, {path: data for path, data in files.items() if isinstance(data, bytes)})
        plain_git("add", ".", folder=folder)
        plain_git("commit", "--quiet", "-m", branch, folder=folder)
        if branch == "clashes":
            plain_git("branch", branch, folder=folder)
    plain_git("tag", NEXT, folder=folder)
    plain_git("config", "uploadpack.allowFilter", "true", folder=folder)
    return folder


def tried(
    project: Sessions, capsys: pytest.CaptureFixture[str], *args: str, status: int
) -> dict[str, Any]:
    """What a dry run says."""
    capsys.readouterr()
    assert project.begin("--dry-run", "--json", *args) == status
    return said(capsys)


CLONES = {
    "plain": ("clone",),
    "bare": ("clone", "--bare"),
    "mirror": ("clone", "--mirror"),
    "shallow": ("clone", "--depth=1"),
    "shallow, bare": ("clone", "--depth=1", "--bare"),
    "partial, with its files": ("clone", "--filter=blob:none"),
}


@pytest.mark.parametrize("how", CLONES)
def test_clones_of_all_kinds(
    how: str,
    project: Sessions,
    upstream: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clone = tmp_path / "clone"
    plain_git(*CLONES[how], "--quiet", upstream.as_uri(), str(clone), folder=tmp_path)
    monkeypatch.chdir(clone)
    assert tried(project, capsys, "--onto-git=HEAD", status=0)["counts"] == {"offset": 1}
    monkeypatch.chdir(tmp_path)
    refs = project.lab.git
    for url in (str(clone), clone.as_uri()):
        refs.run("update-ref", "-d", f"refs/vpatch/git/{NEXT}")
        answer = tried(project, capsys, f"--upstream-git={url}", status=0)
        assert answer["counts"] == {"offset": 1}


def test_a_partial_clone_without_its_files(
    project: Sessions,
    upstream: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(upstream, {"vllm/b.py": b"none has this\n" + numbered(40)})
    plain_git("commit", "--quiet", "-am", "new", folder=upstream)
    clone = tmp_path / "clone"
    options = ("--quiet", "--filter=blob:none", "--no-checkout")
    plain_git("clone", *options, upstream.as_uri(), str(clone), folder=tmp_path)
    monkeypatch.chdir(clone)
    error = tried(project, capsys, "--onto-git=HEAD", status=4)["error"]
    assert error["code"] == "partial-clone"
    assert error["message"] == f"{clone} is a partial clone: it lacks 1 of the files of 'HEAD'"
    *_, options_said = error["hint"].partition(f"git -C {clone} ")
    plain_git(*options_said.split(), folder=clone)
    assert tried(project, capsys, "--onto-git=HEAD", status=0)["counts"] == {"offset": 1}


def test_the_state_of_the_worktree_is_no_matter(
    project: Sessions,
    upstream: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_git("checkout", "--quiet", "--detach", folder=upstream)
    write(upstream, {"vllm/b.py": b"dirty\n", "foreign": b"x\n"})
    (upstream / ".git/MERGE_HEAD").write_text(git(upstream, "rev-parse", "clashes") + "\n")
    before = git(upstream, "status", "--porcelain")
    monkeypatch.chdir(upstream / "vllm")
    assert tried(project, capsys, "--onto-git=HEAD", status=0)["counts"] == {"offset": 1}
    assert tried(project, capsys, "--onto-git=@~1", status=3)["counts"] == {"conflict": 1}
    assert git(upstream, "status", "--porcelain") == before


@pytest.mark.parametrize(
    "revision",
    ["--foo", "--output=evil", "-h", "", "none", "HEAD^{tree}", "fits..clashes", "HEAD:setup.py"],
)
def test_what_is_no_commit(
    revision: str,
    project: Sessions,
    upstream: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(upstream)
    error = tried(project, capsys, f"--onto-git={revision}", status=2)["error"]
    assert error["code"] == "no-revision"
    said_of = f"--onto-git names {revision!r}, which is no commit of {upstream}"
    assert error["message"] == said_of
    assert not (upstream / "evil").exists()


def test_a_shallow_clone_that_lacks_the_commit_says_so(
    project: Sessions,
    upstream: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_git("clone", "--quiet", "--depth=1", upstream.as_uri(), "clone", folder=tmp_path)
    monkeypatch.chdir(tmp_path / "clone")
    error = tried(project, capsys, "--onto-git=HEAD~1", status=2)["error"]
    assert error["hint"].startswith("The clone is shallow: ")


@pytest.mark.parametrize(
    "url", ["", "--upload-pack=touch evil", "ext::sh -c touch% evil", "/nowhere", "fd::0"]
)
def test_what_is_no_remote(
    url: str, project: Sessions, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = tried(project, capsys, f"--upstream-git={url}", status=2)["error"]
    assert error["code"] == "bad-url"
    assert not Path("evil").exists()


def test_a_folder_that_is_no_repository(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").mkdir()
    error = tried(project, capsys, f"--upstream-git={tmp_path / 'plain'}", status=4)["error"]
    assert "does not appear to be a git repository" in error["message"]


@pytest.mark.parametrize(
    "options",
    [
        ("--onto-git=HEAD", "--upstream-git=."),
        ("--onto-git=HEAD", "--source=wheel"),
        ("--upstream-git=.", "--source=wheel"),
    ],
)
def test_options_that_do_not_go_together(
    options: tuple[str, ...],
    project: Sessions,
    upstream: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(upstream)
    assert tried(project, capsys, *options, status=2)["error"]["code"] == "usage"


def test_the_next_command_has_what_this_one_had(
    project: Sessions,
    upstream: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(upstream)
    error = tried(project, capsys, "--onto-git=clashes", status=3)["error"]
    assert error["hint"] == "Nothing was written: a session needs a release."
    plain_git("tag", "--force", NEXT, "clashes", folder=upstream)
    options = f"--upstream-git={upstream}", "--out=else where", "--replace", "--no-resolutions"
    error = tried(project, capsys, *options, status=3)["error"]
    assert error["hint"].startswith(
        f"Nothing was written. vpatch rebase {TAG} {NEXT} --upstream-git={upstream} "
        "'--out=else where' --replace --no-resolutions begins a session"
    )


def committed(project: Sessions, folder: Path) -> None:
    plain_git("init", "--quiet", folder=folder)
    plain_git("add", ".", folder=folder)
    plain_git("commit", "--quiet", "-m", "start", folder=folder)


def test_a_locked_index_is_told_before_anything_is_written(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(project, project.repo)
    head, lock = git(project.repo, "rev-parse", "HEAD"), project.repo / ".git/index.lock"
    lock.touch()
    assert project.begin("--commit", "--json") == 1
    error = said(capsys)["error"]
    assert (error["code"], error["message"].partition(" ")[0]) == ("locked", str(lock))
    assert (git(project.repo, "rev-parse", "HEAD"), project.next.exists()) == (head, False)
    lock.unlink()
    assert project.begin("--commit") == 0
    status = git(project.repo, "status", "--porcelain").splitlines()
    assert [line for line in status if "lock" not in line] == []


def test_a_repository_without_a_commit(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_git("init", "--quiet", folder=project.repo)
    assert project.begin("--commit", "--json") == 2
    assert "has no commit yet to stand on" in said(capsys)["error"]["message"]


def test_patches_that_lie_outside_of_the_repository(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.move(project.repo / "patches", tmp_path / "outside")
    (project.repo / "patches").symlink_to(tmp_path / "outside")
    committed(project, project.repo)
    assert project.begin("--commit", "--json") == 2
    error = said(capsys)["error"]
    assert error["code"] == "no-repository"
    assert f"outside of {project.repo}" in error["message"]
    assert project.begin() == 0


@pytest.mark.parametrize("state", ["detached", "dirty", "subfolder"])
def test_commits_in_every_state(state: str, project: Sessions, tmp_path: Path) -> None:
    top = project.repo.parent if state == "subfolder" else project.repo
    (top / ".gitignore").write_text("cache\nhome\n*.lock\n")
    (project.repo / "mine").write_text("x\n")
    committed(project, top)
    if state == "detached":
        plain_git("checkout", "--quiet", "--detach", folder=top)
    if state == "dirty":
        (project.repo / "mine").write_text("y\n")
        (project.repo / "staged").write_text("z\n")
        plain_git("add", "staged", folder=top)
    before = git(top, "status", "--porcelain", "--untracked-files=no")
    assert project.begin("--commit") == 0
    assert git(top, "status", "--porcelain", "--untracked-files=no") == before
    names = git(top, "show", "--name-only", "--format=", "HEAD").splitlines()
    assert {Path(name).parent.name for name in names} == {NEXT}
    assert vpatch("lint", "--repo", str(project.repo)) == 0
