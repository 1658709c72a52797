"""Upstream's own build in the patched tree: on a small project, and on the real release."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

import pytest

from series_lab import Lab
from vpatch import __version__
from vpatch.errors import HostError, UsageError
from vpatch.pipeline import Upstream, prepare
from vpatch.progress import SilentProgress
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.edits import edits_between
from vpatch.wheel.inspect import inspect_wheel
from vpatch.wheel.provenance import origin_of
from vpatch.wheel.source_build import build_environment, build_from_source, checkout
from wheel_lab import contents, origin

# As upstream's: the version comes from setuptools-scm's variable and is written into the package.
SETUP = """\
import os, sys
from pathlib import Path
from setuptools import setup
version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"]
Path("vllm/_version.py").write_text(
    f"__version__ = version = {version!r}\\n__version_tuple__ = version_tuple = (9, 9, 9)\\n"
)
print("CUDA_HOME is", os.environ.get("CUDA_HOME"), flush=True)
exec(os.environ.get("IN_BUILD", ""))
setup(name="vllm", version=version + ".empty", packages=["vllm", "vllm.models"])
"""
TREE = {
    "setup.py": SETUP.encode(),
    "pyproject.toml": b'[build-system]\nrequires = ["setuptools"]\n'
    b'build-backend = "setuptools.build_meta"\n',
    "csrc/ops.cu": b"old\n",
    "vllm/__init__.py": b"from ._version import __version__\n",
    "vllm/models/__init__.py": b"",
    "vllm/models/deep.py": b"x = 0\n",
    "tests/run.sh": ("100755", b"#!/bin/sh\n"),
}
TORCH = "torch==2.13.0"
PATCHED = {"csrc/ops.cu": b"new\n", "vllm/models/deep.py": b"x = 1\n"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", TREE)  # type: ignore[arg-type]


def test_the_checkout_is_the_tree(lab: Lab, tmp_path: Path, hostile_git_config: Path) -> None:
    (hostile_git_config / "attributes").write_text("* text eol=crlf\n")
    checkout(lab.git, lab.base, tmp_path / "out")
    files = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert files == {
        name: content[1] if isinstance(content, tuple) else content
        for name, content in TREE.items()
    }
    assert os.access(tmp_path / "out/tests/run.sh", os.X_OK)
    assert lab.git.run("status", ok=(0, 128)).status == 128  # still bare, no index of its own


def test_the_environment_is_the_callers_with_our_version() -> None:
    caller = {"CUDA_HOME": "/cuda", "MAX_JOBS": "3", "VLLM_VERSION_OVERRIDE": "1", "PATH": "/bin"}
    assert build_environment(caller, origin()) == {
        "CUDA_HOME": "/cuda",
        "MAX_JOBS": "3",
        "PATH": "/bin",
        "SETUPTOOLS_SCM_PRETEND_VERSION": "9.9.9+kimi.3",
        "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM": "9.9.9+kimi.3",
    }


def test_a_small_project_is_built_and_sealed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/the/callers")
    monkeypatch.setenv("PIP_VERBOSE", "1")
    patched = lab.tree(lab.base, PATCHED)
    edits = edits_between(lab.git, lab.base, patched)
    said: list[str] = []
    built = build_from_source(
        lab.git, patched, edits, origin(), out=tmp_path / "out", isolated=False,
        on_line=said.append,
    )  # fmt: skip
    assert built.path.name == "vllm-9.9.9+kimi.3.empty-py3-none-any.whl"
    assert built.version == "9.9.9+kimi.3.empty"
    assert any("CUDA_HOME is /the/callers" in line for line in said)
    assert contents(built.path)["vllm/models/deep.py"] == b"x = 1\n"
    assert [file.path for file in built.provenance.files] == ["vllm/models/deep.py"]
    assert built.provenance.outside == ("csrc/ops.cu",)
    assert inspect_wheel(built.path).findings == ()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        built.path.name, built.checksum.name,
    ]  # fmt: skip


def test_a_failing_build_shows_its_last_lines(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IN_BUILD", "sys.exit('nvcc: no such GPU architecture')")
    with pytest.raises(HostError, match="nvcc: no such GPU architecture") as caught:
        build_from_source(lab.git, lab.base, (), origin(), out=tmp_path / "out", isolated=False)
    assert caught.value.code == "source-build"
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_build_takes_its_compilers_along(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "compiler.pid"
    compiler = [sys.executable, "-c", "import time; time.sleep(600)"]
    start = f"import subprocess; c = subprocess.Popen({compiler!r}); "
    monkeypatch.setenv(
        "IN_BUILD", f"{start}Path({str(mark)!r}).write_text(str(c.pid)); print('GO'); c.wait()"
    )

    def stop() -> None:
        while not mark.exists() or not mark.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), 2)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        build_from_source(lab.git, lab.base, (), origin(), out=tmp_path / "out", isolated=False)
    for _ in range(100):
        if not Path(f"/proc/{mark.read_text()}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the build's child is still running")
    assert not list((tmp_path / "out").iterdir())


def test_a_tree_without_a_build_is_refused(lab: Lab, tmp_path: Path) -> None:
    """As a release that is imported from its wheel: Python files alone."""
    tree = lab.tree(lab.base, {"setup.py": None})
    with pytest.raises(UsageError, match="Python files alone"):
        build_from_source(lab.git, tree, (), origin(), out=tmp_path / "out")


def test_an_interpreter_that_is_none(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="could not be started"):
        build_from_source(
            lab.git, lab.base, (), origin(), out=tmp_path / "out", python=Path("/no/python")
        )


@pytest.fixture(scope="module")
def torch_python(release_cache: Path) -> Path:
    """An interpreter with what upstream's setup.py imports; kept over runs."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = release_cache / f"build-env-{TORCH.replace('==', '-')}-py{version}"
    python = folder / "bin/python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        wanted = [
            "torch==2.13.0",
            "setuptools>=77.0.3,<81",
            "setuptools-scm>=8",
            "wheel",
            "packaging",
        ]
        install = [str(python), "-m", "pip", "install", "--quiet", "--prefer-binary"]
        subprocess.run([*install, "jinja2", "grpcio-tools==1.78.0", *wanted], check=True)
        (folder / "complete").touch()
    return python


@pytest.mark.network
@pytest.mark.slow
def test_the_real_release_without_a_compiler(
    release_cache: Path, torch_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VLLM_TARGET_DEVICE=empty: upstream's whole build, no extension modules."""
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "empty")
    repo = Path(__file__).parent.parent
    upstream = Upstream(release_cache, git_url=None, kind=None, progress=SilentProgress())
    ready = prepare("v0.17.1", repo, upstream)
    git = Mirror.open(release_cache).git
    edits = edits_between(git, ready.applied.base_tree, ready.applied.tree)
    source = origin_of(ready.pin, ready.series, tool=__version__)
    built = build_from_source(
        git, ready.applied.tree, edits, source, out=tmp_path, python=torch_python, isolated=False
    )
    assert built.path.name == f"vllm-0.17.1+{ready.pin.local_version}.empty-py3-none-any.whl"
    inspection = inspect_wheel(built.path)
    assert inspection.findings == ()
    members = contents(built.path)
    assert "vllm/grpc/vllm_engine_pb2.py" in members  # made by the build
    for edit in edits:
        if edit.path.startswith("vllm/") and edit.path.endswith(".py"):
            assert members[edit.path] == edit.data
