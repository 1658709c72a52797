"""What every step of a rebase in session stands on: its releases, its options, its worktree."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vpatch.errors import FindingError, UsageError
from vpatch.patches.swap import making
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Choices, Rebased
from vpatch.rebase.rebase import rebase
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.session import Session, save
from vpatch.rebase.session_look import check_history, repository_of, work_in
from vpatch.rebase.session_tree import check_move, is_at, move
from vpatch.upstream.mirror import ArchiveKind
from vpatch.verbs import rebase as verb
from vpatch.verbs.rebase import Ground, Wish
from vpatch.verbs.rebase_asked import accepted, wholly_asked

_SHOWN = 5


@dataclass(frozen=True)
class Ask:
    """What is asked of a session.

    Attributes:
        names: FROM and TO, or TO alone, or nothing where there is one session.
        worktree: ``--worktree``: the session of this folder.
        skip: ``--skip``: the patch to leave out; empty to go on.
        store: ``--store``: keep what was resolved under ``patches/resolutions``.
        discard: ``--discard``: edits of the conflicting files may go.
    """

    names: tuple[str, ...] = ()
    worktree: Path | None = None
    skip: str = ""
    store: bool = False
    discard: bool = False


def options(wish: Wish) -> Mapping[str, Any]:
    """What a session keeps of what was asked."""
    return {
        "accept": list(wish.accept),
        "keep": list(wish.keep),
        "out": str(wish.out.absolute()) if wish.out else "",
        "replace": wish.replace,
        "commit": wish.commit,
        "resolutions": wish.resolutions,
    }


def wish_of(session: Session, wish: Wish) -> Wish:
    """What was asked at the start, and what is asked now."""
    kept = session.options
    return replace(
        wish,
        accept=tuple(dict.fromkeys((*kept["accept"], *wish.accept))),
        keep=tuple(dict.fromkeys((*kept["keep"], *wish.keep))),
        out=wish.out or (Path(kept["out"]) if kept["out"] else None),
        replace=wish.replace or kept["replace"],
        commit=wish.commit or kept["commit"],
        resolutions=wish.resolutions and kept["resolutions"],
    )


def ground_of(session: Session, repo: Path, upstream: Upstream) -> AbstractContextManager[Ground]:
    """Both releases, as they were asked for when it began."""
    kind: dict[str, ArchiveKind] = {"sdist": "sdist", "wheel": "wheel"}
    where = replace(upstream, git_url=session.git_url or None, kind=kind.get(session.kind))
    return verb.ground(session.source, session.target, repo, where, Wish())


def carried(found: Ground, repo: Path, session: Session) -> tuple[Rebased, Resolutions]:
    """The series, carried with what was decided so far.

    Raises:
        FindingError: the series or the release is not what the session began with.
    """
    to = session.target
    again = f"vpatch rebase --abort {to}, and begin anew: what was stored is used again."
    if found.series.sha256 != session.series:
        raise FindingError(
            f"the series of {session.source} changed since the rebase to {to} began",
            hint=f"Take the change back, or: {again}",
            code="series-changed",
        )
    if (found.source.commit, found.target.commit) != session.commits:
        raise FindingError(
            f"{session.source} or {to} was imported anew since the rebase began: "
            "it is another commit",
            hint=again,
            code="release-changed",
        )
    wish = wish_of(session, Wish())
    known = verb.known_resolutions(repo, wish)
    choices = Choices(
        accept=accepted(found.series, wish.accept),
        keep=verb.kept(found.series, wish),
        skip=session.skipped,
        resolved={name: one.files for name, one in session.settled.items()},
        recall=known.recall,
    )
    ends = (found.source, found.target)
    rebased = rebase(found.git, found.series, *ends, choices, means=found.means)
    old = (found.git, found.series)
    rebased = wholly_asked(*old, rebased, found.source, found.means.kept)
    head = rebased.base
    for patch in rebased.patches:
        one = session.settled.get(patch.file)
        if one is not None and one.onto != head:
            raise FindingError(
                f"{patch.file} was resolved on other patches than those that stand before it now",
                hint=f"Take back what was accepted or kept last, or: {again}",
                code="other-ground",
            )
        head = patch.carried.commit or head
    return rebased, known


def check_vacant(folder: Path) -> bool:
    """Whether an empty folder is there; raises where anything else is."""
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return True
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder}, where the conflict is to be resolved, is there already, and nothing in it "
            "is going to be touched",
            hint="Move it away, or name a folder that does not exist with --worktree DIR.",
            code="not-vacant",
        )
    if not folder.parent.is_dir():
        raise UsageError(
            f"{folder.parent} is no folder: the worktree cannot be written in it",
            hint="Name another place with --worktree DIR.",
            code="no-folder",
        )
    return False


def check_worktree(session: Session) -> None:
    """The worktree is there.

    Raises:
        FindingError: it is gone.
    """
    if not (session.worktree / ".git").exists():
        raise FindingError(
            f"{session.worktree}, the worktree of {session.source} -> {session.target}, is gone",
            hint=f"vpatch rebase {session.source} {session.target} writes it again, with what was "
            f"resolved so far; vpatch rebase --abort {session.target} forgets it.",
            code="no-worktree",
        )


def arrived(repo: Path, session: Session) -> Session:
    """The session, a move that was killed brought to its end.

    Raises:
        FindingError: something in the worktree was changed meanwhile.
        HostError: git failed, or the disk refused.
    """
    if session.leaving is None:
        return session
    folder = session.worktree
    if not is_at(folder, session.stand):
        head = repository_of(folder).find("HEAD")
        at = session.stand if head == session.stand.head else session.leaving
        check_history(folder, session.target, at)
        check_move(folder, session.leaving, session.stand)
        move(folder, session.target, session.leaving, session.stand)
    done = replace(session, leaving=None)
    save(repo, done)
    return done


def check_nothing_lost(session: Session, *, discard: bool) -> None:
    """Nothing that a person made goes with the worktree's files.

    Args:
        discard: Edits of the patch's files may go.

    Raises:
        FindingError: something would.
    """
    work = work_in(session.worktree, session)
    if work.unknown:
        more = len(work.unknown) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        raise FindingError(
            f"{session.worktree} holds what the rebase does not know: "
            f"{', '.join(work.unknown[:_SHOWN])}{rest}",
            hint="Move it elsewhere, or remove it yourself.",
            code="unknown-work",
        )
    if work.edits and not discard:
        raise FindingError(
            f"{session.worktree} holds edits that would be lost: {', '.join(work.edits)}",
            hint="--discard lets them go.",
            code="unsaved-work",
        )


def remove(session: Session) -> None:
    """Removes the worktree; where an empty folder was, there is one again."""
    folder = session.worktree
    with making(folder) as scratch:
        folder.rename(scratch / "gone")
        if session.was_there:
            folder.mkdir()
