"""A folder that takes another one's place: whole, whatever happens in between."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kill_lab import contents, killed_at
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import umask
from vpatch.patches import swap
from vpatch.patches.swap import leftovers, read_folder, replacing

OLD = {"series": b"0001-old.patch\n", "0001-old.patch": b"old\n", "pin.toml": b"old\n"}
NEW = {f"{n:04d}-new.patch": b"new\n" * n for n in range(1, 6)} | {"series": b"new\n"}
NOTES = {"README.md": b"notes\n", "notes/deep/a.txt": b"a\n"}


def ours(path: str) -> bool:
    return path in {"series", "pin.toml"} or path.endswith(".patch")


def make(folder: Path) -> Path:
    for name, data in {**OLD, **NOTES}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


def replace_it(folder: Path) -> None:
    with replacing(folder) as replacement:
        replacement.write(NEW, ours=ours)


def cannot_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "exchange", lambda *_: False)


@pytest.fixture(params=["one-step", "two-renames"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two-renames":
        cannot_exchange(monkeypatch)


def test_the_new_files_and_what_is_not_ours(tmp_path: Path, either_way: None) -> None:
    folder = make(tmp_path / "v9.9.9")
    (folder / "link").symlink_to("/nowhere")
    (folder / "empty").mkdir()
    (folder / "README.md").chmod(0o640)
    folder.chmod(0o751)
    replace_it(folder)
    assert contents(folder) == {**NEW, **NOTES}
    assert os.readlink(folder / "link") == "/nowhere"  # noqa: PTH115
    assert (folder / "empty").is_dir()
    assert (folder / "README.md").stat().st_mode & 0o777 == 0o640
    assert (folder / "0001-new.patch").stat().st_mode & 0o777 == 0o666 & ~umask()
    assert folder.stat().st_mode & 0o777 == 0o751
    assert beside(folder) == ["home", "v9.9.9"]


def test_a_folder_that_did_not_exist(tmp_path: Path) -> None:
    replace_it(tmp_path / "v9.9.9")
    assert contents(tmp_path / "v9.9.9") == NEW
    assert (tmp_path / "v9.9.9").stat().st_mode & 0o777 == 0o777 & ~umask()


def test_this_system_exchanges_in_one_step(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), tmp_path / "other"
    other.mkdir()
    assert swap.exchange(one, other)
    assert contents(other) == {**OLD, **NOTES}
    assert contents(one) == {}
    with pytest.raises(FileNotFoundError):
        swap.exchange(one, tmp_path / "missing")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EACCES])
def test_a_file_system_that_cannot_exchange(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        @staticmethod
        def renameat2(*_: object) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc)
    monkeypatch.setattr(ctypes, "get_errno", lambda: number)
    folder = make(tmp_path / "v9.9.9")
    if number == errno.EACCES:
        with pytest.raises(HostError, match="cannot write"):
            replace_it(folder)
        assert contents(folder) == {**OLD, **NOTES}
    else:
        replace_it(folder)
        assert contents(folder) == {**NEW, **NOTES}


@pytest.mark.parametrize("libc", [None])
def test_a_libc_without_the_call(
    libc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    folder = make(tmp_path / "v9.9.9")
    replace_it(folder)
    assert contents(folder) == {**NEW, **NOTES}


def test_an_error_before_the_exchange_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, either_way: None
) -> None:
    folder = make(tmp_path / "v9.9.9")

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(swap, "sync_tree", full)
    with pytest.raises(HostError, match="No space left"):
        replace_it(folder)
    assert contents(folder) == {**OLD, **NOTES}
    assert beside(folder) == ["home", "v9.9.9"]


def test_an_interrupt_between_two_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "v9.9.9")
    cannot_exchange(monkeypatch)
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_it(folder)
    assert contents(folder) == {**OLD, **NOTES}
    assert beside(folder) == ["home", "v9.9.9"]


def test_a_change_by_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    with replacing(folder) as replacement:
        (folder / "README.md").write_text("an editor wrote this\n")
        with pytest.raises(FindingError, match="changed while") as caught:
            replacement.write(NEW, ours=ours)
    assert caught.value.code == "changed-meanwhile"
    assert contents(folder) == {**OLD, **NOTES, "README.md": b"an editor wrote this\n"}


def test_links_and_files_are_not_replaced(tmp_path: Path) -> None:
    real = make(tmp_path / "real")
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(real)
    file.write_text("precious")
    for folder in (link, file):
        with pytest.raises(UsageError) as caught:
            replace_it(folder)
        assert caught.value.code == "not-a-folder"
    assert contents(real) == {**OLD, **NOTES}


@pytest.mark.parametrize("what", ["link", "folder"])
def test_what_stands_in_a_files_place_is_not_replaced(what: str, tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    path = folder / "pin.toml"
    path.rename(tmp_path / "pin")
    if what == "link":
        path.symlink_to(tmp_path / "pin")
    else:
        path.mkdir()
    before = read_folder(folder)
    with replacing(folder) as replacement:
        with pytest.raises(FindingError, match=r"pin\.toml is a") as caught:
            replacement.write({"pin.toml": b"new\n"}, ours=ours)
        assert (caught.value.code, caught.value.hint != "") == ("in-the-way", True)
        with pytest.raises(FindingError, match=r"pin\.toml is a"):
            replacement.write_file("pin.toml", b"new\n")
    assert read_folder(folder) == before
    assert (tmp_path / "pin").read_bytes() == b"old\n"


def test_only_what_a_killed_run_of_this_folder_left_is_removed(tmp_path: Path) -> None:
    folder = make(tmp_path / "v[9]*")
    others = [".v9.vpatch-abcd_123", ".v[9]*.vpatch-my-own-notes", ".v[9]*.vpatch-abcd_123.bak"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".v[9]*.vpatch-afilefi1").write_text("precious")
    (tmp_path / ".v[9]*.vpatch-alinkli1").symlink_to(folder)
    mine = tmp_path / ".v[9]*.vpatch-abcd_123"
    mine.mkdir()
    assert leftovers(folder) == [mine]
    replace_it(folder)
    stay = [*others, ".v[9]*.vpatch-afilefi1", ".v[9]*.vpatch-alinkli1"]
    assert beside(folder) == sorted([*stay, "home", "v[9]*"])


def as_anybody(code: str, *args: Path) -> str:
    """What a child process says that has to keep to permissions, whoever runs the tests."""
    command = [sys.executable, "-c", code, *map(str, args)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may do everything")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


REPLACE = """
import sys
from pathlib import Path
from vpatch.patches.swap import replacing
with replacing(Path(sys.argv[1])) as replacement:
    replacement.write({"series": b"new"}, ours=lambda path: path == "series")
print("done")
"""


def test_a_read_only_folder_of_a_person_is_carried_over(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    (folder / "notes/deep").chmod(0o555)
    (folder / "notes").chmod(0o555)
    (folder / "notes/deep/out").symlink_to(tmp_path) if os.geteuid() == 0 else None
    assert as_anybody(REPLACE, folder) == "done\n"
    assert (folder / "series").read_bytes() == b"new"
    assert (folder / "notes/deep/a.txt").read_bytes() == b"a\n"
    assert (folder / "notes/deep").stat().st_mode & 0o777 == 0o555
    assert beside(folder) == ["home", "v9.9.9"]
    for name in ("notes", "notes/deep"):
        (folder / name).chmod(0o755)


def test_a_folder_that_cannot_be_read_is_named_before_anything_is_written(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    (folder / "notes/deep").chmod(0)
    try:
        assert "notes/deep cannot be read: Permission denied" in as_anybody(REPLACE, folder)
    finally:
        (folder / "notes/deep").chmod(0o755)
    assert contents(folder) == {**OLD, **NOTES}
    assert beside(folder) == ["home", "v9.9.9"]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    os.mkfifo(folder / "pipe")
    with pytest.raises(HostError, match="pipe is neither"):
        replace_it(folder)
    assert beside(folder) == ["home", "v9.9.9"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder = make(tmp_path / "patches" / "v9.9.9")
    folder.parent.chmod(0o555)
    try:
        with pytest.raises(HostError, match="Permission denied"):
            replace_it(folder)
    finally:
        folder.parent.chmod(0o755)


@pytest.mark.parametrize("way", ["one-step", "two-renames"])
def test_kill_9_at_every_moment(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "two-renames":
        cannot_exchange(monkeypatch)
    seen = {"old": 0, "new": 0, "away": 0}
    for moment in range(10_000):
        folder = make(tmp_path / f"at-{moment}" / "v9.9.9")
        if not killed_at(moment, lambda folder=folder: replace_it(folder)):  # type: ignore[misc]
            break
        if folder.is_dir():
            held = contents(folder)
            assert held in ({**OLD, **NOTES}, {**NEW, **NOTES})
            seen["old" if "0001-old.patch" in held else "new"] += 1
        else:
            seen["away"] += 1
        # The next run finds either, and nothing of the killed one is left afterwards.
        with replacing(folder) as replacement:
            found = {path for path, (kind, _, _) in replacement.before.items() if kind == "file"}
            assert found in ({*OLD, *NOTES}, {*NEW, *NOTES})
        assert beside(folder) == ["v9.9.9"]
    assert seen["old"] > 10
    assert seen["new"] > 1
    assert bool(seen["away"]) == (way == "two-renames")


def _hold(folder: Path, name: str, seconds: float) -> None:
    with replacing(folder) as replacement:
        time.sleep(seconds)
        replacement.write({**NEW, name: b"mine\n"}, ours=ours)


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    spawn = multiprocessing.get_context("spawn")
    runs = [
        spawn.Process(target=_hold, args=(folder, f"000{n}-by-{n}.patch", 0.3)) for n in (7, 8, 9)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
        assert run.exitcode == 0
    mine = [name for name in contents(folder) if "-by-" in name]
    assert len(mine) == 1
    assert read_folder(folder).keys() >= NEW.keys()


def test_the_one_who_waits_is_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "v9.9.9")
    spawn = multiprocessing.get_context("spawn")
    holder = spawn.Process(target=_hold, args=(folder, "0009-x.patch", 1.5))
    holder.start()
    lock = tmp_path / ".v9.9.9.lock"
    deadline = time.monotonic() + 30
    while not lock.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    said: list[str] = []
    with replacing(folder, on_wait=said.append) as replacement:
        assert "0009-x.patch" in replacement.before
    holder.join(30)
    assert said == [f"waiting for another vpatch that holds {lock}"]
