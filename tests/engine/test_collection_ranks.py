"""Two data-parallel ranks of the real engine collect, and `vpatch collect --verify` reads it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from engine import environment
from engine.environment import REPO, Say
from vpatch.collect.place import Folder
from vpatch.collect.verify_served import Found, is_served, verify_served
from vpatch.progress import SilentProgress

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

TAG = "v0.17.1"  # a CPU build of its own; its communicator brings experts' tokens together


def verified(folder: Path) -> Found:
    assert is_served(Folder(folder))
    return verify_served(Folder(folder), SilentProgress(), jobs=1)


def test_each_rank_writes_files_of_its_own(release_cache: Path, tmp_path: Path, say: Say) -> None:
    wheel = environment.patched_wheel(TAG, release_cache, tmp_path / "dist")
    site = environment.make_site(TAG, wheel, release_cache, say)
    work, out = tmp_path / "work", tmp_path / "found.json"
    script = (REPO / "ci/collection_gpu.py", "--cpu", "data-parallel", "--work", work)
    ran = subprocess.run(
        [site.python, *script, "--out", out],
        env={**os.environ, "PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    checks = json.loads(out.read_text())
    rows = checks["rows v1/data-parallel"]
    assert checks["ranks v1/data-parallel"]["files"] == {"0": 12, "1": 12}

    folder = work / "out-data-parallel"
    found = verified(folder)
    assert not found.findings
    assert [(one.name[-2:], len(one.files), one.untold) for one in found.engines] in (
        [("-0", 12, 0), ("-1", 12, 0)],
        [("-1", 12, 0), ("-0", 12, 0)],
    )
    assert sum(one.rows for one in found.engines) == rows["rows"]
    assert {one.said[0].layers for one in found.engines if one.said} == {(0, 1, 3, 8)}

    first, second, *_ = sorted(folder.iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    second.rename(folder / f".{second.name}.tmp")
    assert {(one.file, one.code) for one in verified(folder).findings} == {
        (first.name, "header"),
        (f".{second.name}.tmp", "unfinished"),
    }
