"""The project's own series between real releases, against the series that were made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from vpatch.git import Git
from vpatch.patches.chain import chain_findings
from vpatch.patches.pinning import check_pin
from vpatch.patches.repository import scratch_repository
from vpatch.patches.rewrite import write
from vpatch.patches.same import diff_id
from vpatch.patches.series import Series, lint
from vpatch.patches.swap import replacing
from vpatch.rebase.model import Choices, Files, Rebased
from vpatch.rebase.rebase import Side, rebase
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import Step, read_steps
from vpatch.rebase.write import written_out
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import ArchiveKind, Mirror, Release

pytestmark = [pytest.mark.network, pytest.mark.slow]
PATCHES = Path(__file__).parent.parent / "patches"


class Real:
    """One step of the real series, in a repository of its own."""

    def __init__(self, git: Git, mirror: Mirror, source: str, target: str) -> None:
        self.git = git
        self.series = _without_collection(Series.read(PATCHES / source))
        index = Index.from_pip_config()
        self.releases = [mirror.fetch(tag, index=index) for tag in (source, target)]
        self.mirror = mirror

    def go(self, choices: Choices) -> Rebased:
        start, end = (Side(each.tag, each.commit, each.kind) for each in self.releases)
        return rebase(self.git, self.series, start, end, choices, gates=False)

    def by_hand(self) -> tuple[dict[str, Step], Snapshot]:
        """The hand-made series of the target: subject -> patch, and what it makes."""
        made = Snapshot(self.git, self.releases[1].commit)
        series = _without_collection(Series.read(PATCHES / self.releases[1].tag))
        steps = read_steps(self.git, made, series)
        return {step.patch.subject: step for step in steps}, made

    def resolved(self, twins: dict[str, Step], accept: tuple[str, ...] = ()) -> Rebased:
        """The move with every conflict resolved as the hand-made series has it."""
        mine: dict[str, Files] = {}
        while True:
            rebased = self.go(Choices(resolved=mine, accept=accept))
            if not rebased.conflicts:
                return rebased
            carried = rebased.conflicts[0].carried
            assert carried.patch.file not in mine
            after = twins[carried.patch.subject].after
            files = {one.path: after.get(one.path, one.ours) for one in carried.conflicts}
            mine[carried.patch.file] = {**carried.files, **files}


def _without_collection(series: Series) -> Series:
    """Each series that has it has its own: none of them was carried."""
    return replace(series, patches=tuple(p for p in series.patches if p.topic != "collection"))


@contextmanager
def real(cache: Path, source: str, target: str) -> Iterator[Real]:
    mirror = Mirror.open(cache)
    with scratch_repository(mirror.git.git_dir) as git:
        yield Real(git, mirror, source, target)


def differing(git: Git, rebased: Rebased, twins: dict[str, Step], made: Snapshot) -> set[str]:
    """The files of both series that are not the same in the end."""
    ours = Snapshot(git, rebased.tree)
    paths = {path for patch in rebased.patches for path in patch.carried.patch.paths}
    paths |= {path for step in twins.values() for path in step.patch.paths}
    return {path for path in paths if ours.original(path) != made.entry(path)}


def words(rebased: Rebased) -> dict[str, str]:
    return {patch.file[:4]: patch.verdict.word for patch in rebased.patches}


def test_from_v0_16_to_v0_17_1_makes_what_was_made_by_hand(
    release_cache: Path, tmp_path: Path
) -> None:
    with real(release_cache, "v0.16.0", "v0.17.1") as step:
        first = words(step.go(Choices()))
        conflicts = {name for name, word in first.items() if word == "conflict"}
        assert conflicts == {"0001", "0009", "0017", "0018", "0044"}
        assert {name for name, word in first.items() if word == "obsolete"} == {"0020", "0021"}
        twins, made = step.by_hand()
        rebased = step.resolved(twins)
        differ = differing(step.git, rebased, twins, made)
        # What differs is the second model runner, which v0.16.0's series refuses and v0.17.1's
        # serves (0009 in part, 0020 - 0023), with its tests, and a page of docs (0036).
        assert {path for path in differ if not path.startswith("tests/")} == {
            "docs/features/speculative_decoding/eagle.md",
            "vllm/v1/worker/gpu/model_runner.py",
            "vllm/v1/worker/gpu/spec_decode/__init__.py",
            "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
            "vllm/v1/worker/gpu/spec_decode/eagle/utils.py",
        }
        _check_written(step, rebased, tmp_path / "v0.17.1")


def _check_written(step: Real, rebased: Rebased, folder: Path) -> None:
    """The series can be written, and is exact on the sdist and on the wheel."""
    names = [question.name for question in rebased.questions]
    assert set(names) >= {
        f"{each.file}:obsolete" for each in rebased.patches if each.verdict.word == "obsolete"
    }
    tag = step.releases[1].tag
    index = Index.from_pip_config()
    kinds: tuple[ArchiveKind, ...] = ("sdist", "wheel")
    releases: list[Release] = [step.mirror.fetch(tag, index=index, kind=kind) for kind in kinds]
    with replacing(folder) as replacement:
        new, rewritten = written_out(
            step.git,
            tag=tag,
            old=step.series,
            rebased=rebased,
            folder=folder,
            before=replacement.before,
            pin=None,
            releases=releases,
            wheels=(),
        )
        write(replacement, rewritten)
    assert lint(folder) == ()
    series = Series.read(folder, tag)
    found = check_pin(step.git, pin=rewritten.pin, series=series, releases=releases)
    assert found == ()
    assert chain_findings(series, rewritten.pin) == ()
    # A patch keeps its bytes where upstream left its files alone, and gets index lines elsewhere.
    clean = {patch.file for patch in rebased.patches if patch.verdict.word == "clean"}
    kept = {entry.was for entry in new.entries if entry.raw == entry.old}
    assert kept
    assert kept <= clean
    diffs = {patch.file: diff_id(patch) for patch in step.series.patches}
    was = {entry.file: entry.was for entry in new.entries}
    again = [patch for patch in series.patches if was[patch.file] in clean]
    assert len(again) == len(clean)
    assert all(diff_id(patch) == diffs[was[patch.file]] for patch in again)
    assert rewritten.pin.origin is not None
    gone = [patch.file for patch in rebased.patches if patch.verdict.word == "obsolete"]
    assert [left.patch for left in rewritten.pin.origin.left] == gone


def test_from_v0_17_1_to_v0_18_0_what_upstream_has_leaves(release_cache: Path) -> None:
    with real(release_cache, "v0.17.1", "v0.18.0") as step:
        found = words(step.go(Choices()))
    obsolete = {name for name, word in found.items() if word == "obsolete"}
    assert obsolete == {f"{number:04d}" for number in (*range(1, 9), 17, 18, 19)}
    # What is ours alone stays, or says where it conflicts with upstream's own.
    conflicts = {name for name, word in found.items() if word == "conflict"}
    assert conflicts <= {"0009", "0011", "0014", "0024", "0039", "0041", "0045"}


@pytest.mark.parametrize("source", ["v0.26.0", "v0.32.0"])
def test_what_was_dropped_by_hand_is_absorbed_and_nothing_else(
    release_cache: Path, source: str
) -> None:
    with real(release_cache, source, "v0.33.0") as step:
        twins, made = step.by_hand()
        rebased = step.resolved(twins)
        absorbed = {p.file for p in rebased.patches if p.verdict.word == "absorbed"}
        by_hand = {p.file for p in rebased.patches if p.carried.patch.subject not in twins}
        assert absorbed <= by_hand
        differ = differing(step.git, rebased, twins, made)
    if source == "v0.26.0":
        assert {name[:4] for name in absorbed} == {"0032"}
        # 0016 is another patch there; the others say that upstream has them, or test what it has.
        left = {"0032", "0033", "0048", "0049", "0050", "0051"}
        assert {name[:4] for name in by_hand} == left | {"0016"}
        gone = {p.file[:4] for p in rebased.patches if p.verdict.word == "obsolete"}
        assert gone == left - {"0032"}
    else:
        assert absorbed == by_hand == set()
        # The hand-made 0026 has no change of its own in this file, and conflicts over it.
        assert differ <= {
            "vllm/v1/worker/gpu/model_runner.py",
            "tests/v1/spec_decode/test_kimi_eagle3_drafter_options.py",
        }
