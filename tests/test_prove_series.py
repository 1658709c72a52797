"""ci/prove_series.py on a small package, with real git, a real wheel and a real pytest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from series_lab import TAG, Lab, Step
from wheel_lab import make_wheel

SCRIPT = Path(__file__).resolve().parent.parent / "ci" / "prove_series.py"

PACKAGE = {
    "vllm/__init__.py": b"",
    "vllm/core.py": b"def answer():\n    return 41\n",
    "vllm/deep/__init__.py": b"",
    "vllm/deep/inner.py": b"from vllm.core import answer\n",
}
TESTS = {
    "tests/__init__.py": b"",
    "tests/conftest.py": b"raise RuntimeError('nobody asked for it')\n",
    "tests/helper.py": b"WANTED = 42\n",
}

FIX = Step("0001-answer.patch", {"vllm/core.py": b"def answer():\n    return 42\n"})
TEST = Step(
    "0002-tests-answer.patch",
    {
        "tests/deep/__init__.py": b"",
        "tests/deep/test_answer.py": (
            b"from tests.helper import WANTED\n"
            b"from vllm.deep.inner import answer\n\n"
            b"def test_answer():\n    assert answer() == WANTED\n"
        ),
    },
)


def prove(
    tmp_path: Path,
    steps: Sequence[Step],
    *options: str,
    package: Mapping[str, bytes] = PACKAGE,
) -> subprocess.CompletedProcess[str]:
    lab = Lab(tmp_path, {**PACKAGE, **TESTS})
    series = lab.series(tmp_path / TAG, steps)
    wheel = make_wheel(tmp_path, files=package)
    command = [sys.executable, str(SCRIPT), TAG, "--python", sys.executable]
    command += ["--wheel", str(wheel), "--series", str(series.folder)]
    command += ["--git", str(lab.git.git_dir), lab.base, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def with_test(body: bytes) -> Step:
    return Step(TEST.file, {"tests/test_answer.py": b"import os, pytest\n\n" + body})


def test_a_test_that_needs_its_fix_is_a_proof(tmp_path: Path) -> None:
    more = (
        Step("0003-new-module.patch", {"vllm/new/drafter.py": b"TOKENS = 2\n"}),
        Step("0004-use-it.patch", {"vllm/deep/inner.py": b"from vllm.new.drafter import TOKENS\n"}),
        Step(
            "0005-tests-new-module.patch",
            {
                "tests/test_new.py": (
                    b"from vllm.deep.inner import TOKENS\n\n"
                    b"def test_tokens():\n    assert TOKENS == 2\n"
                )
            },
        ),
    )
    done = prove(tmp_path, (FIX, TEST, *more))
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split(" | ")[0].rstrip() == "patch"
    cells = [[cell.strip() for cell in row.split(" | ")][:3] for row in rows]
    assert cells == [
        ["0002-tests-answer.patch", "1 passed, 0 failed", "0 passed, 1 failed"],
        # Without both patches before it, it cannot even be imported.
        ["0005-tests-new-module.patch", "1 passed, 0 failed", "0 passed, 1 failed"],
    ]


def test_a_test_that_passes_without_its_fix_is_none(tmp_path: Path) -> None:
    done = prove(tmp_path, (FIX, with_test(b"def test_nothing():\n    pass\n")))
    assert done.returncode == 1
    assert "0002-tests-answer.patch passes without its fix" in done.stdout


def test_a_test_that_fails_with_its_fix_is_none(tmp_path: Path) -> None:
    done = prove(tmp_path, (FIX, with_test(b"def test_wrong():\n    assert 1 == 2\n")))
    assert done.returncode == 1
    assert "0002-tests-answer.patch fails with its fix" in done.stdout
    assert "assert 1 == 2" in done.stdout


@pytest.mark.parametrize(
    ("body", "limit", "what"),
    [
        (b"@pytest.mark.skip\ndef test_later():\n    pass\n", "60", "ran no test"),
        (b"def helper():\n    pass\n", "60", "ended with status 5"),
        (b"def test_dies():\n    os._exit(9)\n", "60", "ended with status 9"),
        (b"def test_hangs():\n    import time\n    time.sleep(60)\n", "3", "took more than 3 s"),
    ],
)
def test_a_run_without_an_answer_is_an_error(
    tmp_path: Path, body: bytes, limit: str, what: str
) -> None:
    done = prove(tmp_path, (FIX, with_test(body)), "--timeout", limit)
    assert done.returncode == 4
    assert f"pytest for 0002-tests-answer.patch {what}" in done.stderr


def test_a_test_patch_needs_a_fix_before_it(tmp_path: Path) -> None:
    alone = Step("0003-tests-alone.patch", {"tests/test_alone.py": b"def test_it(): pass\n"})
    done = prove(tmp_path, (FIX, TEST, alone))
    assert done.returncode == 1
    assert "0003-tests-alone.patch only touches tests/, but there is no fix" in done.stderr


def test_the_wheel_has_to_be_of_that_release(tmp_path: Path) -> None:
    other = {**PACKAGE, "vllm/core.py": b"def answer():\n    return 40\n"}
    done = prove(tmp_path, (FIX, TEST), package=other)
    assert done.returncode == 4
    assert "vllm/core.py in the wheel is not the release's" in done.stderr


def test_one_patch_can_be_asked_for(tmp_path: Path) -> None:
    assert prove(tmp_path, (FIX, TEST), "--only", "tests-answer").returncode == 0
    missing = prove(tmp_path / "again", (FIX, TEST), "--only", "another")
    assert missing.returncode == 1
    assert "has no such test patch" in missing.stderr
