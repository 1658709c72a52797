"""Which rebase in session is meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vpatch.errors import UsageError
from vpatch.rebase.session import Session, load, targets
from vpatch.tags import parse_tag


def chosen(
    repo: Path, names: Sequence[str], worktree: Path | None, option: str = "--status"
) -> Session:
    """The session that is meant.

    Args:
        names: FROM and TO, or TO alone, or nothing.
        worktree: Its folder, where that is given.
        option: What is wanted of it, for the hint.

    Raises:
        UsageError: there is none, or there are several.
        FindingError: its file is damaged.
        HostError: its file cannot be opened.
    """
    tags = [parse_tag(name) for name in names]
    known = targets(repo)
    wanted = tags[-1:] or known
    found = [session for to in wanted if (session := load(repo, to)) is not None]
    if len(tags) > 1:
        found = [session for session in found if session.source == tags[0]]
    if worktree is not None:
        folder = Path(os.path.abspath(worktree))  # noqa: PTH100 - ".." goes, links stay
        found = [session for session in found if session.worktree == folder]
    if not found:
        what = f" {' -> '.join(tags)}" if tags else ""
        where = f" in {worktree}" if worktree is not None else ""
        raise UsageError(
            f"no rebase{what} is in session{where}",
            hint=f"In session: {', '.join(known)}." if known else "vpatch rebase FROM TO",
            code="no-session",
        )
    if found[1:]:
        raise UsageError(
            f"{len(found)} rebases are in session: {', '.join(one.target for one in found)}",
            hint=f"Say which: vpatch rebase {option} TO",
            code="which-session",
        )
    return found[0]
