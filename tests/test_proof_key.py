"""The key under which a proof is kept: what the tests run on is in it, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.proofs import proof_key
from series_lab import Lab, Step, numbered, write_series
from vpatch.errors import VpatchError
from vpatch.patches.series import Series

FIX = Step("0001-mend.patch", {"a.py": numbered(40, changed={20: "mended"})})
TEST = Step("0002-tests-mend.patch", {"tests/test_a.py": b"def test_a() -> None: ...\n"})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, {"a.py": numbered(40)})


def key(lab: Lab, series: Series, around: tuple[str, ...] = ("wheel",)) -> str:
    return proof_key(lab.git, lab.base, series, around)


def rewritten(folder: Path, series: Series, edit: tuple[str, str]) -> Series:
    """The same files with one regular expression exchanged in the first of them."""
    raw = {patch.file: patch.raw for patch in series.patches}
    first = series.patches[0].file
    new = re.sub(edit[0].encode(), edit[1].encode(), raw[first], count=1, flags=re.MULTILINE)
    assert new != raw[first]
    write_series(folder, raw | {first: new})
    return Series.read(folder, series.tag)


@pytest.mark.parametrize(
    "edit",
    [
        ("^index [0-9a-f]+", "index " + "1" * 40),
        ("^Because the test asks for it", "Because of another reason"),
        ("^Date: .*", "Date: Sat, 3 Jan 2026 03:04:05 +0100"),
        ("^@@ -17,7 [+]17,7 @@.*\n", "@@ -17,7 +17,7 @@ another function\n"),
    ],
    ids=["index", "message", "date", "hunk"],
)
def test_what_changes_no_tree_costs_no_proof(
    lab: Lab, tmp_path: Path, edit: tuple[str, str]
) -> None:
    series = lab.series(tmp_path / "series", [FIX, TEST])
    other = rewritten(tmp_path / "other", series, edit)
    assert other.sha256 != series.sha256
    assert key(lab, other) == key(lab, series)


@pytest.mark.parametrize(
    "steps",
    [
        [replace(FIX, changes={"a.py": numbered(40, changed={20: "other"})}), TEST],
        [FIX, replace(TEST, changes={"tests/test_a.py": b"def test_b() -> None: ...\n"})],
        # The last tree is the same: another patch makes it.
        [TEST, FIX],
        [replace(FIX, changes={**FIX.changes, **TEST.changes})],
        [FIX, replace(TEST, file="0002-other.patch")],
        [FIX],
        [],
    ],
    ids=["fix", "test", "order", "one", "name", "fewer", "none"],
)
def test_what_changes_a_tree_does(lab: Lab, tmp_path: Path, steps: list[Step]) -> None:
    series = lab.series(tmp_path / "series", [FIX, TEST])
    other = lab.series(tmp_path / "other", steps)
    assert key(lab, other) != key(lab, series)


def test_base_and_surroundings_are_in_it(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / "series", [FIX, TEST])
    base = lab.tree(lab.base, {"b.py": b"b\n"})
    keys = {
        key(lab, series),
        key(lab, series, ("another wheel",)),
        proof_key(lab.git, base, series, ("wheel",)),
    }
    assert len(keys) == 3


def test_a_series_that_does_not_fit_has_no_key(lab: Lab, tmp_path: Path) -> None:
    series = lab.series(tmp_path / "series", [FIX, TEST])
    base = lab.tree(None, {"a.py": b"another file\n"})
    with pytest.raises(VpatchError, match=r"0001-mend\.patch does not fit"):
        proof_key(lab.git, base, series, ())
