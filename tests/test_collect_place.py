"""Where a set lies: a folder, or a place that fsspec knows."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from collect_lab import ABOUT, SHARDED, finished, make_set, names, open_store, write_prompts
from vpatch.collect.begin import work_of
from vpatch.collect.manifest import About
from vpatch.collect.place import Folder, Place, Remote, place_of
from vpatch.collect.verify import verify
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.progress import SilentProgress
from vpatch.talk import ConsoleTally, duration

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def remote() -> Iterator[Place]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield place_of("memory://bucket/sets/one")
    system.store.clear()


@pytest.fixture(params=["folder", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "folder":
        return Folder(tmp_path / "place")
    return request.getfixturevalue("remote")


def test_what_is_put_is_there(place: Place, tmp_path: Path) -> None:
    assert list(place.entries()) == []
    place.make()
    place.put(b"small", "a")
    place.put(b"other", "a")
    local = tmp_path / "local"
    local.write_bytes(b"large")
    place.take(local, "b")
    place.settle()
    assert not local.exists()
    assert {(one.name, one.kind) for one in place.entries()} == {("a", "file"), ("b", "file")}
    stream, size = place.open("b")
    with stream:
        assert (stream.read(), size) == (b"large", 5)
    assert (place.size("a"), place.size("c")) == (5, None)
    with pytest.raises(FileNotFoundError):
        place.open("c")
    place.remove("a")
    place.remove("a")
    assert [one.name for one in place.entries()] == ["b"]


@pytest.mark.parametrize("about", [ABOUT, SHARDED], ids=["files", "shards"])
def test_a_set_far_away(remote: Place, tmp_path: Path, about: About) -> None:
    make_set(remote, tmp_path, 9, about)
    found = verify(remote, SilentProgress(), jobs=2)
    assert not found.findings
    assert found.counts.samples == 9
    assert not work_of(remote).exists()
    if about is ABOUT:
        assert {one.name for one in remote.entries()} == names(9)
    remote.put(b"x", "stranger")
    assert verify(remote, SilentProgress(), jobs=1).by_code == {"foreign": 1}


def test_a_set_far_away_is_gone_on_with_from_another_machine(
    remote: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = write_prompts(tmp_path / "p", 3)
    store = open_store(remote, prompts)
    store.take([finished(tmp_path / "engine", 1)])
    store.publish()  # as at the end of a run that fails
    store.close()
    monkeypatch.setenv("VPATCH_CACHE", str(tmp_path / "other-cache"))
    store = open_store(remote, prompts)
    assert store.missing() == [(0, 0), (2, 2)]
    store.take([finished(tmp_path / "engine", number) for number in (0, 2)])
    store.finish()
    assert not verify(remote, SilentProgress(), jobs=1).findings


def test_a_place_that_loses_bytes(
    remote: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(remote, write_prompts(tmp_path / "p", 1))
    monkeypatch.setattr(Remote, "size", lambda _self, _name: 3)
    with pytest.raises(HostError, match="did not keep"):
        store.take([finished(tmp_path / "engine", 0)])
    store.close()


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *more: Any) -> Any:
        if name == "fsspec":
            raise ImportError("No module named 'fsspec'")
        return imported(name, *more)

    monkeypatch.delitem(sys.modules, "fsspec", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(HostError) as caught:
        place_of("s3://bucket/set")
    assert (caught.value.code, caught.value.exit_code) == ("no-fsspec", 4)
    assert isinstance(place_of("file:///tmp/x"), Folder)


def test_no_place() -> None:
    with pytest.raises(UsageError, match="no place that fsspec knows"):
        place_of("nonsense://x")


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="is no folder"):
        list(Folder(tmp_path / "x").entries())


@pytest.mark.parametrize("make", ["link", "folder"])
def test_a_folder_opens_files_only(tmp_path: Path, make: str) -> None:
    if make == "link":
        (tmp_path / "x").symlink_to(tmp_path / "y")
        (tmp_path / "y").touch()
    else:
        (tmp_path / "x").mkdir()
    with pytest.raises(FindingError):
        Folder(tmp_path).open("x")
    assert Folder(tmp_path).size("x") is None


# what a terminal shows


def test_a_tally_in_lines() -> None:
    out = io.StringIO()
    tally = ConsoleTally(Console(file=out, width=200), "collecting", 10, 4, every=0)
    tally.to(5, "1 MB")  # after whatever an engine's start took
    tally.to(6, "2 MB")
    tally.to(10, "3 MB")
    tally.done()
    first, second, last = out.getvalue().splitlines()
    assert (first, last) == ("[5/10] 1 MB", "[10/10] 3 MB")
    assert second.startswith("[6/10] 2 MB, ")
    assert second.endswith(" left")


def test_a_tally_on_a_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    tally = ConsoleTally(console, "collecting", 10, 4)
    tally.to(7, "1 MB")
    tally.done()
    assert "7/10" in out.getvalue()
    assert "1 MB" in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "said"), [(4.4, "4 s"), (89, "89 s"), (600, "10 min"), (36000, "10.0 h")]
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
