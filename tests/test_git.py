"""The door to git: nothing of the user's leaks in, and bytes come back as they went."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from vpatch.errors import HostError
from vpatch.git import Git

EVERY_BYTE = bytes(range(256)) * 3 + b"\r\n\x85\x0c\xff no newline at the end"


@pytest.fixture
def repo(tmp_path: Path) -> Git:
    git = Git(tmp_path / "repo.git")
    git.git_dir.mkdir()
    git.run("init", "--quiet", "--bare")
    return git


def test_blobs_come_back_byte_for_byte(repo: Git) -> None:
    blob = repo.line("hash-object", "-w", "--stdin", stdin=EVERY_BYTE)
    assert repo.output("cat-file", "blob", blob) == EVERY_BYTE
    assert repo.read_blobs([blob]) == {blob: EVERY_BYTE}


def test_an_empty_blob_and_a_trailing_newline_survive(repo: Git) -> None:
    names = [repo.line("hash-object", "-w", "--stdin", stdin=data) for data in (b"", b"a\n\n")]
    assert list(repo.read_blobs(names).values()) == [b"", b"a\n\n"]


def test_a_missing_object_is_left_out(repo: Git) -> None:
    blob = repo.line("hash-object", "-w", "--stdin", stdin=b"here")
    assert repo.read_blobs(["0" * 40, blob, f"{blob}:no"]) == {blob: b"here"}


def test_a_newline_in_a_batch_name_is_refused(repo: Git) -> None:
    with pytest.raises(ValueError, match="newline"):
        repo.read_blobs(["abc\ndef"])


def test_big_input_and_output_do_not_block(repo: Git) -> None:
    big = os.urandom(1 << 20) * 12
    blob = repo.line("hash-object", "-w", "--stdin", stdin=big)
    assert repo.read_blobs([blob] * 2 + ["0" * 40])[blob] == big


def test_input_that_git_does_not_read_is_no_failure(repo: Git) -> None:
    assert repo.line("rev-parse", "--is-bare-repository", stdin=b"x" * (1 << 22)) == "true"


def test_a_failure_names_the_repository_and_gits_last_word(repo: Git) -> None:
    with pytest.raises(HostError, match=r"git cat-file failed in .*repo\.git: fatal: ") as caught:
        repo.run("cat-file", "blob", "0" * 40)
    assert caught.value.exit_code == 4
    assert repo.run("cat-file", "-e", "0" * 40, ok=(0, 1)).status == 1


def commit_of(repo: Git) -> str:
    """A commit that every setting could change: content, identity, signature, encoding."""
    with repo.temporary_index() as index:
        blob = index.line("hash-object", "-w", "--stdin", "--path=a.py", stdin=b"$Id$ \r\n\n")
        index.run("update-index", "--add", "--cacheinfo", f"100644,{blob},a.py")
        tree = index.line("write-tree")
    when = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    return repo.run("commit-tree", tree, stdin="Grüße\n".encode(), env=when).stdout.decode()


def test_a_hostile_configuration_changes_nothing(repo: Git, request: pytest.FixtureRequest) -> None:
    before = commit_of(repo)
    patch = repo.output("format-patch", "--stdout", "--root", "-1", before.strip())
    home = request.getfixturevalue("hostile_git_config")
    assert (home / ".gitconfig").is_file()
    assert commit_of(repo) == before
    assert repo.output("format-patch", "--stdout", "--root", "-1", before.strip()) == patch
    repo.run("update-ref", "refs/heads/x", before.strip())  # the hostile hook refuses it


def test_stray_git_variables_change_nothing(
    repo: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = commit_of(repo)
    elsewhere = tmp_path / "elsewhere"
    for name, value in {
        "GIT_DIR": str(elsewhere),
        "GIT_WORK_TREE": str(elsewhere),
        "GIT_INDEX_FILE": str(elsewhere / "index"),
        "GIT_OBJECT_DIRECTORY": str(elsewhere / "objects"),
        "GIT_AUTHOR_NAME": "Someone Else",
        "GIT_COMMITTER_EMAIL": "someone@else.invalid",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_DIFF_OPTS": "--unified=9",
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_NAMESPACE": "else",
        "GIT_LITERAL_PATHSPECS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert commit_of(repo) == before
    assert not elsewhere.exists()
    assert not (tmp_path / "trace").exists()


def test_a_relative_folder_works_from_anywhere(
    repo: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git = Git(Path("repo.git"))
    monkeypatch.chdir("/")
    assert git.line("rev-parse", "--is-bare-repository") == "true"


def test_a_folder_name_is_never_expanded(tmp_path: Path) -> None:
    git = Git(tmp_path / "$HOME ~" / ".git", work_tree=tmp_path / "$HOME ~")
    (tmp_path / "$HOME ~").mkdir()
    git.run("init", "--quiet")
    assert git.line("rev-parse", "--show-toplevel") == str(tmp_path / "$HOME ~")


def test_a_missing_repository_is_not_a_missing_git(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot change to") as caught:
        Git(tmp_path / "gone").run("rev-parse", "HEAD")
    assert caught.value.code == "git"


@pytest.mark.parametrize("stray", [True, False])
def test_a_missing_git_says_so(
    repo: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stray: bool
) -> None:
    # env(1) stays reachable: it is what starts git where stray variables are about.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    if stray:
        monkeypatch.setenv("GIT_DIR", "/nowhere")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(HostError, match="not on PATH") as caught:
        repo.run("rev-parse", "HEAD")
    assert caught.value.code == "git-missing"
    assert "Install git" in caught.value.hint


def test_a_missing_git_is_noticed_at_the_first_import_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from pathlib import Path; from vpatch.git import Git; from vpatch import errors\n"
        "try: Git(Path('/')).run('version')\n"
        "except errors.HostError as error: print(error.code)"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"git-missing\n", done.stderr


def test_the_users_way_to_a_remote_is_kept_and_nothing_else(
    repo: Git, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.write_text("[http]\n\tproxy = http://proxy.invalid\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    user = Git(repo.git_dir, user_config=True)
    assert user.line("config", "http.proxy") == "http://proxy.invalid"
    assert repo.run("config", "http.proxy", ok=(1,)).stdout == b""


def test_a_temporary_index_leaves_nothing_behind(repo: Git) -> None:
    with repo.temporary_index() as index:
        index.run("read-tree", "--empty")
        assert index.index is not None
        folder = index.index.parent
        assert folder.is_dir()
    assert not folder.exists()
    assert not (repo.git_dir / "index").exists()


def test_no_process_or_pipe_is_left_open(repo: Git) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(20):
            repo.run("rev-parse", "HEAD", ok=(0, 128))


def test_an_interrupt_ends_git_too(
    repo: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "pid"
    communicate = subprocess.Popen.communicate

    def interrupted(
        self: subprocess.Popen[bytes], asked: bytes | None = None
    ) -> tuple[bytes, bytes]:
        if not seen.exists():
            seen.write_text(str(self.pid))
            raise KeyboardInterrupt
        return communicate(self, asked)

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        repo.run("cat-file", "--batch")  # waits for what it is asked
    # As long as the interrupt is on its way, nothing else would end it.
    with pytest.raises(ProcessLookupError):
        os.kill(int(seen.read_text()), 0)
    del caught
