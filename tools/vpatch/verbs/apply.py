"""``vpatch apply``: the patched tree, without a checkout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.patches.apply import CLEAN, Applied
from vpatch.patches.called import counted
from vpatch.patches.worktree import Worktree, write_worktree
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.upstream.mirror import Mirror


def run(tag: str, repo: Path, upstream: Upstream, *, bare: bool, worktree: Path | None) -> Report:
    """Computes the patched tree; on request also writes it as a repository."""
    prepared = pipeline.prepare(tag, repo, upstream, bare=bare)
    applied = prepared.applied
    written = None
    if worktree is not None:
        written = write_worktree(
            Mirror.open(upstream.cache).git,
            prepared.release.commit,
            applied,
            prepared.series,
            worktree,
        )
    data = applied.as_dict()
    if written is not None:
        data["worktree"] = {"folder": str(written.folder), "branch": written.branch}
    return Report("apply", data, _text(applied, written))


def _text(applied: Applied, written: Worktree | None) -> RenderableType:
    counts = Counter((patch.topic, patch.verdict) for patch in applied.patches)
    rows = [(topic, str(count), verdict) for (topic, verdict), count in counts.items()]
    others = [patch for patch in applied.patches if patch.verdict != CLEAN]
    count = len(applied.patches)
    summary = (
        f"{applied.tag} ({applied.kind}): {counted(count)}, "
        f"tree {applied.base_tree[:12]} -> {applied.tree[:12]}"
        if count
        else f"{applied.tag} ({applied.kind}): unpatched, tree {applied.tree[:12]}"
    )
    where = plain(f"{written.folder}: branch {written.branch}") if written else None
    return lines(
        table(("topic", "patches", "verdict"), rows) if rows else None,
        *(plain(f"{patch.verdict}: {patch.file}") for patch in others),
        plain(summary),
        where,
    )
