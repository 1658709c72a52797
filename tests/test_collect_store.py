"""The writing side of a set: killed at every moment, and gone on with."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collect_lab import (
    ABOUT,
    SHARDED,
    finished,
    make_set,
    names,
    open_store,
    sample_file,
    write_prompts,
)
from kill_lab import contents, killed_at, spread, steps
from vpatch.collect.begin import begin, check_place, work_of
from vpatch.collect.journal import Journal, recover
from vpatch.collect.layout import WORK
from vpatch.collect.lines import Failed, Sample
from vpatch.collect.manifest import About
from vpatch.collect.place import Folder
from vpatch.collect.table import Seen, spans
from vpatch.collect.verify import verify
from vpatch.errors import HostError, UsageError
from vpatch.progress import SilentProgress

COUNT = 4


def data_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Files of samples: which file on the disk each is, and its bytes."""
    found = [*folder.glob("hs_*"), *folder.glob("shard-*")]
    return {one.name: (one.stat().st_ino, one.read_bytes()) for one in found}


class Lab:
    def __init__(self, folder: Path, about: About) -> None:
        self.folder = folder
        self.about = about
        self.place = Folder(folder / "set")
        self.prompts = write_prompts(folder / "prompts.jsonl", COUNT)

    def fresh(self) -> None:
        shutil.rmtree(self.place.folder, ignore_errors=True)

    def collect(self) -> None:
        """What a run does: the engine writes what is missing, in two goes."""
        about = check_place(self.place, resume=True)
        assert about is None or about == self.about
        store = begin(self.place, self.about, self.prompts, None, shard_bytes=1000).store
        if store is None:
            return
        missing = [n for first, last in store.missing() for n in range(first, last + 1)]
        staging = store.work / "staging"
        for part in (missing[:2], missing[2:]):
            assert not store.take([finished(staging, number) for number in part])
        store.finish()

    def found(self) -> set[str]:
        return set(verify(self.place, SilentProgress(), jobs=1).by_code)


@pytest.fixture(params=[ABOUT, SHARDED], ids=["files", "shards"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    return Lab(tmp_path, request.param)


def test_a_kill_at_any_moment_loses_nothing_that_has_its_name(lab: Lab) -> None:
    whole = steps(lab.collect)
    expected = contents(lab.place.folder)
    assert not lab.found()
    died = 0
    for moment in spread(whole, 40):
        lab.fresh()
        died += killed_at(moment, lab.collect)
        there = data_of(lab.place.folder)
        if (lab.place.folder / "manifest.json").exists():
            assert lab.found() <= {"unfinished"}, moment
        lab.collect()
        assert not lab.found(), moment
        after = data_of(lab.place.folder)
        assert {name: after[name] for name in there} == there, moment
        if lab.about is ABOUT:
            assert contents(lab.place.folder) == expected, moment
    assert died > 20


@pytest.mark.nightly
@pytest.mark.slow
def test_two_kills_in_a_row(lab: Lab) -> None:
    whole = steps(lab.collect)
    for first in spread(whole, 12):
        for second in spread(whole, 12):
            lab.fresh()
            killed_at(first, lab.collect)
            there = data_of(lab.place.folder)
            killed_at(second, lab.collect)
            lab.collect()
            assert not lab.found(), (first, second)
            after = data_of(lab.place.folder)
            assert {name: after[name] for name in there} == there


def test_a_kill_while_a_set_grows(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ABOUT)
    lab.collect()
    small = contents(lab.place.folder)
    write_prompts(lab.prompts, COUNT + 2)

    def prepare() -> None:
        lab.fresh()
        for name, data in small.items():
            lab.place.folder.mkdir(exist_ok=True)
            (lab.place.folder / name).write_bytes(data)

    prepare()
    for moment in spread(steps(lab.collect), 24):
        prepare()
        killed_at(moment, lab.collect)
        there = data_of(lab.place.folder)
        lab.collect()
        assert not lab.found(), moment
        after = data_of(lab.place.folder)
        assert len(after) == COUNT + 2
        assert {name: after[name] for name in there} == there


# single things


def test_a_torn_line_and_a_line_without_its_file_are_dropped(tmp_path: Path) -> None:
    place = Folder(tmp_path / "set")
    place.make()
    (tmp_path / "set/hs_0.safetensors").write_bytes(b"12345")
    (tmp_path / "set/hs_2.safetensors").write_bytes(b"1234")
    journal = Journal(tmp_path / "samples.jsonl")
    lines = [
        Sample(n, None, f"hs_{n}.safetensors", 1, 1, "0" * 64, "stop", 5, "0" * 64)
        for n in range(3)
    ]
    journal.add([*lines[:2], Failed(3, None, "no"), lines[2], lines[0]])
    journal.close()
    with (tmp_path / "samples.jsonl").open("ab") as stream:
        stream.write(b'{"sample":3,"file":"hs_3.safe')
    seen = recover(tmp_path / "samples.jsonl", place, 4)
    assert [seen[n] for n in range(4)] == [1, 0, 0, 0]
    (kept,) = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert json.loads(kept)["sample"] == 0


def test_what_lies_between_the_files_of_a_set_is_not_touched(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ABOUT)
    killed_at(steps(lab.collect) // 2, lambda: None)
    lab.collect()
    (lab.place.folder / "manifest.json").unlink()
    (lab.place.folder / "notes.txt").write_text("mine")
    (lab.place.folder / ".hs_1.safetensors.abcd.tmp").touch()
    (lab.place.folder / "hs_99.safetensors").touch()
    lab.collect()
    assert {one.name for one in lab.place.folder.iterdir()} == names(COUNT) | {"notes.txt"}


def test_a_file_that_is_not_its_sample_is_a_failure(tmp_path: Path) -> None:
    place = Folder(tmp_path / "set")
    store = open_store(place, write_prompts(tmp_path / "p", 4))
    staging = tmp_path / "staging"
    files = [
        finished(staging, 0),
        finished(staging, 1, sample_file(2)),
        finished(staging, 2, b"torn"),
        finished(staging, 3),
    ]
    files[3].path.unlink()
    files[3].path.symlink_to(tmp_path / "p")
    failed = store.take(files)
    assert [one.number for one in failed] == [1, 2, 3]
    assert "is a link" in failed[2].reason
    assert not list(staging.iterdir())
    assert (tmp_path / "p").exists()
    assert (store.counts.samples, store.counts.failed) == (1, 3)
    store.finish()
    assert not verify(place, SilentProgress(), jobs=1).findings


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": "p2"}, "the engine calls its prompt otherwise"),
        ({"id": None}, "the engine calls its prompt otherwise"),
        ({"prompt": 9}, "the engine took 9 tokens of a prompt of 2"),
        ({"generated": 9}, "not BF16 [10, 2, 4]"),
        ({"tokens": "0" * 64}, "other token ids than the engine answered"),
    ],
)
def test_an_answer_that_is_not_of_the_prompt(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    store = open_store(Folder(tmp_path / "set"), write_prompts(tmp_path / "p", 2))
    said = dataclasses.replace(finished(tmp_path / "staging", 1), **changes)
    (failed,) = store.take([said])
    store.close()
    assert why in failed.reason
    assert not data_of(tmp_path / "set")


def test_a_sample_is_taken_once(tmp_path: Path) -> None:
    store = open_store(Folder(tmp_path / "set"), write_prompts(tmp_path / "p", 1))
    store.take([finished(tmp_path / "staging", 0)])
    first = data_of(tmp_path / "set")
    store.take([finished(tmp_path / "staging", 0, sample_file(0, more="x"))])
    store.fail([Failed(0, "p0", "late")])
    store.close()
    assert data_of(tmp_path / "set") == first
    assert (store.counts.samples, store.counts.failed) == (1, 0)
    assert not list((tmp_path / "staging").iterdir())


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, ABOUT)
    store = begin(lab.place, ABOUT, lab.prompts, None, shard_bytes=0).store
    assert store is not None
    taken = Folder.take

    def full(place: Folder, local: Path, name: str) -> None:
        if name == "hs_1.safetensors":
            raise HostError("cannot write: no space left", code="disk")
        taken(place, local, name)

    monkeypatch.setattr(Folder, "take", full)
    with pytest.raises(HostError):
        store.take([finished(store.work / "staging", number) for number in range(COUNT)])
    store.close()
    monkeypatch.undo()
    assert sorted(data_of(lab.place.folder)) == ["hs_0.safetensors"]
    lab.collect()
    assert not lab.found()


def test_a_set_from_another_file_system(tmp_path: Path) -> None:
    shm = Path("/dev/shm")  # noqa: S108 - another file system
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no other file system")
    staging = shm / f"vpatch-{os.getpid()}"
    try:
        store = open_store(Folder(tmp_path / "set"), write_prompts(tmp_path / "p", 2))
        store.take([finished(staging, number) for number in range(2)])
        assert not list(staging.iterdir())
        store.finish()
        assert not verify(Folder(tmp_path / "set"), SilentProgress(), jobs=1).findings
    finally:
        shutil.rmtree(staging)


def test_the_work_folder_lies_in_the_set(tmp_path: Path) -> None:
    assert work_of(Folder(tmp_path)) == tmp_path / WORK


def test_a_set_is_not_begun_over_another(tmp_path: Path) -> None:
    make_set(Folder(tmp_path / "set"), tmp_path / "scratch")
    with pytest.raises(UsageError, match="has a set already"):
        check_place(Folder(tmp_path / "set"), resume=False)
    assert check_place(Folder(tmp_path / "set"), resume=True) == ABOUT


@pytest.mark.parametrize(
    ("states", "said"),
    [([0, 0, 1, 0], "0-1, 3"), ([1, 1], ""), ([0], "0"), ([0, 1] * 7, "0, 2, 4, 6, 8, ...")],
)
def test_runs_of_numbers(states: list[int], said: str) -> None:
    seen = Seen(len(states))
    for number, state in enumerate(states):
        seen.put(number, state)
    assert spans(seen.runs(Seen.MISSING)) == said


def test_an_unreadable_prompt_file(tmp_path: Path) -> None:
    run: Callable[[], object] = lambda: begin(  # noqa: E731
        Folder(tmp_path / "set"), ABOUT, tmp_path / "none", None, shard_bytes=0
    )
    with pytest.raises(UsageError, match="cannot be read"):
        run()
