"""The package index that pip is configured for: find, download and verify sdists and wheels.

Cheap to import: what talks to the network is imported when it is used, because a command that
finds everything in the cache must not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from vpatch.errors import HostError
from vpatch.files import sha256_file
from vpatch.progress import Progress
from vpatch.upstream.pipconfig import PipConfig, read_pip_config
from vpatch.upstream.urls import local_path, redact

if TYPE_CHECKING:
    from vpatch.upstream.ranges import RangeReader
    from vpatch.upstream.session import Session

ArtifactKind = Literal["sdist", "wheel"]
Arch = Literal["x86_64", "aarch64", "any"]


@dataclass(frozen=True)
class Artifact:
    """One file that an index lists. The URL never holds credentials.

    ``sha256`` is None where the index lists none: such a file is used only where it lies on this
    machine, or where the caller knows the hash (a pin). ``arch`` is None for sdists and for
    platforms that vpatch does not build for.
    """

    filename: str
    url: str
    sha256: str | None
    size: int | None
    kind: ArtifactKind
    version: Version
    arch: Arch | None = None
    yanked: bool = False
    upload_time: str | None = None


class Index:
    """The main index, the extra indexes and the find-links places, as pip sees them.

    A place that lacks a project is skipped, as pip does. A place that cannot be reached is an
    error, which it is not for pip: what else would decide which file is used is the weather.
    """

    def __init__(self, config: PipConfig) -> None:
        self._config = config
        self._listings: dict[str, list[Artifact]] = {}
        self._connection: Session | None = None

    @classmethod
    def from_pip_config(cls) -> Index:
        """The index that pip is configured for on this machine.

        Raises:
            HostError: pip's configuration cannot be read.
        """
        return cls(read_pip_config())

    @property
    def places(self) -> list[str]:
        """Where it looks, in order, without credentials: for messages."""
        return [redact(place) for place in self._config.index_urls + self._config.find_links]

    def releases(self, project: str) -> list[Artifact]:
        """Everything that is listed for a project.

        Returns:
            In the order of the places and of each listing; the same file (name and hash) once;
            empty if no place has the project.

        Raises:
            HostError: A place cannot be reached, refuses us or answers nonsense.
        """
        if project not in self._listings:
            self._listings[project] = self._read(project)
        return list(self._listings[project])

    def find(
        self,
        project: str,
        version: Version | str,
        kind: ArtifactKind,
        arch: Arch | None = None,
        *,
        sha256: str | None = None,
    ) -> Artifact | None:
        """The one file of a release.

        Args:
            project: The project's name.
            version: The exact version.
            kind: ``sdist`` or ``wheel``.
            arch: For wheels: only this architecture (or a wheel for any).
            sha256: The hash that a pin wants. It chooses among several files and stands in for a
                hash that the index does not list.

        Returns:
            The file with its sha256, or None if no place lists one. Of several wheels the one for
            every Python (abi3, none), then the one for this Python, with the highest build number.

        Raises:
            HostError: As for `releases`; or two places disagree about the file's bytes; or no
                listed file has the hash that the pin wants; or there is no hash at all.
        """
        wanted = version if isinstance(version, Version) else Version(version)
        fitting = [
            artifact
            for artifact in self.releases(project)
            if artifact.kind == kind
            and artifact.version == wanted
            and (arch is None or artifact.arch in {arch, "any"})
        ]
        if not fitting:
            return None
        if sha256 is not None:
            return _with_hash(fitting, sha256)
        best = min(fitting, key=_preference)
        return _agreed([artifact for artifact in fitting if artifact.filename == best.filename])

    def download(self, artifact: Artifact, folder: Path, *, progress: Progress) -> Path:
        """The verified file at ``folder/<sha256>/<filename>``, downloaded when not there yet.

        For an artifact that lies on this machine: that file itself, verified.

        Raises:
            HostError: Network, disk, or bytes that are not what the index lists.
        """
        from vpatch.upstream.download import download  # noqa: PLC0415 - see the module's docstring

        return download(self._session(), artifact, folder, progress)

    def open_ranges(self, artifact: Artifact) -> RangeReader | None:
        """The remote file as a seekable stream, without downloading it.

        Returns:
            The stream (the caller closes it), or None where the server has no range requests and
            for a file on this machine, which `download` hands out as it is.

        Raises:
            HostError: The server cannot be reached or refuses us.
        """
        from vpatch.upstream.ranges import open_ranges  # noqa: PLC0415 - see the module's docstring

        if local_path(artifact.url) is not None:
            return None
        return open_ranges(self._session(), artifact)

    def _session(self) -> Session:
        from vpatch.upstream.session import Session  # noqa: PLC0415 - see the module's docstring

        if self._connection is None:
            self._connection = Session(self._config)
        return self._connection

    def _read(self, project: str) -> list[Artifact]:
        from vpatch.upstream.listing import read_find_links, read_index  # noqa: PLC0415 - as above

        session = self._session()
        readers: list[tuple[Callable[[Session, str, str], list[Artifact] | None], str]] = [
            *((read_index, url) for url in self._config.index_urls),
            *((read_find_links, place) for place in self._config.find_links),
        ]
        found: dict[tuple[str, str | None], Artifact] = {}
        for reader, place in readers:
            try:
                listed = reader(session, place, project) or ()
            except OSError as error:
                raise HostError(
                    f"cannot read {redact(place)}: {error.strerror or error}",
                    hint="Make it readable, or leave it out of pip's settings.",
                    code="disk",
                ) from error
            for artifact in listed:
                found.setdefault((artifact.filename, artifact.sha256), artifact)
        return list(found.values())


def _preference(artifact: Artifact) -> tuple[int, int, str]:
    """Smaller is better. Never depends on the order of a listing, nor on this machine's CPU."""
    if artifact.kind == "sdist":
        return 0, 0, artifact.filename
    parts = artifact.filename.removesuffix(".whl").split("-")
    build = int("".join(filter(str.isdigit, parts[2])) or 0) if len(parts) == 6 else 0  # noqa: PLR2004
    python, abi = parts[-3], parts[-2]
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    rank = 0 if abi in {"abi3", "none"} else 1 if here in python.split(".") else 2
    return rank, -build, artifact.filename


def _with_hash(artifacts: list[Artifact], sha256: str) -> Artifact:
    for artifact in artifacts:
        if artifact.sha256 == sha256:
            return artifact
    for artifact in artifacts:
        if artifact.sha256 is None and _local_hash(artifact) in {None, sha256}:
            return replace(artifact, sha256=sha256)
    names = ", ".join(sorted({artifact.filename for artifact in artifacts}))
    raise HostError(
        f"the pin wants sha256 {sha256}, but the package index lists other bytes as {names}",
        hint="Use an index that carries upstream's files. To pin these instead, remove the "
        "pin.toml and run vpatch pin TAG.",
        code="hash-mismatch",
    )


def _agreed(artifacts: list[Artifact]) -> Artifact:
    hashes = {artifact.sha256 for artifact in artifacts if artifact.sha256 is not None}
    name = artifacts[0].filename
    if len(hashes) > 1:
        raise HostError(
            f"pip's package indexes disagree about the bytes of {name}",
            hint="Leave only the index that you trust for it: python -m pip config list",
            code="index-conflict",
        )
    for artifact in artifacts:
        sha256 = artifact.sha256 or _local_hash(artifact)
        if sha256 is not None:
            return replace(artifact, sha256=sha256)
    raise HostError(
        f"{redact(artifacts[0].url)} is listed without a sha256, so it cannot be verified",
        hint="Use an index that lists sha256, or put the file into a find-links folder.",
        code="no-hash",
    )


def _local_hash(artifact: Artifact) -> str | None:
    path = local_path(artifact.url)
    return sha256_file(path) if path is not None and path.is_file() else None
