"""What a patch brings and upstream has brought too, in another form.

Lines say nothing here: upstream words it otherwise. A name does: an attribute, a function, a class,
a constant that the patch is the first to define in its scope, and that the new release defines in
the same scope, where the old one did not. It is evidence for a person, never a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vpatch.rebase.guard.outline import FILE, Outline, is_python, outline
from vpatch.rebase.model import Change, Evidence

_Key = tuple[str, bytes]

_ATTRIBUTE = re.compile(rb"\s+(?P<name>self\.[A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")
_DEFINED = re.compile(rb"\s*(?:async def|def|class) (?P<name>[A-Za-z_]\w*)\b")
_CONSTANT = re.compile(rb"(?P<name>[A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")


@dataclass(frozen=True)
class Own:
    """A name that both brought.

    Attributes:
        scope: The class, or empty for the file.
        line: Of the new release, from 1.
        twice: It is set in the result by both: nothing of either was taken back.
    """

    path: str
    scope: str
    name: str
    line: int
    twice: bool = False

    @property
    def evidence(self) -> Evidence:
        """The line."""
        where = f" in {self.scope}" if self.scope else ""
        return Evidence(self.path, self.line, f"upstream has a `{self.name}` of its own{where}")


def own_forms(change: Change) -> tuple[Own, ...]:
    """The names of a patch that upstream has brought too.

    Args:
        change: One file of it, from both old releases to the new tree.
    """
    if not (change.release and is_python(change.path) and is_python(change.was)):
        return ()
    after = outline(change.was, change.after)
    names = {key for key in _brought(change, after) if key[1] in change.release}
    if not names:
        return ()
    known = [outline(change.was, data) for data in (change.before, change.release_before)]
    release, result = (outline(change.path, data) for data in (change.release, change.result))
    if not (after.python and release.python):
        return ()
    return tuple(_both(sorted(names), known, release, result, change.path))


def _brought(change: Change, after: Outline) -> Iterator[_Key]:
    """The names in the lines that a patch adds, each with its scope."""
    for each in change.runs:
        for number, line in enumerate(each.run.added, start=each.run.new):
            found = _binds(after, number, line)
            if found is not None:
                yield found


def _both(
    names: Sequence[_Key],
    known: Sequence[Outline],
    release: Outline,
    result: Outline,
    path: str,
) -> Iterator[Own]:
    for key in names:
        if any(_bound(of, key) for of in known):
            continue
        there = _bound(release, key)
        if there:
            scope, name = key
            twice = name.startswith(b"self.") and len(_bound(result, key)) > len(there)
            yield Own(path, scope, name.decode("ascii"), there[0], twice)


def _binds(of: Outline, number: int, line: bytes) -> _Key | None:
    """The name that a line gives something to, and the scope whose name that is."""
    inner = of.at(number)
    found = _DEFINED.match(line)
    if found is not None:
        return _parent(of, number, inner), found["name"]
    found = _ATTRIBUTE.match(line)
    if found is not None:
        return _class_of(of, inner), found["name"]
    found = _CONSTANT.match(line)
    return (FILE, found["name"]) if found is not None and inner == FILE else None


def _parent(of: Outline, number: int, inner: str) -> str:
    """The scope in which a definition on this line makes a name."""
    scope = of.by_key.get(inner)
    return inner if scope is None or number != _head(of, inner) else scope.parent


def _head(of: Outline, key: str) -> int:
    """The line of a scope with its name, behind its decorators."""
    scope = of.by_key[key]
    for number in range(scope.start, scope.end + 1):
        if _DEFINED.match(of.lines[number - 1]):
            return number
    return scope.start


def _class_of(of: Outline, key: str) -> str:
    """The class that a scope lies in."""
    while key and of.by_key[key].kind != "class":
        key = of.by_key[key].parent
    return key


def _bound(of: Outline, key: _Key) -> list[int]:
    """The lines of a scope that bind a name, from 1."""
    scope, name = key
    if scope and scope not in of.by_key:
        return []
    own = of.by_key.get(scope)
    first, last = (own.start, own.end) if own else (1, len(of.lines))
    mentions = (n for n in range(first, last + 1) if name in of.lines[n - 1])
    return [n for n in mentions if _binds(of, n, of.lines[n - 1]) == key]
