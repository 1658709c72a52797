"""What engine tests run in: `vpatch smoke`'s own environments, one for each wheel.

They lie in the test cache (VPATCH_TEST_CACHE), where CI's `vpatch smoke` finds them too: releases
of the same torch share it, and each has a small virtual environment that shows torch and what the
release asks for. vLLM itself goes on PYTHONPATH and runs in child processes: the tests never import
it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.patches.pin import Pin
from vpatch.patches.series import Series
from vpatch.progress import SilentProgress
from vpatch.smoke.environment import Environment, make_environment
from vpatch.smoke.wheels import CPU_BUILD
from vpatch.upstream.index import Index
from vpatch.wheel.base import find_base

Say = Callable[[str], None]

REPO = Path(__file__).resolve().parents[2]
RELEASES = ("v0.16.0", "v0.17.1")
# The releases whose series are proven, and whose CPU build each is proven on: the index has none
# for v0.33.0, and v0.26.0's asks for a torch that it has no CPU file of.
PROVEN = {
    "v0.16.0": "v0.16.0",
    "v0.17.1": "v0.17.1",
    "v0.26.0": "v0.32.0",
    "v0.32.0": "v0.32.0",
    "v0.33.0": "v0.32.0",
}
# A proof takes seven minutes on two cores: CI makes one, the nightly all of them.
PROVEN_IN_CI = ("v0.33.0",)


@dataclass(frozen=True)
class Site:
    """A release of vLLM in a folder of its own.

    Attributes:
        tag: The release.
        environment: What it runs in; the folder is first on its path.
    """

    tag: str
    environment: Environment

    @property
    def folder(self) -> Path:
        """What goes on PYTHONPATH."""
        return self.environment.path[0]

    @property
    def python(self) -> Path:
        """Has what the release asks for."""
        return self.environment.python


@dataclass(frozen=True)
class Edit:
    """A piece of a file, which stands there once, and what takes its place."""

    file: str
    old: str
    new: str


class _Talk(SilentProgress):
    def __init__(self, talk: Say) -> None:
        self._talk = talk

    def say(self, text: str) -> None:
        self._talk(text)


def base_wheel(tag: str, cache: Path) -> Path:
    """The unpatched CPU build of a release, from the index that pip is configured for."""
    pin = Pin.read(REPO / "patches" / tag / "pin.toml")
    index = Index.from_pip_config()
    base = find_base(CPU_BUILD, pin, arch=None, index=index, cache=cache, progress=SilentProgress())
    return base.path


def patched_wheel(tag: str, cache: Path, out: Path) -> Path:
    """The same with this repository's series: what a user's `vpatch build` makes."""
    command = [sys.executable, "-m", "vpatch", "build", tag, "--base", CPU_BUILD, "--json"]
    command += ["--repo", str(REPO), "--out", str(out)]
    environment = os.environ | {"VPATCH_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise AssertionError(f"vpatch build {tag}: exit {done.returncode}\n{done.stderr}")
    return Path(json.loads(done.stdout)["wheel"])


def make_site(tag: str, wheel: Path, cache: Path, say: Say, *, more: Sequence[str] = ()) -> Site:
    """A wheel of a release and its environment, made where they are not in the test cache yet."""
    made = make_environment(wheel, "cpu", cache=cache, progress=_Talk(say), more=more)
    return Site(tag, made)


def edited(site: Site, edits: Sequence[Edit], folder: Path) -> Site:
    """A release with some of its text exchanged; a folder of links, but for those files.

    Raises:
        AssertionError: A file does not hold the old text, or holds it more than once.
    """
    copy = _linked(site, folder)
    for edit in edits:
        file = _own(copy, edit.file)
        text = file.read_text()
        assert text.count(edit.old) == 1, f"{text.count(edit.old)} times in {edit.file}: {edit.old}"
        file.write_text(text.replace(edit.old, edit.new))
    return copy


def patched_up_to(site: Site, last: str, folder: Path) -> Site:
    """An unpatched release with its series applied by git as far as one patch.

    Args:
        site: The release.
        last: A part of that patch's file name.
        folder: Where the copy goes.
    """
    copy = _linked(site, folder)
    series = Series.read(REPO / "patches" / site.tag)
    (end,) = [number for number, patch in enumerate(series.patches) if last in patch.file]
    patches = series.patches[: end + 1]
    for path in {path for patch in patches for path in patch.paths}:
        if path.startswith("vllm/"):
            _own(copy, path)  # git patches no link
    # Not a repository, whatever the folder lies in.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder)}
    for patch in patches:
        git = ["git", "apply", "--include=vllm/*", str(series.folder / patch.file)]
        subprocess.run(git, cwd=copy.folder, env=environment, check=True, capture_output=True)
    return copy


def _linked(site: Site, folder: Path) -> Site:
    # Of the same name: caches of what vLLM finds out about a release go by it.
    made = folder / site.folder.name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(site.folder, made, copy_function=os.symlink, ignore=ignored)
    path = (made, *site.environment.path[1:])
    return replace(site, environment=replace(site.environment, path=path))


def _own(site: Site, path: str) -> Path:
    """A file of the release in the place of the link to it."""
    file = site.folder / path
    if file.is_symlink():
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data)
    return file
