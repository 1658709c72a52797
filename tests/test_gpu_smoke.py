"""A GPU host without network: vpatch comes in the bundle, and gpu-smoke.sh runs it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

import bundle_lab as lab
import vpatch
from vpatch.cli import cli
from vpatch.errors import HostError, UsageError
from vpatch.progress import SilentProgress
from vpatch.smoke.bundle import Bundle
from vpatch.smoke.bundle_report import bundle_for
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.bundle_tool import Tool, pack_tool, running_tool
from vpatch.upstream.index import Index

REPOSITORY = Path(__file__).parent.parent
HAVE = lab.versions(torch="2.10.0", pip=metadata.version("pip"))
# What `vpatch smoke` ends with there: there is no GPU, or no real torch.
ENDS = 4 if "smoke" in cli.commands else 2


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("index")
    lab.universe(root)
    return lab.publish(root / "simple", *lab.tool_wheels(root / "tool"))


@pytest.fixture(scope="module")
def made(simple: str, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with the vpatch that runs these tests; nothing changes it."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as monkeypatch:
        lab.use_only(simple, monkeypatch)
        return lab.bundle(lab.vllm_wheel(root), root / "bundle", root / "cache", HAVE, None)


@pytest.fixture
def only_this_index(simple: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.use_only(simple, monkeypatch)


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python with nothing installed, under another name."""
    script = tmp_path / "bin" / "bare-python"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script


def gpu_smoke(
    script: Path, *arguments: str | Path, python: Path, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(python), **variables}
    command = ["bash", str(script), *map(str, arguments)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=cwd
    )


# vpatch in the bundle


def test_the_bundle_carries_vpatch_and_what_it_needs(made: Bundle) -> None:
    (own,) = lab.names(made, "tool")
    assert own.startswith(f"vpatch-{metadata.version('vpatch')}-")
    carried = made.manifest["carried"]
    assert carried.keys() >= {"click", "rich", "gitpython", "pydantic-core", "urllib3", "numpy"}
    assert "pytest" not in carried
    assert made.manifest["from_host"]["pip"] == metadata.version("pip")
    packages = lab.names(made, "packages")
    assert {name.split("-")[0] for name in packages} == {"changing", "leaf", "numpy", "steady"}
    assert made.manifest["pythonpath"] == ["vllm", "packages", "tool"]


def test_it_runs_from_the_bundle_alone(made: Bundle, tmp_path: Path) -> None:
    result = lab.run(made.folder / "unpack.py", made.folder / "manifest.json", tmp_path / "site")
    assert result.returncode == 0, result.stderr
    # No site-packages, no git: nothing but the standard library and the bundle.
    environment = {**lab.exported(result.stdout), "PATH": str(tmp_path)}

    def python(*arguments: str) -> str:
        command = [sys.executable, "-S", *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path
        ).stdout

    assert python("-m", "vpatch", "--version").split()[-1] == metadata.version("vpatch")
    where = Path(python("-c", "import vpatch; print(vpatch.__file__)").strip())
    assert where.is_relative_to(tmp_path / "site")
    shipped = {
        path.relative_to(where.parent): path.read_bytes()
        for path in where.parent.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert set(map(str, shipped)) >= {"py.typed", "smoke/gpu-smoke.sh", "smoke/engine/start.py"}
    source = Path(vpatch.__path__[0])
    assert all(data == (source / path).read_bytes() for path, data in shipped.items())


@pytest.mark.usefixtures("only_this_index")
def test_a_changed_vpatch_changes_only_the_group_of_its_own(made: Bundle, tmp_path: Path) -> None:
    package = tmp_path / "copy"
    shutil.copytree(vpatch.__path__[0], package, ignore=shutil.ignore_patterns("__pycache__"))
    copied = dataclasses.replace(running_tool(), package=package)
    wheel, cache = lab.vllm_wheel(tmp_path), tmp_path / "cache"
    (package / ".#tags.py").write_text("an editor's")
    (package / "notes.txt").write_text("mine")
    same = lab.bundle(wheel, tmp_path / "same", cache, HAVE, copied)
    assert same.manifest == made.manifest
    (package / "tags.py").write_text("changed = True\n")
    changed = lab.bundle(wheel, tmp_path / "changed", cache, HAVE, copied)
    for group in {file["group"] for file in made.manifest["files"]}:
        assert (lab.names(changed, group) == lab.names(made, group)) is (group != "tool")


def test_a_vpatch_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="holds no modules"):
        pack_tool(Tool("1", (), tmp_path), tmp_path / "store")
    assert not (tmp_path / "store").exists()


# the script


def test_it_unpacks_once_and_runs_the_smoke(
    made: Bundle, tmp_path: Path, bare_python: Path
) -> None:
    site = tmp_path / "site"
    runs = [
        gpu_smoke(
            REPOSITORY / "ci/gpu-smoke.sh",
            made.folder,
            python=bare_python,
            cwd=tmp_path,
            SMOKE_SITE=str(site),
        )
        for _ in range(2)
    ]
    for result in runs:
        assert result.returncode == ENDS, result.stderr
        assert "vpatch smoke: " in result.stderr
        assert "Traceback" not in result.stderr
    assert sorted(path.name.rpartition("-")[0] for path in site.iterdir()) == [
        "packages",
        "tool",
        "vllm",
    ]


@pytest.mark.usefixtures("only_this_index")
def test_the_bundle_runs_itself_with_the_options_given(tmp_path: Path, bare_python: Path) -> None:
    """No checkout: the script of the bundle, pieces of two bundles in one folder, a vpatch that
    says what it was called with."""
    tell = "import json, os, sys, vllm\nprint(json.dumps([sys.argv[1:], vllm.NAME]))\nsys.exit(3)\n"
    files = {"__init__.py": "", "__main__.py": tell}
    have = tmp_path / "have.json"
    have.write_text(json.dumps([{"name": name, "version": str(HAVE[name])} for name in HAVE]))
    patched = {"vllm/model.py": b"NAME = 'patched'\n"}
    reports = [
        bundle_for(
            lab.vllm_wheel(tmp_path, files=changes, local=local),
            have,
            tmp_path / "out" / name,
            target=Target(lab.HERE),
            piece_size=20_000,
            index=Index.from_pip_config(),
            cache=tmp_path / "cache",
            progress=SilentProgress(),
            tool=lab.small_tool(tmp_path / "source", files=files),
        )
        for name, changes, local in (("stock", {}, ""), ("patched", patched, "+kimi.1"))
    ]
    host = tmp_path / "host"
    for report in reports:
        place = host / report.folder.name
        place.mkdir(parents=True)
        for name in report.files:
            shutil.copy(report.folder / name, place)
        assert report.pieces is not None
        shutil.copytree(report.pieces, host / "pieces", dirs_exist_ok=True)
    told = {}
    for report, options in zip(reports, ([], ["--tier", "full"]), strict=True):
        words = report.command.split()
        assert words[0] == "bash"
        if sys.version_info >= (3, 11):  # a module here must not be taken for the bundle's
            (host / "vllm.py").write_text("NAME = 'wrong'\n")
        result = gpu_smoke(Path(words[1]), *options, python=bare_python, cwd=host)
        assert result.returncode == 3, result.stderr
        told[report.release, report.wheel] = json.loads(result.stdout)
    command = ["smoke", "--installed", str(bare_python), "--device", "cuda"]
    assert list(told.values()) == [
        [[*command, "--tier", "core", "--runner", "all"], "stock"],
        [[*command, "--tier", "full"], "patched"],
    ]
    assert len(list((host / "smoke-site").glob("packages-*"))) == 1
    libraries = list((host / "smoke-site").glob("vllm-*/vllm/_C.abi3.so"))
    assert len(libraries) == 2
    assert libraries[0].samefile(libraries[1])


def test_help_is_the_scripts_own(bare_python: Path, tmp_path: Path) -> None:
    result = gpu_smoke(REPOSITORY / "ci/gpu-smoke.sh", "-h", python=bare_python, cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("gpu-smoke.sh [FOLDER]")
    assert "set -" not in result.stdout


@pytest.mark.parametrize("folder", [None, "empty"])
def test_no_bundle_is_a_wrong_use(folder: str | None, tmp_path: Path, bare_python: Path) -> None:
    arguments = [] if folder is None else [folder]
    result = gpu_smoke(REPOSITORY / "ci/gpu-smoke.sh", *arguments, python=bare_python, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "is no smoke bundle" in line


def test_a_host_that_cannot_is_told_in_one_sentence(
    made: Bundle, tmp_path: Path, bare_python: Path
) -> None:
    script = made.folder / "gpu-smoke.sh"
    missing = gpu_smoke(script, python=Path("no-such-python"), cwd=tmp_path)
    assert missing.returncode == 4
    assert missing.stderr == (
        "gpu-smoke: there is no no-such-python: name the interpreter with PYTHON=\n"
    )
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    (copy / "files" / lab.names(made, "tool")[0]).unlink()
    gone = gpu_smoke(copy / "gpu-smoke.sh", python=bare_python, cwd=tmp_path)
    assert gone.returncode == 4
    (line,) = gone.stderr.splitlines()
    assert "is missing" in line
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"group": "tool"', '"group": "other"'))
    old = gpu_smoke(copy / "gpu-smoke.sh", python=bare_python, cwd=tmp_path)
    assert old.returncode == 2
    assert "carries no vpatch" in old.stderr


# the report


@pytest.mark.usefixtures("only_this_index")
def test_the_report_says_what_to_carry_and_what_to_run(tmp_path: Path) -> None:
    have = tmp_path / "have.json"
    have.write_text(json.dumps([{"name": "steady", "version": "1.5"}]))

    def report(piece_size: int | None, folder: Path) -> Mapping[str, object]:
        made = bundle_for(
            lab.vllm_wheel(tmp_path),
            have,
            folder,
            target=Target(lab.HERE),
            piece_size=piece_size,
            index=Index.from_pip_config(),
            cache=tmp_path / "cache",
            progress=SilentProgress(),
            tool=lab.small_tool(tmp_path / "source", "deep"),
        )
        sizes = [file.stat().st_size for file in (folder / "files").iterdir()]
        assert made.size == sum(sizes) == sum(group.size for group in made.groups)
        assert len(sizes) == sum(group.files for group in made.groups)
        assert all((folder / name).exists() for name in made.files)
        text = "\n".join(made.lines())
        assert made.command in text
        assert made.wheel in text
        return json.loads(json.dumps(made.as_dict()))  # type: ignore[no-any-return]

    whole = report(None, tmp_path / "my bundle")
    assert whole["command"] == "bash 'my bundle/gpu-smoke.sh'"
    assert whole["files"] == ["manifest.json", "unpack.py", "gpu-smoke.sh", "files"]
    assert whole["pieces"] is None
    assert whole["loads"] == []
    assert whole["from_host"] == {"steady": "1.5"}
    assert whole["torch"] == {"version": "2.10.0", "from": "bundle"}
    assert whole["groups"][-1] == {  # type: ignore[index]
        "name": "tool-packages",
        "files": 1,
        "size": (tmp_path / "my bundle/files/deep-1.0-py3-none-any.whl").stat().st_size,
    }
    cut = report(30_000, tmp_path / "cut")
    assert cut["files"] == ["manifest.json", "unpack.py", "gpu-smoke.sh", "pieces.json"]
    assert cut["pieces"] == str(tmp_path / "pieces")
    loads: list[list[str]] = cut["loads"]  # type: ignore[assignment]
    there = sorted(path.name for path in (tmp_path / "pieces").iterdir())
    assert sorted(name for load in loads for name in load) == there
    with pytest.raises(UsageError, match="0 bytes"):
        report(0, tmp_path / "none")
    assert not (tmp_path / "none").exists()
