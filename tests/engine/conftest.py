"""The environments, the releases and the checkpoint that engine tests share."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine import environment
from engine.children import plain
from engine.environment import Say, Site
from vpatch.smoke.library import engine_library

MODELS = {"shape": {}, "targets": [{"name": "target"}], "drafters": []}


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
    """The tiny Kimi that engine tests share, as `models / "target"`."""
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
