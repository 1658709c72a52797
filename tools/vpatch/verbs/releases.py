"""``vpatch releases``: which releases exist, which are pinned, which are in the mirror."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from vpatch.patches.repo import pinned_tags
from vpatch.report import Report, table
from vpatch.upstream.mirror import Mirror

if TYPE_CHECKING:
    from vpatch.upstream.index import Artifact

PROJECT = "vllm"
FIRST_WITH_KIMI_K25 = Version("0.15.0")


@dataclass(frozen=True)
class Entry:
    """One release of the index."""

    tag: str
    date: str
    sdist: bool
    wheels: list[str]
    pinned: bool
    mirror: list[str]

    @property
    def row(self) -> tuple[str, ...]:
        """The entry as a table shows it."""
        sdist, pinned = ("yes" if flag else "" for flag in (self.sdist, self.pinned))
        return (self.tag, self.date, sdist, " ".join(self.wheels), pinned, " ".join(self.mirror))


def run(repo: Path, cache: Path, *, everything: bool) -> Report:
    """Asks the index; newest release first; from Kimi-K2.5's first on unless ``everything``."""
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    artifacts = [a for a in Index.from_pip_config().releases(PROJECT) if not a.yanked]
    if not everything:
        artifacts = [a for a in artifacts if a.version >= FIRST_WITH_KIMI_K25]
    entries = list(_entries(artifacts, set(pinned_tags(repo)), cache))
    headings = ("tag", "date", "sdist", "wheels", "pinned", "in the mirror")
    return Report(
        "releases",
        {"releases": [asdict(entry) for entry in entries]},
        table(headings, [entry.row for entry in entries]),
    )


def _entries(artifacts: Sequence[Artifact], pins: set[str], cache: Path) -> Iterator[Entry]:
    mirrored: dict[str, list[str]] = {}
    for release in Mirror.open(cache).imported():
        mirrored.setdefault(release.tag, []).append(release.kind)
    for version in sorted({a.version for a in artifacts}, reverse=True):
        files = [a for a in artifacts if a.version == version]
        tag = f"v{version}"
        yield Entry(
            tag=tag,
            date=min((a.upload_time or "" for a in files), default="")[:10],
            sdist=any(a.kind == "sdist" for a in files),
            wheels=sorted({a.arch for a in files if a.kind == "wheel" and a.arch}),
            pinned=tag in pins,
            mirror=mirrored.get(tag, []),
        )
