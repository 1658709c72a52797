"""The package index that pip is configured for: find, download and verify sdists and wheels.

Cheap to import: what talks to the network is imported when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from packaging.version import Version

from vpatch.progress import Progress

ArtifactKind = Literal["sdist", "wheel"]
Arch = Literal["x86_64", "aarch64", "any"]


@dataclass(frozen=True)
class Artifact:
    """One file that an index lists. The URL never holds credentials.

    ``sha256`` is None where the index lists none: such a file is used only where it lies on this
    machine, or where the caller knows the hash (a pin). ``arch`` is None for platforms that
    vpatch does not build for.
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
    """The package index, its extra indexes and find-links places, as pip sees them."""

    @classmethod
    def from_pip_config(cls) -> Index:
        """Reads pip's effective configuration."""
        raise NotImplementedError

    def releases(self, project: str) -> list[Artifact]:
        """Everything that is listed for a project, in the order of pip's places."""
        raise NotImplementedError

    def find(
        self,
        project: str,
        version: Version | str,
        kind: ArtifactKind,
        arch: Arch | None = None,
        *,
        sha256: str | None = None,
    ) -> Artifact | None:
        """The one file; its ``sha256`` is known. ``sha256``: the hash that a pin wants."""
        raise NotImplementedError

    def download(self, artifact: Artifact, folder: Path, *, progress: Progress) -> Path:
        """The verified file at ``folder/<sha256>/<filename>``, downloaded when not there yet."""
        raise NotImplementedError

    def open_ranges(self, artifact: Artifact) -> IO[bytes] | None:
        """A seekable reader, or None where the server has no range requests."""
        raise NotImplementedError
