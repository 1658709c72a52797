"""What GNU patch takes for a diff outside of the diff: quilt would apply it, git and vpatch not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from series_lab import Lab, Step, numbered
from vpatch.findings import FindingsError
from vpatch.patches.patch import Patch
from vpatch.patches.stray import stray_line

HIDDEN = {
    "a unified diff behind X": "X+++ b/vllm/b.py\nX@@ -5 +5 @@\nX-line 5\nX+evil\n",
    "an indented normal diff": "    --- a/vllm/b.py\n    5c5\n    < line 5\n    ---\n    > evil\n",
    "an indented context diff": "  *** a/vllm/b.py\n  --- b/vllm/b.py\n  ***************\n"
    "  *** 5 ****\n  ! line 5\n  --- 5 ----\n  ! evil\n",
    "an ed script": "  *** a/vllm/b.py\n  5d\n  .\n",
}
HARMLESS = [
    "5d of work, and\n12 cases\n",
    "It was\n5c5 before.\n\n> quoted later\n",
    "*******\nstars\n*** and more ***\n",
    "> a quoted line\n< another\n.\n",
    "X marks the spot: +++ here\n",
]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, {"vllm/a.py": numbered(9), "vllm/b.py": numbered(9)})


def patch_with(lab: Lab, body: str) -> bytes:
    change = {"vllm/a.py": numbered(9, changed={5: "five"})}
    ((_, raw),) = lab.patches([Step("0001-a.patch", change, body=f"Why:\n\n{body}\nMore.")])
    return raw


def by_quilts_patch(folder: Path, raw: bytes) -> tuple[bool, bytes]:
    """Whether patch(1), called as quilt calls it, is content, and what it leaves in b.py."""
    (folder / "vllm").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / f"vllm/{name}.py").write_bytes(numbered(9))
    done = subprocess.run(
        [shutil.which("patch") or "patch", "-p1", "-f", "--fuzz=0", "--no-backup-if-mismatch"],
        input=raw, cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0, (folder / "vllm/b.py").read_bytes()


@pytest.mark.parametrize("name", HIDDEN)
def test_a_message_in_which_quilt_sees_a_diff_is_refused(
    name: str, lab: Lab, tmp_path: Path
) -> None:
    raw = patch_with(lab, HIDDEN[name])
    if shutil.which("patch") is not None:
        assert by_quilts_patch(tmp_path / "tree", raw) != (True, numbered(9))
    with pytest.raises(FindingsError) as caught:
        Patch.parse("0001-a.patch", raw)
    assert caught.value.findings[0].code == "second-diff"


@pytest.mark.parametrize("name", HIDDEN)
def test_a_diff_behind_the_signature_is_refused(name: str, lab: Lab) -> None:
    raw = patch_with(lab, "nothing") + b"-- \n2.39.5\n\n"
    assert Patch.parse("0001-a.patch", raw)
    hidden = "".join(f"{line.lstrip()}\n" for line in HIDDEN[name].split("\n"))
    with pytest.raises(FindingsError) as caught:
        Patch.parse("0001-a.patch", raw + hidden.encode())
    assert caught.value.findings[0].code in {"second-diff", "bad-diff"}


@pytest.mark.parametrize("body", HARMLESS)
def test_numbers_stars_and_quotes_are_words(body: str, lab: Lab, tmp_path: Path) -> None:
    raw = patch_with(lab, body)
    assert Patch.parse("0001-a.patch", raw).files
    if shutil.which("patch") is not None:
        assert by_quilts_patch(tmp_path / "tree", raw) == (True, numbered(9))


def test_many_lines_take_no_time() -> None:
    assert stray_line([b"1d"] * 300_000) is None
