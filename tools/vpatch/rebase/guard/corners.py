"""The four corners of a merge, scope by scope: what a patch did, and what it did now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from vpatch.rebase.guard.identity import identity, renames
from vpatch.rebase.guard.outline import Outline, outline
from vpatch.rebase.model import Change

Lines = Counter[bytes]


@dataclass(frozen=True)
class Effect:
    """What a change does to the own lines of a scope; blank lines do not count."""

    added: Lines
    removed: Lines


NOTHING = Effect(Counter(), Counter())


@dataclass(frozen=True)
class Corners:
    """A change's four texts with their scopes, under the keys of the file before the patch.

    Attributes:
        by_upstream, by_patch: Keys that upstream, and that the patch, gave to scopes of the file
            before -> their key in it.
    """

    change: Change
    before: Outline
    after: Outline
    upstream: Outline
    result: Outline
    by_upstream: Mapping[str, str]
    by_patch: Mapping[str, str]

    @cached_property
    def meant(self) -> dict[str, Effect]:
        """What the patch did in the old series: key -> effect."""
        return _effects(self.before, self.after, self.key)

    @cached_property
    def made(self) -> dict[str, Effect]:
        """What it does in the new tree: key -> effect."""
        return _effects(self.upstream, self.result, self.key)

    def key(self, key: str) -> str:
        """The key in the file before, of a key in any of the four."""
        return identity(identity(key, self.by_upstream), self.by_patch)

    def text(self, of: Outline, key: str) -> list[bytes]:
        """The own lines, blank ones left out, of the scope that has this key in the file before."""
        return of.texts.get(self.name(of, key), [])

    def name(self, of: Outline, key: str) -> str:
        """What the scope with this key in the file before is called in another corner."""
        if key in of.own or not (self.by_upstream or self.by_patch):
            return key
        return next((each for each in of.own if self.key(each) == key), key)


def corners(change: Change) -> Corners:
    """Reads the four texts of a change."""
    before = outline(change.was, change.before)
    after = outline(change.was, change.after)
    upstream = outline(change.path, change.upstream)
    result = outline(change.path, change.result)
    if len({each.python for each in (before, after, upstream, result) if each.lines}) > 1:
        # One of them does not parse: all of them are text then.
        before, after, upstream, result = (
            Outline(each.lines, (), python=False) for each in (before, after, upstream, result)
        )
    touched = {key for key in _effects(before, after, str) if key in before.by_key}
    return Corners(
        change,
        before,
        after,
        upstream,
        result,
        renames(before, upstream, touched),
        renames(before, after, touched),
    )


def _effects(old: Outline, new: Outline, key: Callable[[str], str]) -> dict[str, Effect]:
    if old.lines == new.lines:
        return {}
    one, other = _texts(old, key), _texts(new, key)
    found: dict[str, Effect] = {}
    for name in {**one, **other}:
        was, now = one.get(name, []), other.get(name, [])
        if was != now:
            gone, come = Counter(was), Counter(now)
            if gone != come:
                found[name] = Effect(come - gone, gone - come)
    return found


def _texts(of: Outline, key: Callable[[str], str]) -> dict[str, list[bytes]]:
    renamed = {key(each): lines for each, lines in of.texts.items()}
    if len(renamed) == len(of.texts):
        return renamed
    merged: dict[str, list[bytes]] = {}  # two scopes that were one before
    for each, lines in of.texts.items():
        merged[key(each)] = [*merged.get(key(each), []), *lines]
    return merged
