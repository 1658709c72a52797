"""What ``vpatch rebase`` says of a session: where it stands, and the next commands spelled out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vpatch.errors import FindingError
from vpatch.findings import FindingsError
from vpatch.rebase.model import Question, Rebased
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.session import Session, load, targets
from vpatch.rebase.session_look import check_history, taken
from vpatch.rebase.stand import Spot, spots
from vpatch.rebase.verdict import WHY
from vpatch.report import Report, lines, plain
from vpatch.verbs import rebase_resolutions
from vpatch.verbs.rebase_choose import chosen
from vpatch.verbs.rebase_report import accepting, as_dict, report, summary, touches

_CONFLICT = 3


def _commands(session: Session) -> dict[str, str]:
    to = session.target
    folder = shlex.quote(str(session.worktree))
    found = {"look": f"git -C {folder} diff"} if session.stand.stages else {}
    return {
        **found,
        "continue": f"vpatch rebase --continue {to}",
        **({"skip": f"vpatch rebase --skip {session.stand.patch} {to}"} if found else {}),
        "abort": f"vpatch rebase --abort {to}",
    }


def session_dict(session: Session) -> dict[str, Any]:
    """A session as ``--json`` prints it."""
    return {
        "from": session.source,
        "to": session.target,
        "worktree": str(session.worktree),
        "patch": session.stand.patch,
        "conflicts": [
            {"file": spot.path, "reason": spot.reason, "lines": list(spot.lines or ())}
            for spot in spots(session.stand)
        ],
        "resolved": list(session.settled),
        "skipped": list(session.skipped),
        "next": list(_commands(session).values()),
    }


def _told(session: Session) -> Iterator[str]:
    """Where it stands, for a person."""
    stand = session.stand
    yield f"{stand.patch} waits in {session.worktree}:"
    for spot in spots(stand):
        yield f"  {spot}: {WHY[spot.reason]}{_advice(session, spot)}"
    commands = _commands(session)
    yield "  -> Edit these files until no marker is left, then go on:"
    said = {
        "look": "what clashes",
        "continue": "takes the files, goes on (--store keeps the resolution)",
        "skip": "leaves the patch out",
        "abort": "takes all of it back",
    }
    width = max(map(len, commands.values()))
    for name, command in commands.items():
        yield f"     {command:{width}}  # {said[name]}"


def _advice(session: Session, spot: Spot) -> str:
    if spot.lines is not None:
        return ""
    git = f"git -C {shlex.quote(str(session.worktree))}"
    path = shlex.quote(spot.path)
    return f" ({git} add {path} keeps the file as it is, {git} rm {path} lets it go)"


def _data(
    session: Session, rebased: Rebased, known: Resolutions | None, stored: Sequence[str]
) -> dict[str, Any]:
    data = as_dict(rebased)
    if known is not None:
        data["resolutions"] = rebase_resolutions.as_dict(rebased, known, stored)
    data["session"] = session_dict(session)
    if "error" in data:
        first = next(iter(_commands(session).values()))
        waits = f"Edit the files in {session.worktree}; then: {_commands(session)['continue']}"
        data["error"]["hint"] = waits if session.stand.patch else first
    return data


def began(
    session: Session,
    rebased: Rebased,
    known: Resolutions,
    *,
    in_the_way: Path | None = None,
    markdown: bool = False,
) -> Report:
    """A session at its first conflict.

    Args:
        in_the_way: A series that is where the new one is to be written, and may not go.
    """
    whole = report(rebased, known=known, markdown=markdown)
    data = _data(session, rebased, known, ())
    if markdown:
        return replace(whole, data=data)
    text = lines(
        *_without_hint(rebased, known),
        *map(plain, _upstream(session, rebased)),
        *map(plain, _told(session)),
        plain(_way_out(in_the_way)) if in_the_way else None,
    )
    return replace(whole, data=data, text=text)


def _way_out(folder: Path) -> str:
    return (
        f"{folder} holds a series already: give --continue, at the end at latest, --out DIR to "
        "write elsewhere, or --replace to let it go"
    )


def _without_hint(rebased: Rebased, known: Resolutions) -> Iterator[Any]:
    yield from map(plain, rebase_resolutions.told(rebased, known))
    for patch in rebased.patches:
        if patch.verdict.word in ("conflict", "absorbed", "obsolete", "partly-absorbed"):
            why = f": {patch.verdict.why}" if patch.verdict.why else ""
            yield plain(f"{patch.verdict.word}: {patch.file}{why}")
    yield plain(f"{summary(rebased)} (--dry-run has the whole table)")


def stopped(
    session: Session, rebased: Rebased, known: Resolutions, stored: Sequence[str]
) -> Report:
    """A session at its next conflict."""
    more = len(rebased.conflicts) - 1
    left = f"; {more} more {'conflicts' if more == 1 else 'conflict'} behind it" if more else ""
    text = lines(
        *(plain(f"{place}: stored") for place in stored),
        plain(f"{len(session.settled)} resolved, {len(session.skipped)} left out{left}"),
        *map(plain, _upstream(session, rebased)),
        *map(plain, _told(session)),
    )
    return Report("rebase", _data(session, rebased, known, stored), text, exit_code=_CONFLICT)


def _upstream(session: Session, rebased: Rebased) -> Iterator[str]:
    """What upstream did to the lines of the patch that waits."""
    for patch in rebased.patches:
        if patch.file == session.stand.patch:
            yield from touches(patch)


def asked(
    session: Session,
    rebased: Rebased,
    questions: Sequence[Question],
    known: Resolutions | None = None,
    stored: Sequence[str] = (),
) -> Report:
    """Questions that have to be answered before the session goes on."""
    advice = _how_to_answer(session, questions)
    first = questions[0]
    place = f"{first.path}:{first.line}" if first.line else first.path
    rest = f" (and {len(questions) - 1} more)" if questions[1:] else ""
    data = _data(session, rebased, known, stored)
    data["questions"] = [question.as_dict() for question in questions]
    data["error"] = {
        "code": "question",
        "message": f"{place}: {first.text}{rest}",
        "hint": advice,
    }
    text = lines(
        *(plain(f"{place}: stored") for place in stored),
        *(plain(line) for each in questions for line in _asked(each)),
        plain(f"  -> {advice}"),
    )
    return Report("rebase", data, text, exit_code=1)


def _how_to_answer(session: Session, questions: Sequence[Question]) -> str:
    names = accepting(each.name for each in questions)
    command = f"vpatch rebase --continue {session.target} {names}"
    if session.stand.patch:
        return f"Look at each. Mend it in {session.worktree}, or: {command}"
    return (
        f"Look at each, then: {command}. What has to be mended is mended behind that, with "
        f"vpatch edit {session.target}: no patch waits in {session.worktree} any more, and "
        "nothing is taken from there."
    )


def _asked(question: Question) -> Iterator[str]:
    place = f"{question.path}:{question.line}" if question.line else question.path
    yield f"asked: {place}: {question.text}"
    yield f"  name: {question.name}"


def ended(done: Report, session: Session, stored: Sequence[str], left: Sequence[str]) -> Report:
    """A session that came to its end."""
    data = dict(done.data)
    if "resolutions" in data:
        data["resolutions"] = {**data["resolutions"], "stored": list(stored)}
    data["session"] = {"worktree": str(session.worktree), "left": list(left)}
    told = [f"{place}: stored" for place in stored]
    if left:
        told.append(f"{session.worktree} stays: it holds {', '.join(left)}")
    else:
        told.append(f"{session.worktree} is done with, and gone")
    return replace(done, data=data, text=lines(done.text, *map(plain, told)))


def aborted(session: Session) -> Report:
    """A session that was taken back."""
    to = session.target
    now = "empty, as it was" if session.was_there else "gone"
    said = f"{session.source} -> {to} is taken back; {session.worktree} is {now}"
    data = {"from": session.source, "to": to, "aborted": True, "worktree": str(session.worktree)}
    return Report("rebase", data, plain(said))


def status(repo: Path, names: Sequence[str], worktree: Path | None) -> Report:
    """``--status``: every session, or the one that is named, and what it waits for.

    Raises:
        UsageError: no such session, or one that another vpatch began.
        FindingError: a session's file is damaged.
        HostError: git failed, or a file cannot be opened.
    """
    if names or worktree is not None:
        sessions = [chosen(repo, names, worktree)]
    else:
        sessions = [one for to in targets(repo) if (one := load(repo, to)) is not None]
    if not sessions:
        return Report("rebase", {"sessions": []}, plain("no rebase is in session"))
    told: list[str] = []
    data = []
    for session in sessions:
        waits = list(_waits(session))
        data.append({**session_dict(session), "waits": waits})
        counts = f"{len(session.settled)} resolved, {len(session.skipped)} left out"
        told.append(f"{session.source} -> {session.target}: {counts}")
        told += [f"  {line}" for line in _told(session)] if session.stand.patch else []
        told += [f"  {line}" for line in waits]
    return Report("rebase", {"sessions": data}, lines(*map(plain, told)))


def _waits(session: Session) -> Iterator[str]:
    """What ``--continue`` would stumble over, or that it would not."""
    folder = session.worktree
    to = session.target
    if not (folder / ".git").exists():
        yield (
            f"{folder} is gone: vpatch rebase {session.source} {to} writes it again, "
            f"vpatch rebase --abort {to} forgets it"
        )
        return
    if session.leaving is not None:
        yield f"a run was killed while the worktree moved on: vpatch rebase --continue {to}"
        return
    try:
        if session.stand.patch:
            taken(folder, session)
        else:
            check_history(folder, to, session.stand)
    except FindingsError as error:
        yield from (f"{finding.place}: {finding.message}" for finding in error.findings)
    except FindingError as error:
        yield error.message
    else:
        if session.stand.patch:
            yield f"ready: vpatch rebase --continue {to}"
        else:
            yield f"no conflict is left: vpatch rebase --continue {to} ends it, or asks"
