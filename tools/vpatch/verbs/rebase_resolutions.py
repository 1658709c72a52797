"""What a rebase says about stored resolutions: used ones as a diff, unused ones, broken ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from vpatch.rebase.model import Carried, Entry, Rebased
from vpatch.rebase.resolutions import Resolutions

_SHOWN = 30


def as_dict(rebased: Rebased, known: Resolutions, stored: Sequence[str] = ()) -> dict[str, Any]:
    """The same as ``--json`` prints it.

    Args:
        stored: What this run stored.
    """
    return {
        "used": [
            {"file": source, "patch": carried.patch.file, "diff": "\n".join(diff_of(carried))}
            for carried, source in _used(rebased)
        ],
        "unused": [{"file": one.source, "why": one.why} for one in known.unused(rebased)],
        "broken": [finding.as_dict() for finding in known.findings],
        "stored": list(stored),
    }


def told(rebased: Rebased, known: Resolutions, stored: Sequence[str] = ()) -> Iterator[str]:
    """The same for a person."""
    for carried, source in _used(rebased):
        yield f"{carried.patch.file}: resolved as {source} says:"
        diff = list(diff_of(carried))
        yield from (f"  {line}" for line in diff[:_SHOWN])
        if diff[_SHOWN:]:
            yield f"  and {len(diff) - _SHOWN} lines more (--json has all)"
    for one in known.unused(rebased):
        yield f"{one.source}: not used: {one.why}"
    for finding in known.findings:
        yield f"{finding.place}: not used: {finding.message}"
    for place in stored:
        yield f"{place}: stored"


def _used(rebased: Rebased) -> Iterator[tuple[Carried, str]]:
    for one in rebased.patches:
        recalled = one.carried.recalled
        if recalled is not None and not recalled.refused:
            yield one.carried, recalled.source


def diff_of(carried: Carried) -> Iterator[str]:
    """What a resolution makes of the new release's files, as the lines of a diff."""
    before = {one.path: _text(one.ours) for one in carried.conflicts}
    files = carried.recalled.files if carried.recalled else carried.files
    for path in sorted(carried.by_hand):
        if path not in before:
            yield f"{path}: edited too"
            continue
        new = _text(files[path])
        names = (f"a/{path}", f"b/{path}")
        yield from difflib.unified_diff(before[path], new, *names, lineterm="")


def _text(entry: Entry | None) -> list[str]:
    return entry.data.decode("utf-8", "replace").splitlines() if entry else []
