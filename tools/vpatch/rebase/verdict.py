"""The last word on each carried patch, with what it rests on."""

from __future__ import annotations

from vpatch.rebase.model import Carried, Conflicted, Evidence, RebasedPatch, Verdict, Word

_WHY = {
    "content": "both sides changed the same lines",
    "gone": "the file is not there any more",
    "exists": "there is such a file already",
    "folder-gone": "its folder is not there any more",
    "changed": "upstream changed the file that it deletes or moves",
    "mode": "both sides changed the file's mode",
    "binary": "both sides changed a file that is no text",
}


def judged(carried: Carried) -> RebasedPatch:
    """The verdict on a patch.

    Args:
        carried: What became of it.
    """
    runs = sum(len(change.runs) for change in carried.changes)
    if carried.how == "conflict":
        evidence = tuple(_conflict(one) for one in carried.conflicts)
        return RebasedPatch(carried, Verdict("conflict", _where(carried), evidence, runs))
    if carried.how == "emptied":
        word: Word = "skipped" if carried.note else "absorbed"
        return RebasedPatch(carried, Verdict(word, carried.note, (), runs, runs))
    return RebasedPatch(carried, Verdict(carried.how, carried.note, (), runs))


def _conflict(one: Conflicted) -> Evidence:
    line = one.merged.count(b"\n", 0, max(one.merged.find(b"\n<<<<<<< "), 0)) + 1
    return Evidence(one.path, line if one.merged else 0, _WHY[one.reason])


def _where(carried: Carried) -> str:
    paths = ", ".join(one.path for one in carried.conflicts)
    behind = ""
    if carried.behind:
        more = f" and {len(carried.behind) - 1} more" if carried.behind[1:] else ""
        behind = f"; {carried.behind[0]}{more} before it does so too"
    return f"it conflicts in {paths}{behind}"
