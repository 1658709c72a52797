"""The releases that this project is about, from the index that pip is configured for."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from vpatch.progress import SilentProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import ArchiveKind, Mirror, Release

pytestmark = pytest.mark.network

# tag, kind, upstream's commit, the import's commit and tree: the same on every machine.
RELEASES: list[tuple[str, ArchiveKind, str, str, str]] = [
    (
        "v0.15.0",
        "wheel",
        "f17644344",
        "885c06fc392e9d7e0cc5e69e23dffca148408d5f",
        "fa7ae4b6ce70666d8155dc6472d275437aee6b3c",
    ),
    (
        "v0.15.1",
        "wheel",
        "1892993bc",
        "defb9aceb4c081e5464b590360c9416041cf38e4",
        "ecba358d026316b99a75802975363758c4850f3d",
    ),
    (
        "v0.16.0",
        "sdist",
        "89a77b108",
        "e2e8fa6abdc4dc5822f17007a829c1f9b53f1e59",
        "a6a0368e0226280697639297c1e6d9b077ebac79",
    ),
    (
        "v0.17.1",
        "sdist",
        "95c0f928c",
        "f4fb9e806fe684ed5a9a39381ca01093106ebb45",
        "336df4fa07fd23eae37c1fcc156edff1a094edf9",
    ),
]


class Said(SilentProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def index() -> Index:
    """The index that pip is configured for."""
    return Index.from_pip_config()


@pytest.mark.parametrize(("tag", "kind", "upstream", "commit", "tree"), RELEASES)
def test_a_release_is_the_commit_that_it_always_was(
    release_cache: Path,
    index: Index,
    tag: str,
    kind: ArchiveKind,
    upstream: str,
    commit: str,
    tree: str,
) -> None:
    release = Mirror.open(release_cache).fetch(tag, index=index)
    assert (release.kind, release.upstream_commit) == (kind, upstream)
    assert (release.commit, release.tree) == (commit, tree)


def test_a_wheels_python_files_cost_a_hundredth_of_the_wheel(tmp_path: Path, index: Index) -> None:
    said = Said()
    release = Mirror.open(tmp_path).fetch("v0.15.1", index=index, progress=said)
    assert release.commit == RELEASES[1][3]
    (line,) = [line for line in said.lines if "range requests" in line]
    fetched, size = (int(word.replace(",", "")) for word in line.split() if "," in word)
    assert size == 509_219_874
    assert fetched < size // 50, line


def test_sdist_and_wheel_hold_the_same_blobs(release_cache: Path, index: Index) -> None:
    mirror = Mirror.open(release_cache)
    sdist, wheel = (
        blobs(mirror, mirror.fetch("v0.17.1", index=index, kind=kind))
        for kind in ("sdist", "wheel")
    )
    both = sdist.keys() & wheel.keys()
    assert len(both) > 1_300
    assert [path for path in both if sdist[path] != wheel[path]] == []
    # What the wheel alone has is built from other projects.
    assert {path.split("/")[1] for path in wheel.keys() - sdist.keys()} <= {
        "grpc",
        "third_party",
        "vllm_flash_attn",
    }


@pytest.mark.slow
def test_the_import_of_an_sdist_takes_seconds(
    release_cache: Path, tmp_path: Path, index: Index
) -> None:
    Mirror.open(release_cache).fetch("v0.17.1", index=index)
    artifact = index.find("vllm", "0.17.1", "sdist")
    assert artifact is not None
    path = index.download(artifact, release_cache / "artifacts", progress=SilentProgress())
    store = tmp_path / "artifacts" / str(artifact.sha256)
    store.mkdir(parents=True)
    shutil.copy(path, store)
    mirror = Mirror.open(tmp_path)
    begun = time.perf_counter()
    mirror.fetch("v0.17.1", index=index)
    assert time.perf_counter() - begun < 60  # 2 s on two quiet cores
    begun = time.perf_counter()
    assert mirror.find("v0.17.1") is not None
    assert time.perf_counter() - begun < 3  # 3 ms


def blobs(mirror: Mirror, release: Release) -> dict[str, str]:
    """path -> blob id."""
    listing = mirror.git.output("ls-tree", "-r", "-z", release.tree).decode()
    entries = (entry.split("\t", 1) for entry in listing.split("\0") if entry)
    return {path: meta.split()[2] for meta, path in entries}
