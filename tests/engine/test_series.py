"""Every test patch passes with the fix before it and fails without it (ci/prove_series.py).

A proof takes minutes and depends on nothing but the trees, the wheel and the files below: it is
kept in the test cache under their hash, so that other messages or index lines cost no second proof.
VPATCH_PROVE_AGAIN=1 proves all the same, VPATCH_PROVE=all the releases that CI leaves to the
nightly too.
Releases without a CPU build borrow the compiled modules of another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import environment
from engine.environment import REPO, Say
from engine.proofs import proof_key
from vpatch.files import sha256_file, write_atomically
from vpatch.patches.series import Series
from vpatch.progress import SilentProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

NEEDS = ("pytest",)
TAGS = environment.PROVEN if os.environ.get("VPATCH_PROVE") == "all" else environment.PROVEN_IN_CI
PROVER = ("ci/prove_series.py", "ci/testbed.py", "ci/overlay.py")


@pytest.mark.parametrize("tag", TAGS)
def test_every_test_patch_fails_without_its_fix(tag: str, release_cache: Path, say: Say) -> None:
    builder = environment.PROVEN[tag]
    wheel = environment.base_wheel(builder, release_cache)
    python = environment.make_site(builder, wheel, release_cache, say, more=NEEDS).python
    key = key_of(tag, wheel, python, release_cache)
    kept = release_cache / "engine" / "proofs" / f"{tag}-{key}"
    if kept.is_file() and not os.environ.get("VPATCH_PROVE_AGAIN"):
        say(f"{tag}: proven before, with the same trees:\n{kept.read_text()}")
        return
    command = [sys.executable, "ci/prove_series.py", tag]
    if builder != tag:
        command.append("--borrowed")
    ran = subprocess.run(
        [*command, "--python", python, "--wheel", wheel],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"exit {ran.returncode}\n{ran.stdout}\n{ran.stderr[-6000:]}"
    say(f"{tag}:\n{ran.stdout}")
    write_atomically(kept, ran.stdout.encode())


def key_of(tag: str, wheel: Path, python: Path, cache: Path) -> str:
    """A hash over everything that a proof depends on."""
    mirror = Mirror.open(cache)
    release = mirror.fetch(tag, index=Index.from_pip_config(), progress=SilentProgress())
    around = (
        sha256_file(wheel),
        python.parent.parent.name,  # named by what is installed in it
        *(sha256_file(REPO / name) for name in PROVER),
    )
    return proof_key(mirror.git, release.tree, Series.read(REPO / "patches" / tag), around)
