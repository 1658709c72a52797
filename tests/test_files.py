from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from vpatch.errors import HostError
from vpatch.files import (
    cache_dir,
    disk_errors,
    locked,
    locked_for_now,
    sha256_file,
    write_atomically,
)


def test_the_cache_follows_vpatch_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VPATCH_CACHE", str(tmp_path / "x"))
    assert cache_dir() == tmp_path / "x"
    monkeypatch.delenv("VPATCH_CACHE")
    assert cache_dir().name == "vpatch"


def test_a_write_is_whole_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"one")
    path.chmod(0o640)
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert "name another place" in caught.value.hint
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_full_cache_is_told_from_a_full_folder_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VPATCH_CACHE", str(tmp_path))
    with pytest.raises(HostError) as caught, disk_errors(tmp_path / "artifacts" / "x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "point VPATCH_CACHE at another place" in caught.value.hint


def test_other_errors_are_not_renamed() -> None:
    with pytest.raises(FileNotFoundError), disk_errors(Path("x")):
        raise FileNotFoundError(errno.ENOENT, "gone")


@pytest.mark.parametrize("lock_it", [locked, locked_for_now])
def test_a_second_process_waits_says_so_and_goes_on_when_the_first_is_killed(
    lock_it: Callable[..., AbstractContextManager[None]], tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys,time\nfrom pathlib import Path\nfrom vpatch import files\n"
            "with getattr(files, sys.argv[2])(Path(sys.argv[1])):\n"
            "    print('held', flush=True)\n    time.sleep(60)",
            str(lock),
            lock_it.__name__,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        said: list[str] = []

        def on_wait(text: str) -> None:
            said.append(text)
            holder.kill()

        begun = time.monotonic()
        with lock_it(lock, on_wait=on_wait):
            assert time.monotonic() - begun < 20
        assert len(said) == 1
        assert str(lock) in said[0]
        assert lock.exists() is (lock_it is locked)
    finally:
        holder.kill()
        holder.communicate()


_COUNT = """
import sys
from pathlib import Path
from vpatch.files import locked_for_now
number = Path(sys.argv[1])
for _ in range(300):
    with locked_for_now(number.with_name("lock")):
        number.write_text(str(int(number.read_text()) + 1))
"""


def test_a_lock_whose_file_goes_excludes_those_who_wait_for_it(tmp_path: Path) -> None:
    """Each of them waits for files that are removed before it gets them."""
    number = tmp_path / "number"
    number.write_text("0")
    counting = [
        subprocess.Popen([sys.executable, "-c", _COUNT, str(number)], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    assert [(each.communicate(timeout=120)[1], each.returncode) for each in counting] == [
        (b"", 0)
    ] * 4
    assert number.read_text() == "1200"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["number"]


@pytest.mark.parametrize("lock_it", [locked, locked_for_now])
def test_a_link_is_no_lock(
    lock_it: Callable[..., AbstractContextManager[None]], tmp_path: Path
) -> None:
    """Nothing is made where it leads: the folder may be somebody's repository."""
    lock, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    lock.symlink_to(elsewhere)
    with pytest.raises(HostError, match="lock") as caught, lock_it(lock):
        pass
    assert "A link stands" in caught.value.hint
    assert lock.is_symlink()
    assert not elsewhere.exists()


def test_a_lock_goes_with_an_error_too(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    seen = []

    def failing() -> None:
        with locked_for_now(lock):
            seen.append(lock.exists())
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        failing()
    assert seen == [True]
    assert not lock.exists()


def test_sha256_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1_000_000)
    assert sha256_file(path) == hashlib.sha256(b"abc" * 1_000_000).hexdigest()
