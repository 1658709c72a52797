"""``vpatch rebase --continue`` and ``--skip``: what was resolved is taken, and it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vpatch.errors import FindingError, UsageError
from vpatch.patches.called import is_called
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Entry, Question, Rebased
from vpatch.rebase.resolution import refusal, resolution_of
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.session import Session, Settlement, Stand, forget, holding, save
from vpatch.rebase.session_look import check_history, clear_backups, taken, work_in
from vpatch.rebase.session_tree import bring, check_move, move
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.stand import stand_of
from vpatch.report import Report
from vpatch.verbs import rebase as verb
from vpatch.verbs.rebase import Ground, Wish
from vpatch.verbs.rebase_asked import check_names
from vpatch.verbs.rebase_choose import chosen
from vpatch.verbs.rebase_held import (
    Ask,
    arrived,
    carried,
    check_nothing_lost,
    check_worktree,
    ground_of,
    options,
    remove,
    wish_of,
)
from vpatch.verbs.rebase_report import report
from vpatch.verbs.rebase_session_report import asked, ended, stopped
from vpatch.verbs.rebase_upstream import looked


def go_on(repo: Path, upstream: Upstream, ask: Ask, wish: Wish) -> Report:
    """``--continue`` and ``--skip``: takes what was resolved, and goes on to the next conflict.

    Raises:
        UsageError: there is no such session, no worktree, or nothing to skip.
        FindingError: something in the worktree, or about the series, is not as it has to be.
        FindingsError: a conflict that nobody resolved, markers, files of nobody.
        ConflictError, HostError: as `verb.run`.
    """
    with holding(repo):
        option = f"--skip {ask.skip}" if ask.skip else "--continue"
        session = chosen(repo, ask.names, ask.worktree, option)
        check_worktree(session)
        killed = session.leaving is not None
        session = arrived(repo, session)
        # Behind a run that was killed, what waits now has to be seen first.
        settled = session if killed or ask.skip else _settled(session)
        step = _skipped(session, ask) if ask.skip else settled
        step = replace(step, options=options(wish_of(session, wish)))
        with ground_of(step, repo, upstream) as found:
            rebased, known = carried(found, repo, step)
            check_names(rebased, found.series, wish.accept)
            ends = (found.source, found.target)
            rebased = looked(found.git, rebased, *ends, upstream, between=wish.between)
            doubts = _doubts(rebased, session.stand.patch)
            if doubts and session.stand.patch in step.settled:
                return asked(session, rebased, doubts)
            stored = _store(found, rebased, step, known) if ask.store else ()
            session = _moved(found, repo, session, step, stand_of(found.git, rebased))
            if rebased.conflicts:
                return stopped(session, rebased, known, stored)
            if rebased.questions:
                return asked(session, rebased, rebased.questions, known, stored)
            where = replace(upstream, git_url=session.git_url or None)
            written = verb.write_out(found, rebased, repo, where, wish_of(session, wish))
            left = _end(repo, session)
            done = report(rebased, written, known=known, markdown=wish.markdown)
            return ended(done, session, stored, left)


def _settled(session: Session) -> Session:
    """The session with what a person made of the patch that conflicts."""
    stand = session.stand
    if not stand.patch:
        check_history(session.worktree, session.target, stand)
        return session
    files = taken(session.worktree, session)
    return replace(session, settled={**session.settled, stand.patch: Settlement(stand.head, files)})


def _skipped(session: Session, ask: Ask) -> Session:
    name = ask.skip
    stand = session.stand
    if not (stand.patch and is_called(stand.patch, name)):
        raise UsageError(
            f"--skip names {name!r}, and the rebase stands at {stand.patch or 'its end'}",
            hint=f"Only the patch that conflicts can be left out: --skip {stand.patch}"
            if stand.patch
            else f"vpatch rebase --continue {session.target}",
            code="other-patch",
        )
    check_nothing_lost(session, discard=ask.discard)
    return replace(session, skipped=(*session.skipped, stand.patch))


def _doubts(rebased: Rebased, patch: str) -> tuple[Question, ...]:
    """What the guard asks about the patch that was just resolved."""
    mine = {each.name for one in rebased.patches if one.file == patch for each in one.questions}
    return tuple(question for question in rebased.questions if question.name in mine)


def _store(
    found: Ground, rebased: Rebased, session: Session, known: Resolutions
) -> tuple[str, ...]:
    places: list[str] = []
    for patch in rebased.patches:
        one = session.settled.get(patch.file)
        if one is None or not patch.carried.by_hand:
            continue
        before = Snapshot(found.git, one.onto).original
        kept = resolution_of(patch.carried, before, session.source, session.target)
        files = {
            path: patch.carried.files.get(path, before(path)) for path in patch.carried.by_hand
        }
        why = refusal(kept, patch.carried.conflicts, files)
        if why:
            raise FindingError(
                f"what was made of {patch.file} is not stored: {why}",
                hint="Mend it, or go on without --store.",
                code="bad-resolution",
            )
        if known.stored.get(kept.name) != kept:
            places.append(known.store(kept))
    return tuple(places)


def _moved(found: Ground, repo: Path, was: Session, step: Session, stand: Stand) -> Session:
    """The worktree at its next stand; at every moment the session says where it is."""
    if stand == was.stand:
        save(repo, step)
        return step
    folder = was.worktree
    files: dict[str, Entry | None] = dict(was.stand.files)
    settled = step.settled.get(was.stand.patch)
    if settled is not None:
        files |= settled.files
    leaving = Stand(was.stand.patch, was.stand.head, files)
    if was.stand.patch in step.skipped:
        # What is in the files was let go.
        move(folder, was.target, leaving, was.stand)
    clear_backups(folder, was.stand)
    bring(found.git, folder, stand.head, (was.stand.head,))
    check_move(folder, leaving, stand)
    session = replace(step, stand=stand, leaving=leaving)
    save(repo, session)
    move(folder, session.target, leaving, stand)
    session = replace(session, leaving=None)
    save(repo, session)
    return session


def _end(repo: Path, session: Session) -> tuple[str, ...]:
    """Removes the worktree and the session; what somebody else put there stays, and is named."""
    work = work_in(session.worktree, session)
    left = (*work.edits, *work.unknown)
    if not left:
        remove(session)
    forget(repo, session.target)
    return left
