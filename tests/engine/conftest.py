"""The environment, the releases and the checkpoints that engine tests share."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine import environment
from engine.environment import Say, Site
from engine.starts import Machine, plain
from vpatch.smoke.library import engine_library


def _drafter(name: str, ids: list[int] | None, **more: object) -> dict[str, object]:
    kind = name.removeprefix("short-").split("-")[0]
    target = "short-target" if name.startswith("short-") else "target"
    own = {"kind": kind, "vocabulary": "full" if kind in ("mla31", "mlanorm") else "reduced"}
    where = {"ids": ids, "form": "nested" if ids else "none"}
    return {"name": name, "target": target, **own, **where, **more}


MODELS = {
    "shape": {},
    "targets": [
        {"name": "target"},
        # Compiling takes a minute for eight layers of eight experts.
        {"name": "short-target", "layers": 2, "dense": 2},
    ],
    "drafters": [
        _drafter("llama-1-3-7", [1, 3, 7]),
        _drafter("llama-0-4-8", [0, 4, 8]),
        _drafter("llama-default", None),
        _drafter("mla-1-3-7", [1, 3, 7]),
        _drafter("mla31-0-1-2-7-8", [0, 1, 2, 7, 8]),
        _drafter("mlanorm-default", None),
        _drafter("short-llama-1-2", [1, 2]),
        _drafter("short-llama-0-2", [0, 2]),
        _drafter("short-mla31-0-2", [0, 2]),
        # The same ids and weights, another graph.
        _drafter(
            "short-mlaraw-0-2",
            [0, 2],
            kind="mla31",
            vocabulary="full",
            changes={"norm_output": False},
        ),
    ],
}


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Tells the person at the terminal what takes long, past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def talk(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", file=sys.stderr, flush=True)

    return talk


@pytest.fixture(scope="session")
def engine_python(release_cache: Path, say: Say) -> Path:
    """A Python with torch, for what needs no vLLM: the newest release's."""
    tag = environment.RELEASES[-1]
    wheel = environment.base_wheel(tag, release_cache)
    return environment.make_site(tag, wheel, release_cache, say).python


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of vpatch.smoke.engine, as vpatch lays them out."""
    return engine_library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def models(engine_python: Path, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints that engine tests share."""
    folder = tmp_path_factory.mktemp("models")
    spec = folder / "spec.json"
    spec.write_text(json.dumps({"folder": str(folder), **MODELS}))
    plain(engine_python, library, "vpatch.smoke.engine.models", spec)
    return folder


@pytest.fixture(scope="module", params=environment.RELEASES)
def tag(request: pytest.FixtureRequest) -> str:
    """Each pinned release in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def unpatched(tag: str, release_cache: Path, say: Say) -> Site:
    """The release as it is."""
    wheel = environment.base_wheel(tag, release_cache)
    return environment.make_site(tag, wheel, release_cache, say)


@pytest.fixture(scope="module")
def patched(
    tag: str,
    release_cache: Path,
    say: Say,
    tmp_path_factory: pytest.TempPathFactory,
) -> Site:
    """The release with this repository's series, from the wheel that `vpatch build` makes."""
    out = tmp_path_factory.mktemp("wheel")
    wheel = environment.patched_wheel(tag, release_cache, out)
    return environment.make_site(tag, wheel, release_cache, say)


@pytest.fixture(scope="module")
def machine(
    patched: Site,
    models: Path,
    library: Path,
    release_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Machine:
    """Where engines of the patched release start."""
    scratch = tmp_path_factory.mktemp(f"starts-{patched.tag}")
    return Machine(patched.python, patched, models, scratch, library, release_cache / "engine")
