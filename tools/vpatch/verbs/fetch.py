"""``vpatch fetch``: releases into the mirror."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import find_repo, series_folder
from vpatch.pipeline import Upstream
from vpatch.report import Report, table
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Release


def run(tags: Sequence[str], upstream: Upstream, repo: Path | None) -> Report:
    """Imports releases; where they are pinned, the pinned hashes are demanded."""
    names = [parse_tag(tag) for tag in tags]
    releases = [pipeline.fetch(tag, upstream, _pin_if_any(tag, repo))[1] for tag in names]
    rows = [
        (r.tag, r.kind, r.tree[:12], r.upstream_commit or "?", r.filename or upstream.git_url or "")
        for r in releases
    ]
    return Report(
        verb="fetch",
        data={"releases": [_release_dict(release) for release in releases]},
        text=table(("tag", "source", "tree", "upstream commit", "from"), rows),
    )


def _release_dict(release: Release) -> dict[str, Any]:
    return {
        "tag": release.tag,
        "kind": release.kind,
        "commit": release.commit,
        "tree": release.tree,
        "upstream_commit": release.upstream_commit,
        "filename": release.filename,
        "sha256": release.sha256,
    }


def _pin_if_any(tag: str, repo: Path | None) -> Pin | None:
    # `fetch` also serves people who have no patches/ at hand.
    try:
        folder = series_folder(find_repo(Path.cwd(), repo), tag)
    except UsageError:
        if repo is not None:
            raise
        return None
    return Pin.read(folder / PIN) if (folder / PIN).is_file() else None
