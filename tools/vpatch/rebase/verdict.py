"""The last word on each carried patch, with what it rests on, and what a person is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vpatch.rebase.absorb import Standing, standing
from vpatch.rebase.hunks import Run
from vpatch.rebase.model import (
    Carried,
    Change,
    Conflicted,
    Evidence,
    Question,
    RebasedPatch,
    Verdict,
)
from vpatch.rebase.moves import SURE
from vpatch.rebase.obsolete import Obsolete, question_name
from vpatch.rebase.own_form import Own, own_forms

WHY = {
    "content": "both sides changed the same lines",
    "gone": "the file is not there any more",
    "exists": "there is such a file already",
    "folder-gone": "its folder is not there any more",
    "folder-here": "a folder of this name is there",
    "file-above": "a file stands where its folder has to be",
    "changed": "upstream changed the file that it deletes or moves",
    "mode": "both sides changed the file's mode, or one made it another kind of file",
    "binary": "both sides changed a file that is no text",
}


@dataclass(frozen=True)
class _Found:
    """A run that did not land, and where upstream has it."""

    change: Change
    run: Run
    there: Standing | None

    @property
    def is_upstream(self) -> bool:
        return self.there is not None and not self.there.blanks


def left_as_obsolete(carried: Carried, obsolete: Obsolete) -> RebasedPatch:
    """The verdict on a patch that was left out, and whether it may be."""
    verdict = Verdict("obsolete", obsolete.why, obsolete.evidence)
    return RebasedPatch(carried, verdict, (_obsolete_question(carried, obsolete),))


def maybe_obsolete(patch: RebasedPatch, obsolete: Obsolete) -> RebasedPatch:
    """A patch that conflicts, and that may have nothing to do: a person says whether it may go."""
    verdict = patch.verdict
    told = replace(
        verdict,
        why=f"{verdict.why}; {obsolete.why}",
        evidence=(*verdict.evidence, *obsolete.evidence),
    )
    question = _obsolete_question(patch.carried, obsolete)
    return replace(patch, verdict=told, questions=(*patch.questions, question))


def _obsolete_question(carried: Carried, obsolete: Obsolete) -> Question:
    patch = carried.patch
    first = next(iter(obsolete.evidence), Evidence(patch.paths[0], 0, ""))
    text = f"{patch.subject!r} may leave: {obsolete.why}"
    return Question(question_name(patch), "obsolete", first.path, first.line, text)


def judged(carried: Carried, places: Sequence[Evidence] = ()) -> RebasedPatch:
    """The verdict on a patch, and the questions that it leaves to a person.

    Args:
        carried: What became of it.
        places: Where things are now that it conflicts over.
    """
    runs = sum(len(change.runs) for change in carried.changes)
    if carried.how == "resolved":
        return RebasedPatch(carried, _resolved(carried, runs), _twice(carried))
    if carried.how == "set-aside" or carried.left_out:
        word = "skipped" if carried.how == "emptied" else carried.how
        return RebasedPatch(carried, Verdict(word, carried.note, (), runs))
    found = [
        _Found(change, each.run, standing(change, each.run))
        for change in carried.changes
        for each in change.runs
        if each.landed is None
    ]
    questions = (*_blank_questions(carried, found), *_move_questions(carried), *_twice(carried))
    if carried.how == "emptied":
        return _emptied(carried, found, questions)
    upstream = [one for one in found if one.is_upstream]
    evidence = tuple(one.there.evidence for one in upstream if one.there)
    of = f"{len(upstream)} of its {runs} places are upstream"
    if carried.how == "conflict":
        own = [one for change in carried.changes for one in own_forms(change)]
        why = f"{_where(carried)}{f'; {of}' if upstream else ''}{_own(own)}{_refused(carried)}"
        lines = (*(_conflict(one) for one in carried.conflicts), *(one.evidence for one in own))
        verdict = Verdict("conflict", why, (*lines, *places, *evidence), runs, len(upstream))
    elif upstream:
        verdict = Verdict("partly-absorbed", of, evidence, runs, len(upstream))
    else:
        verdict = Verdict(carried.how, carried.note, (), runs)
    return RebasedPatch(carried, verdict, questions)


def _resolved(carried: Carried, runs: int) -> Verdict:
    source = carried.recalled
    if source is None:
        return Verdict("resolved", carried.note or "by hand, in this session", (), runs)
    lines = tuple(
        Evidence(source.source, source.lines.get(path, 0), path) for path in sorted(carried.by_hand)
    )
    return Verdict("resolved", "as was stored of it", lines, runs)


def _emptied(
    carried: Carried, found: Sequence[_Found], questions: tuple[Question, ...]
) -> RebasedPatch:
    """A patch of which nothing is left, with the lines that prove it, or a question for each."""
    by_lines = {change.was for change in carried.changes}
    same = "upstream did the same to the file"
    evidence = [
        *(one.there.evidence for one in found if one.there),
        *(Evidence(path, 0, same) for path in carried.patch.paths if path not in by_lines),
    ]
    lost = tuple(
        Question(
            name=f"{carried.patch.file}:emptied:{one.change.path}:{one.run.old}",
            kind="emptied",
            path=one.change.path,
            line=0,
            text="nothing was left to do, and the lines do not stand where they belong: "
            + _first(one.run),
        )
        for one in found
        if one.there is None
    )
    if carried.taken:
        said = f"upstream's commit {carried.taken[:12]} does the same, byte for byte"
        evidence.append(Evidence(carried.patch.paths[0], 0, said))
    count = sum(one.is_upstream for one in found)
    why = f"upstream has all of it ({_places(len(found))})" if found else "upstream has all of it"
    verdict = Verdict("absorbed", why, tuple(evidence), len(found), count)
    return RebasedPatch(carried, verdict, (*questions, *lost))


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def _blank_questions(carried: Carried, found: Sequence[_Found]) -> Iterator[Question]:
    for one in found:
        if one.there is not None and one.there.blanks:
            yield Question(
                name=f"{carried.patch.file}:whitespace:{one.change.path}:{one.run.old}",
                kind="whitespace",
                path=one.there.path,
                line=one.there.line,
                text="upstream has these lines with other blanks: are they the same? "
                + _first(one.run),
            )


def _move_questions(carried: Carried) -> Iterator[Question]:
    for old, alike in carried.alike.items():
        if alike < SURE:
            new = carried.moved[old]
            yield Question(
                name=f"{carried.patch.file}:moved:{old}:{new}",
                kind="moved",
                path=new,
                line=0,
                text=f"{old} is gone, and this file is like it by {alike} %: is it the same file?",
            )


def _twice(carried: Carried) -> tuple[Question, ...]:
    """A name that upstream brought as well, where the result sets it for both."""
    if carried.how in ("conflict", "emptied"):
        return ()
    return tuple(
        Question(
            name=f"{carried.patch.file}:set-twice:{one.path}:{one.scope}.{one.name}",
            kind="set-twice",
            path=one.path,
            line=one.line,
            text=f"upstream sets `{one.name}` of its own in {one.scope or 'the file'}, and the "
            "patch does too: are both wanted?",
        )
        for change in carried.changes
        for one in own_forms(change)
        if one.twice
    )


def _own(found: Sequence[Own]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if found[1:] else ""
    return f"; upstream has its own `{found[0].name}`{more}"


def _first(run: Run) -> str:
    lines = run.added or run.removed
    line = next((line for line in lines if line.strip()), lines[0])
    return repr(line.decode("utf-8", "replace").strip()[:80])


def _conflict(one: Conflicted) -> Evidence:
    mark = one.merged.find(b"<<<<<<< ")
    line = one.merged.count(b"\n", 0, mark) + 1 if mark >= 0 else 0
    return Evidence(one.place or one.path, line, WHY[one.reason])


def _refused(carried: Carried) -> str:
    known = carried.recalled
    return f"; {known.source} is not used: {known.refused}" if known else ""


def _where(carried: Carried) -> str:
    paths = ", ".join(one.place or one.path for one in carried.conflicts)
    behind = ""
    if carried.behind:
        more = f" and {len(carried.behind) - 1} more" if carried.behind[1:] else ""
        behind = f" (so does {carried.behind[0][:4]}{more} before it)"
    return f"it conflicts in {paths}{behind}"
