"""Does what a patch adds stand there already, because upstream added it too?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from vpatch.rebase.guard.change import ALREADY_NEARBY, Doubt
from vpatch.rebase.guard.corners import Corners
from vpatch.rebase.guard.outline import FILE
from vpatch.rebase.hunks import Run

# Lines that say nothing alone: brackets, and words that every function has.
_WORDS = re.compile(rb"[\w\"'#]")
_TRIVIAL = frozenset(
    (
        *(b"else:", b"try:", b"finally:", b"pass", b"break", b"continue", b"return", b"raise"),
        *(b"return None", b"return False", b"return True", b'"""', b"'''", b"self,", b"cls,"),
        *(b"@staticmethod", b"@classmethod", b"@property", b"@override", b"@abstractmethod"),
        *(b"fi", b"done", b"esac", b"end", b"else", b"then", b"do", b"#endif", b"#else"),
    )
)
# Outside of functions, what stands further away than this is not nearby.
_NEAR = 60
_KEY = re.compile(rb"""(?P<key>(?P<q>["'])[^"']+(?P=q)\s*:|[A-Za-z_]\w*\s*(?::[^=]+)?=(?!=))""")


def twice(corners: Corners) -> Iterator[Doubt]:
    """Added lines that upstream has added near them since."""
    for placed in corners.change.runs:
        if placed.landed is None or not placed.landed.added:
            continue
        found = _again(corners, placed.landed)
        if found:
            yield found


def _again(corners: Corners, landed: Run) -> Doubt | None:
    scope = corners.result.at(_first(landed))
    key = corners.key(scope)
    name = corners.name(corners.upstream, key)
    added = [line.strip() for line in landed.added if _says_something(line)]
    fresh = _fresh(corners, key)
    if not (added and fresh):
        return None
    near = {
        corners.upstream.lines[n - 1].strip(): n
        for n in reversed(corners.upstream.own.get(name, []))
        if _is_function(corners, name) or abs(n - landed.old) <= _NEAR
    }
    again = [line for line in added if fresh[line] and line in near]
    telling = [line for line in again if _stands_once(corners, key, line)]
    if len(telling) * 2 >= len(added) or (
        len(again) == len(added) and _same_block(corners, name, landed)
    ):
        line = (telling or again)[0]
        text = f"upstream has `{_text(line)}` in {key or 'the file'} too (its line {near[line]})"
        return Doubt(ALREADY_NEARBY, key, _first(landed), text)
    return _same_key(corners, key, landed)


def _stands_once(corners: Corners, key: str, line: bytes) -> bool:
    """Whether it is no line that many entries of a table share, on neither side."""
    return all(
        sum(each.strip() == line for each in corners.text(of, key)) <= 1
        for of in (corners.after, corners.upstream)
    )


def _same_block(corners: Corners, name: str, landed: Run) -> bool:
    """Whether the first added line stands behind the same line in upstream's scope."""
    lines = [corners.upstream.lines[n - 1].strip() for n in corners.upstream.own.get(name, [])]
    first = _first(landed)
    behind = corners.result.lines[first - 2].strip() if first > 1 else b""
    added = corners.result.lines[first - 1].strip()
    return any(pair == (behind, added) for pair in zip([b"", *lines], lines, strict=False))


def _same_key(corners: Corners, key: str, landed: Run) -> Doubt | None:
    """An entry of a table, or a name of a class, that upstream has added with another value."""
    if not corners.result.python:
        return None
    function = _is_function(corners, corners.name(corners.upstream, key))
    known, mine, theirs = (
        Counter(_entry(line, function) for line in corners.text(of, key))
        for of in (corners.before, corners.after, corners.upstream)
    )
    for number, line in enumerate(landed.added, start=landed.new):
        entry = _entry(line, function)
        # What stands more than once on one side is no key of one table.
        if entry and not known[entry] and mine[entry] == theirs[entry] == 1:
            text = f"upstream has an entry `{_text(entry)}` of its own in {key or 'the file'}"
            return Doubt(ALREADY_NEARBY, key, number, text)
    return None


def _entry(line: bytes, function: bool) -> bytes:
    """The key that a line gives a value to: in a table, or, outside of functions, a name."""
    found = _KEY.match(line.strip())
    if found is None or not (found["q"] or (not function and _is_statement(line))):
        return b""
    return found["key"] if found["q"] else re.split(rb"[:=]", found["key"])[0].strip()


def _is_statement(line: bytes) -> bool:
    """Whether it may be an assignment, and no argument: those end in a comma."""
    return not line.rstrip().endswith((b",", b"("))


def defined_twice(corners: Corners) -> Iterator[Doubt]:
    """Functions and classes that stand once more than on either side of the merge."""
    counts = [
        Counter(scope.key.partition("#")[0] for scope in of.scopes if scope.kind != "section")
        for of in (corners.after, corners.upstream, corners.result)
    ]
    for scope in corners.result.scopes:
        key, numbered, _ = scope.key.partition("#")
        if numbered and counts[2][key] > max(counts[0][key], counts[1][key]):
            text = f"{key} is defined twice: by the patch, and by upstream"
            yield Doubt(ALREADY_NEARBY, key, scope.start, text)


def _fresh(corners: Corners, key: str) -> Counter[bytes]:
    """What upstream has added to a scope, wherever it is indented."""
    new = Counter(line.strip() for line in corners.text(corners.upstream, key))
    return new - Counter(line.strip() for line in corners.text(corners.before, key))


def _is_function(corners: Corners, name: str) -> bool:
    scope = corners.upstream.by_key.get(name)
    return name != FILE and scope is not None and scope.kind == "function"


def _first(landed: Run) -> int:
    """Line of the result of the first added line that is not blank."""
    lines = enumerate(landed.added, start=landed.new)
    return next((n for n, line in lines if line.strip()), landed.new)


def _says_something(line: bytes) -> bool:
    return bool(_WORDS.search(line)) and line.strip() not in _TRIVIAL


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")
