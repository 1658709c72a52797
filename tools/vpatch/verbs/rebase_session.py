"""``vpatch rebase`` in session: a conflict becomes a worktree, and goes on from there."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from vpatch.errors import FindingError, UsageError
from vpatch.patches.repo import series_folder
from vpatch.patches.series import LISTING
from vpatch.patches.swap import making, tidy
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Rebased
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.session import Session, forget, holding, load, save
from vpatch.rebase.session_tree import lay_out
from vpatch.rebase.stand import stand_of
from vpatch.report import Report
from vpatch.tags import parse_tag
from vpatch.verbs import rebase as verb
from vpatch.verbs.rebase import Ground, Wish
from vpatch.verbs.rebase_choose import chosen
from vpatch.verbs.rebase_held import (
    Ask,
    arrived,
    carried,
    check_nothing_lost,
    check_vacant,
    ground_of,
    options,
    remove,
)
from vpatch.verbs.rebase_session_report import aborted, began


def start(source: str, target: str, repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Rebases, and begins a session at the first conflict.

    A session whose worktree is gone has it written again.

    Raises:
        UsageError: a session of this release is there, or its folder is taken; as `verb.run`.
        ConflictError, FindingError, HostError: as `verb.run`.
    """
    if not wish.dry_run:
        known = load(repo, parse_tag(target))
        if known is not None:
            return _again(known, parse_tag(source), repo, upstream)
    return verb.run(source, target, repo, upstream, wish, partial(_begin, repo, upstream, wish))


def _begin(
    repo: Path, upstream: Upstream, wish: Wish, found: Ground, rebased: Rebased, known: Resolutions
) -> Report:
    chosen_folder = wish.worktree or repo.parent / f"vllm-{rebased.target}-rebase"
    folder = Path(os.path.abspath(chosen_folder))  # noqa: PTH100 - ".." goes, links stay
    session = Session(
        source=rebased.source,
        target=rebased.target,
        commits=(found.source.commit, found.target.commit),
        series=found.series.sha256,
        worktree=folder,
        stand=stand_of(found.git, rebased),
        kind=upstream.kind or "",
        git_url=upstream.git_url or "",
        options=options(wish),
    )
    with holding(repo):
        there = load(repo, rebased.target)
        if there is not None:
            raise _in_session(there)
        tidy(folder)
        session = replace(session, was_there=check_vacant(folder))
        # Its file first: a worktree that nobody knows of would be in the way for ever.
        save(repo, session)
        _lay_out(found, repo, session)
    home = series_folder(repo, session.target)
    taken = (home / LISTING).is_file() and wish.out is None and not wish.replace
    return began(
        session, rebased, known, in_the_way=home if taken else None, markdown=wish.markdown
    )


def _lay_out(found: Ground, repo: Path, session: Session) -> None:
    folder = session.worktree
    with making(folder) as scratch:
        fresh = scratch / "new"
        lay_out(found.git, fresh, repo, session.target, session.commits[1], session.stand)
        check_vacant(folder)
        fresh.rename(folder)


def _in_session(session: Session) -> UsageError:
    to = session.target
    return UsageError(
        f"{session.source} -> {to} is in session already, in {session.worktree}",
        hint=f"vpatch rebase --status {to}; then --continue {to}, or --abort {to}",
        code="in-session",
    )


def _again(session: Session, source: str, repo: Path, upstream: Upstream) -> Report:
    """Writes a worktree that is gone once more, with what was resolved so far."""
    if session.source != source or (session.worktree / ".git").exists():
        raise _in_session(session)
    with holding(repo), ground_of(session, repo, upstream) as found:
        tidy(session.worktree)
        check_vacant(session.worktree)
        rebased, known = carried(found, repo, session)
        stand = stand_of(found.git, rebased)
        session = replace(session, stand=stand, leaving=None)
        save(repo, session)
        _lay_out(found, repo, session)
        return began(session, rebased, known)


def abort(repo: Path, ask: Ask) -> Report:
    """``--abort``: the worktree and the session go, and everything is as it was.

    Raises:
        UsageError: there is no such session.
        FindingError: the worktree holds something that would be lost.
        HostError: git failed, or the disk refused.
    """
    with holding(repo):
        session = chosen(repo, ask.names, ask.worktree, "--abort")
        folder = session.worktree
        tidy(folder)
        if (folder / ".git").exists():
            session = arrived(repo, session)
            check_nothing_lost(session, discard=ask.discard)
            remove(session)
        elif folder.is_dir() and any(folder.iterdir()):
            raise FindingError(
                f"{folder} is no worktree any more, and it holds files",
                hint="Move them elsewhere, or remove the folder yourself.",
                code="unknown-work",
            )
        elif session.was_there:
            folder.mkdir(exist_ok=True)
        forget(repo, session.target)
        return aborted(session)
