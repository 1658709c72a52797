"""What a rebase says about stored resolutions: used ones as a diff, unused ones, broken ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from vpatch.rebase.markers import Clash, settled, taken_apart
from vpatch.rebase.model import Carried, Conflicted, Entry, Rebased
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.verdict import WHY

_SHOWN = 60
_CONTEXT = 3


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
    """What was asked and what a resolution answers, as the lines of a diff.

    On its left is the file with the conflict in diff3 style, on its right what the resolution makes
    of it: what merged by itself is no difference.
    """
    asked = {one.path: one for one in carried.conflicts}
    files = carried.recalled.files if carried.recalled else carried.files
    for path in sorted(carried.by_hand):
        if path in asked:
            yield from _answered(asked[path], files[path])
        else:
            yield f"{path}: edited too"


def _answered(one: Conflicted, new: Entry | None) -> Iterator[str]:
    if not one.merged:
        yield f"{one.path}: {WHY[one.reason]}. What the patch does there, and the answer:"
        yield from _diff(one.was, _text(one.base), _text(one.theirs))
        yield from _diff(one.path, _text(one.ours), _text(new))
        return
    parts = taken_apart(one.merged)
    texts = settled(parts, new.data if new else b"") if parts else None
    if parts is None or texts is None:
        yield from _diff(one.path, _lines(one.merged), _text(new))
        return
    yield from (f"--- a/{one.path}", f"+++ b/{one.path}")
    yield from _hunks(one.merged, parts, texts)


def _hunks(merged: bytes, parts: Sequence[bytes | Clash], texts: Sequence[bytes]) -> Iterator[str]:
    """A hunk a clash: all of it, then what stands in its place; a matcher would mix them."""
    marked, shift = _lines(merged), 0
    common = [_lines(part) for part in parts if isinstance(part, bytes)]
    clashes = [part for part in parts if isinstance(part, Clash)]
    for number, (clash, text) in enumerate(zip(clashes, texts, strict=True)):
        before, after = common[number][-_CONTEXT:], common[number + 1][:_CONTEXT]
        asked, answer = marked[clash.line - 1 : clash.end], _lines(text)
        around, start = len(before) + len(after), clash.line - len(before)
        yield (f"@@ -{start},{len(asked) + around} +{start + shift},{len(answer) + around} @@")
        yield from (f" {line}" for line in before)
        yield from (f"-{line}" for line in asked)
        yield from (f"+{line}" for line in answer)
        yield from (f" {line}" for line in after)
        shift += len(answer) - len(asked)


def _diff(path: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    return difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")


def _text(entry: Entry | None) -> list[str]:
    return _lines(entry.data) if entry else []


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", "replace")
    return text.removesuffix("\n").split("\n") if text else []
