"""The environment, the releases and the checkpoints that engine tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine import environment
from engine.environment import Say, Site
from engine.starts import Machine, plain


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
    """The environment's Python."""
    return environment.make_environment(release_cache, say)


@pytest.fixture(scope="session")
def models(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints that tiny_drafters.py writes."""
    folder = tmp_path_factory.mktemp("models")
    plain(engine_python, "tiny_drafters", folder)
    return folder


@pytest.fixture(scope="module", params=environment.RELEASES)
def tag(request: pytest.FixtureRequest) -> str:
    """Each pinned release in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def unpatched(tag: str, engine_python: Path, release_cache: Path, say: Say) -> Site:
    """The release as it is."""
    wheel = environment.base_wheel(tag, release_cache)
    return environment.unpack(tag, wheel, engine_python, release_cache, say)


@pytest.fixture(scope="module")
def patched(
    tag: str,
    engine_python: Path,
    release_cache: Path,
    say: Say,
    tmp_path_factory: pytest.TempPathFactory,
) -> Site:
    """The release with this repository's series, from the wheel that `vpatch build` makes."""
    out = tmp_path_factory.mktemp("wheel")
    wheel = environment.patched_wheel(tag, release_cache, out)
    return environment.unpack(tag, wheel, engine_python, release_cache, say)


@pytest.fixture(scope="module")
def machine(
    patched: Site,
    engine_python: Path,
    models: Path,
    release_cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Machine:
    """Where engines of the patched release start."""
    scratch = tmp_path_factory.mktemp(f"starts-{patched.tag}")
    return Machine(engine_python, patched, models, scratch, release_cache / "engine")
