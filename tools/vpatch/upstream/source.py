"""From a release's sdist or wheel to its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from vpatch.errors import HostError
from vpatch.files import sha256_file
from vpatch.progress import Progress
from vpatch.upstream.archive import Member, read_sdist
from vpatch.upstream.importer import (
    VERSION_FILE,
    added_by_packaging,
    commit_in_version_file,
    wheel_member_wanted,
)
from vpatch.upstream.index import Arch, Artifact, ArtifactKind, Index
from vpatch.upstream.zipread import read_wheel

# Always in this order: the machine's own architecture must not decide which wheel is imported.
_ARCHES: tuple[Arch, ...] = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Source:
    """A release's files, without what packaging added."""

    artifact: Artifact
    members: tuple[Member, ...]
    upstream_commit: str | None


def find_source(
    index: Index,
    project: str,
    version: str,
    kinds: Sequence[ArtifactKind],
    wanted: Mapping[str, str],
) -> Artifact | None:
    """The first kind that the index has.

    Args:
        index: Where to look.
        project: The project's name.
        version: The release.
        kinds: In order of preference.
        wanted: kind -> the sha256 that a pin wants.

    Raises:
        HostError: As `Index.find`.
    """
    for kind in kinds:
        for arch in _ARCHES if kind == "wheel" else (None,):
            found = index.find(project, version, kind, arch, sha256=wanted.get(kind))
            if found is not None:
                return found
    return None


def read_source(index: Index, artifact: Artifact, store: Path, progress: Progress) -> Source:
    """Reads a release's files into memory.

    Args:
        index: Where the artifact was found.
        artifact: An sdist, or a wheel of which only the Python files are read.
        store: Where downloads are kept.
        progress: Is told what is waited for.

    Raises:
        HostError: Network, disk, wrong bytes, a hostile or damaged archive.
    """
    if artifact.kind == "sdist":
        members = list(read_sdist(_downloaded(index, artifact, store, progress)))
    else:
        members = _wheel_members(index, artifact, store, progress)
    versions = [member.data for member in members if member.path == VERSION_FILE]
    return Source(
        artifact=artifact,
        members=tuple(member for member in members if not added_by_packaging(member)),
        upstream_commit=commit_in_version_file(versions[0]) if versions else None,
    )


def _downloaded(index: Index, artifact: Artifact, store: Path, progress: Progress) -> Path:
    path = index.download(artifact, store, progress=progress)
    # The store may have rotted since: 30 MB take 0.1 s.
    if sha256_file(path) != artifact.sha256:
        raise HostError(
            f"{path} is not the file any more that was verified when it was downloaded",
            hint=f"Remove it and run it again: rm {path}",
            code="hash-mismatch",
        )
    return path


def _wheel_members(
    index: Index, artifact: Artifact, store: Path, progress: Progress
) -> list[Member]:
    # Ranges cannot be hashed as a whole: each file is checked against the wheel's RECORD instead,
    # and a pin's tree id covers all of them.
    is_here = (store / str(artifact.sha256) / artifact.filename).is_file()
    ranges = None if is_here else index.open_ranges(artifact)
    if ranges is None:
        with _downloaded(index, artifact, store, progress).open("rb") as stream:
            return list(read_wheel(artifact.filename, stream, wheel_member_wanted))
    with ranges:
        progress.start(f"{artifact.filename}: its Python files", None)
        try:
            remote = cast("BinaryIO", ranges)
            members = list(read_wheel(artifact.filename, remote, wheel_member_wanted))
        finally:
            progress.done()
        progress.say(
            f"{artifact.filename}: read {ranges.fetched:,} of {ranges.size:,} bytes "
            f"by {ranges.requests} range requests"
        )
    return members
