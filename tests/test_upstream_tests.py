"""ci/upstream_tests.py and borrowed binaries, on a small package with a real wheel and pytest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from series_lab import TAG, Lab, Step
from wheel_lab import make_wheel

CI = Path(__file__).resolve().parent.parent / "ci"

PACKAGE = {"vllm/__init__.py": b"", "vllm/core.py": b"def answer():\n    return 41\n"}
FILE = "tests/v1/spec_decode/test_core.py"
BEFORE = (
    b"import pytest\nfrom vllm.core import answer\n\n"
    b"def test_number():\n    assert answer() > 40\n\n"
    b"def test_old():\n    assert answer() == 41\n\n"
    b"def test_gpu():\n    raise RuntimeError('no GPU')\n\n"
    b"@pytest.mark.skip\ndef test_later():\n    pass\n"
)
TESTS = {
    "tests/__init__.py": b"",
    "tests/conftest.py": b"raise RuntimeError('nobody asked for it')\n",
    "tests/v1/__init__.py": b"",
    "tests/v1/spec_decode/__init__.py": b"",
    FILE: BEFORE,
    "tests/config/test_needs.py": b"import nothing_of_this_name\n",
}


def run(
    tmp_path: Path,
    change: Mapping[str, bytes],
    *options: str,
    script: str = "upstream_tests.py",
    package: Mapping[str, bytes] = PACKAGE,
    tests: Mapping[str, bytes] = TESTS,
    more: Sequence[Step] = (),
) -> subprocess.CompletedProcess[str]:
    lab = Lab(tmp_path, {**PACKAGE, **tests})
    series = lab.series(tmp_path / TAG, (Step("0001-change.patch", change), *more))
    wheel = make_wheel(tmp_path, files=package)
    command = [sys.executable, str(CI / script), TAG, "--python", sys.executable]
    command += ["--wheel", str(wheel), "--series", str(series.folder)]
    command += ["--git", str(lab.git.git_dir), lab.base, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_what_fails_before_may_fail_after(tmp_path: Path) -> None:
    done = run(tmp_path, {"vllm/more.py": b"", "tests/v1/spec_decode/test_own.py": b""})
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head.startswith("| upstream's tests | unpatched | patched |")
    counts = "2 passed, 1 failed, 1 skipped"
    core = f"| v1/spec_decode/test_core.py | {counts} | {counts} | speculative decoding |"
    assert rows[0] == core
    assert rows[1].startswith("| config/test_needs.py | 1 failed | 1 failed |")
    assert rows[3] == "2 tests pass on the unpatched release, 2 on the patched."


def test_a_test_that_fails_anew_is_found(tmp_path: Path) -> None:
    done = run(tmp_path, {"vllm/core.py": b"def answer():\n    return 42\n"})
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "BROKEN: tests.v1.spec_decode.test_core::test_old"


def test_a_test_that_is_gone_is_broken(tmp_path: Path) -> None:
    done = run(tmp_path, {FILE: BEFORE.replace(b"def test_old", b"def old")})
    assert done.returncode == 1
    assert "BROKEN: tests.v1.spec_decode.test_core::test_old" in done.stdout


def test_a_module_that_is_not_importable_breaks_its_tests(tmp_path: Path) -> None:
    done = run(tmp_path, {"vllm/core.py": b"def question():\n    return 42\n"})
    assert done.returncode == 1
    assert "BROKEN: tests.v1.spec_decode.test_core::test_number" in done.stdout


def test_a_run_without_an_answer_is_an_error(tmp_path: Path) -> None:
    dies = b"import os\n\ndef test_dies():\n    os._exit(9)\n"
    done = run(tmp_path, {"vllm/more.py": b""}, tests={**TESTS, FILE: dies})
    assert done.returncode == 4
    assert "pytest ended with status 9" in done.stderr
    nothing = b"def test_gpu():\n    raise RuntimeError('no GPU')\n"
    done = run(tmp_path / "again", {"vllm/more.py": b""}, tests={**TESTS, FILE: nothing})
    assert done.returncode == 4
    assert "no test passes on the unpatched release" in done.stderr


def test_files_can_be_asked_for(tmp_path: Path) -> None:
    change = {"vllm/core.py": b"def answer():\n    return 42\n"}
    done = run(tmp_path, change, "--only", "tests/other/test_*.py")
    assert done.returncode == 1
    assert "the release has no such test file" in done.stderr


OF_ANOTHER_RELEASE = {
    "vllm/__init__.py": b"raise RuntimeError('another release')\n",
    "vllm/gone.py": b"",
    "vllm/deep/_C.abi3.so": b"\x7fELF",
}
BORROWER = (
    b"import pathlib, vllm\nfrom importlib.metadata import version\n"
    b"from vllm.core import answer\n\n"
    b"def test_answer():\n    assert answer() == 42\n\n"
    b"def test_what_is_borrowed():\n"
    b"    root = pathlib.Path(vllm.__file__).parent\n"
    b"    assert (root / 'deep/_C.abi3.so').read_bytes() == b'\\x7fELF'\n"
    b"    assert not (root / 'gone.py').exists()\n"
    b"    assert version('vllm').endswith('+cpu')\n"
)


def test_a_series_is_proven_on_borrowed_binaries(tmp_path: Path) -> None:
    test = Step("0002-tests-change.patch", {"tests/test_answer.py": BORROWER})
    change = {"vllm/core.py": b"def answer():\n    return 42\n"}
    done = run(
        tmp_path,
        change,
        "--borrowed",
        script="prove_series.py",
        package=OF_ANOTHER_RELEASE,
        more=[test],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 0 failed | 1 passed, 1 failed" in done.stdout
    assert f"BORROWED: the Python of {TAG} runs on 1 compiled modules of" in done.stderr
    assert "_C.abi3.so" in done.stderr
