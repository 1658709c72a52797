"""Releases of vLLM as commits in a bare repository in the user's cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vpatch.git import Git
from vpatch.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from vpatch.index import Index

Kind = Literal["git", "sdist", "wheel"]


@dataclass(frozen=True)
class Release:
    """One release in the mirror, and where it came from.

    ``upstream_commit`` is upstream's (short where only ``_version.py`` tells it), None if unknown.
    ``filename`` and ``sha256`` name the sdist or wheel; both are None for kind git.
    """

    tag: str
    kind: Kind
    commit: str
    tree: str
    upstream_commit: str | None
    filename: str | None
    sha256: str | None


class Mirror:
    """The bare repository ``<cache>/mirror.git``; refs ``refs/vpatch/<kind>/<tag>``."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.git = Git(cache / "mirror.git")

    @classmethod
    def open(cls, cache: Path) -> Mirror:
        """Opens the mirror; creates it where it is missing."""
        raise NotImplementedError

    def find(self, tag: str, kind: Kind | None = None) -> Release | None:
        """What is already imported; without ``kind``: git before sdist before wheel."""
        raise NotImplementedError

    def imported(self) -> list[Release]:
        """Everything that is imported, oldest version first."""
        raise NotImplementedError

    def fetch(
        self,
        tag: str,
        *,
        index: Index | None = None,
        upstream_git: str | None = None,
        kind: Literal["sdist", "wheel"] | None = None,
        sha256: Mapping[str, str] | None = None,
        progress: Progress = SilentProgress(),  # noqa: B008
    ) -> Release:
        """Imports a release when it is not there yet.

        Args:
            kind: Only this kind; without it the sdist, or the wheel where there is no sdist.
            sha256: kind -> the hash that a pin wants; another hash is refused.
        """
        raise NotImplementedError
