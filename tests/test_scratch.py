"""Scratch folders: gone at the end of a run, and behind a killed one with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kill_lab import killed_at
from vpatch import scratch
from vpatch.scratch import LOCK, scratch_folder

_HELD = """
import sys
from vpatch.scratch import scratch_folder
with scratch_folder("merge") as folder:
    (folder / "deep").mkdir()
    (folder / "deep/file").write_text("x")
    (folder / "deep").chmod(0o500)
    print(folder.parent, flush=True)
    sys.stdin.read()
    (folder / "deep").chmod(0o700)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's place for scratch folders, for this process and those that it starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    scratch._clean_up_once.cache_clear()


def held() -> tuple[subprocess.Popen[bytes], Path]:
    """A process that holds a scratch folder until its input ends."""
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", _HELD], stdin=pipe, stdout=pipe)
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().decode().strip())


def made(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    return folder


def next_run() -> None:
    command = "from vpatch.scratch import scratch_folder\nwith scratch_folder('x'): pass"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_a_scratch_folder_is_empty_and_goes(place: Path) -> None:
    with scratch_folder("merge") as one, scratch_folder("merge") as other:
        assert one != other
        assert list(one.iterdir()) == []
        assert one.parent.parent == place
        assert one.parent.name.startswith("vpatch-merge-")
        assert one.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="mine"), scratch_folder("merge"):
        raise ValueError("mine")
    assert list(place.iterdir()) == []


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_else(place: Path) -> None:
    killed, gone = held()
    alive, there = held()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert (gone / "in/deep/file").exists()
        elsewhere = made(place.parent / "elsewhere", LOCK)
        stay = [
            there,
            made(place / "vpatch-out-abcdefgh", "precious"),
            made(place / "vpatch-out-abcdefg1", LOCK, "precious"),
            made(place / "vpatch-out", LOCK),
            made(place / "vpatch-index-abcdefg2"),
            made(place / "vpatch-index-abcdefg3", LOCK),
        ]
        link = place / "vpatch-index-abcdefg4"
        link.symlink_to(elsewhere)
        stay.append(link)
        if os.geteuid() == 0:
            others = made(place / "vpatch-index-abcdefg5", LOCK)
            (others / "in").mkdir()
            os.chown(others, 65534, 65534)
            stay.append(others)
        next_run()
        assert sorted(place.iterdir()) == sorted(stay)
        assert (elsewhere / LOCK).exists()
        assert (there / "in/deep/file").exists()
        # Made by a run that was killed before it had its lock: after an hour nobody makes it still.
        for name in ("vpatch-index-abcdefg2", "vpatch-index-abcdefg3"):
            os.utime(place / name, (time.time() - 4000,) * 2)
        next_run()
        assert sorted(place.iterdir()) == sorted({*stay} - {*stay[4:6]})
    finally:
        killed.kill()
        alive.communicate(b"")
    assert alive.returncode == 0
    assert not there.exists()


def test_kill_9_at_every_moment(place: Path) -> None:
    def work() -> None:
        with scratch_folder("merge") as folder:
            (folder / "file").write_text("x")

    left = 0
    for moment in range(1000):
        scratch._clean_up_once(str(place))
        if not killed_at(moment, work):
            break
        left += bool(list(place.iterdir()))
        for path in place.iterdir():
            os.utime(path, (time.time() - 4000,) * 2)
        scratch._clean_up_once.cache_clear()
        work()
        assert list(place.iterdir()) == []
    assert left > 3


def test_a_command_that_is_killed_leaves_nothing_behind_the_next_one(place: Path) -> None:
    command = [sys.executable, "-m", "vpatch", "lint", "v0.33.0"]
    repo = Path(__file__).parent.parent
    killed = subprocess.Popen(command, cwd=repo, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(place.glob("vpatch-*/in/*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert list(place.iterdir())
    assert subprocess.run(command, cwd=repo, check=False, capture_output=True).returncode == 0
    assert list(place.iterdir()) == []
