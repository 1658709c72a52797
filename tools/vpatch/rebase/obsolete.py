"""Patches that have nothing to do in the new release, though upstream does not have their lines.

Three things say so, each with evidence and each as a question to a person: the patch's own
Upstream-Status names the release from which on upstream has its own; what its hunks stand in is
nowhere any more; the gates that the patch turned green are green on the new release as it is. The
last one is less than all that a patch does: such a patch conflicts until a person lets it go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.patch import Patch
from vpatch.rebase.gated import Gated
from vpatch.rebase.guard.outline import is_python, outline
from vpatch.rebase.model import Carried, Change, Choices, Evidence
from vpatch.tags import version_of

_TAG = r"v\d(?:[\w.]*\d)?"
_FROM_ON = re.compile(rf"\bfrom ({_TAG}) on\b|(?<!not )\bfixed upstream in ({_TAG})(?![\w.]*\w)")
_DEFINED = re.compile(r"(?:class|def|async def) (\w+)")
_TESTS = "tests/"


@dataclass(frozen=True)
class Obsolete:
    """Why a patch has nothing to do."""

    why: str
    evidence: tuple[Evidence, ...] = ()


def find_obsolete(
    git: Git,
    carried: Sequence[Carried],
    target: str,
    commit: str,
    gates: Gated | None,
    choices: Choices,
) -> dict[str, Obsolete]:
    """The patches that may leave: file -> why.

    Args:
        git: A repository of our own with the new release.
        carried: What became of all of them; those that were left out are not asked again.
        target, commit: The new release.
        gates: Asked about patches that a person lets go; None asks none.
        choices: Patches that somebody wants to keep, and what was accepted.
    """
    found: dict[str, Obsolete] = {}
    keep = choices.keep
    asked = [one for one in carried if not one.left_out and one.patch.file not in keep]
    for one in asked:
        why = _stated(one.patch, target, gates) or _gone(git, one, commit)
        if why is None and question_name(one.patch) in choices.accept:
            why = by_gates(one, gates)
        if why is not None and one.how != "emptied":
            found[one.patch.file] = why
    leaves = {*found, *(one.patch.file for one in carried if one.left_out)}
    return {**found, **_tests(carried, leaves, keep)}


def question_name(patch: Patch) -> str:
    """What ``--accept`` calls the leaving of a patch."""
    return f"{patch.file}:obsolete"


def by_gates(carried: Carried, gates: Gated | None) -> Obsolete | None:
    """What the gates say of a patch that conflicts."""
    mended = gates.mended(carried.patch.file) if gates and carried.how == "conflict" else None
    return Obsolete(*mended) if mended else None


def _stated(patch: Patch, target: str, gates: Gated | None) -> Obsolete | None:
    """What the patch itself says of the releases behind it, and what the gates say to that."""
    for status in patch.trailer("Upstream-Status"):
        match = _FROM_ON.search(status)
        try:
            due = match is not None and version_of(match[1] or match[2]) <= version_of(target)
        except UsageError:
            continue  # one of the two is no release
        if due:
            said = gates.mended(patch.file) if gates and not _is_test(patch) else None
            told, evidence = said or ("", ())
            why = f"its Upstream-Status: {status}{'; ' if told else ''}{told}"
            return Obsolete(why, evidence)
    return None


def _tests(
    carried: Sequence[Carried], leaves: Collection[str], keep: Collection[str]
) -> dict[str, Obsolete]:
    """The test of a patch stands directly behind it: without its patch it has nothing to test."""
    found: dict[str, Obsolete] = {}
    for fix, test in pairwise(carried):
        name = test.patch.file
        if fix.patch.file not in leaves or name in leaves or name in keep or test.left_out:
            continue
        if _is_test(test.patch) and not _is_test(fix.patch):
            found[name] = Obsolete(f"it is the test of {fix.patch.file}, which leaves")
    return found


def _is_test(patch: Patch) -> bool:
    return all(path.startswith(_TESTS) for path in patch.paths)


def _gone(git: Git, carried: Carried, commit: str) -> Obsolete | None:
    """Where everything that a patch changes is nowhere any more."""
    if carried.how != "conflict" or not carried.changes:
        return None
    names = dict.fromkeys(name for change in carried.changes for name in gone_names(change))
    rest = [change for change in carried.changes if not _all_gone(change)]
    if rest or any(_defined(git, commit, name) for _, name in names):
        return None
    evidence = [Evidence(path, 0, f"{name} is not there any more") for path, name in names]
    evidence += [
        Evidence(change.path, 0, "the file is not there any more")
        for change in carried.changes
        if not change.release and change.release_before
    ]
    return Obsolete("what it changes is nowhere any more", tuple(evidence)) if evidence else None


def _all_gone(change: Change) -> bool:
    if not change.release_before:
        return False  # the series makes the file itself
    if not change.release:
        return True
    tops = _tops(change)
    return bool(tops) and tops <= {name for _, name in gone_names(change)}


def gone_names(change: Change) -> list[tuple[str, str]]:
    """The classes and functions of the old release that a patch works in and that left the file.

    Returns:
        (path, name) pairs.
    """
    if not is_python(change.was):
        return []
    old = set(outline(change.was, change.release_before).by_key)
    new = set(outline(change.path, change.release).by_key)
    return [(change.path, name) for name in sorted(_tops(change)) if name in old - new]


def _tops(change: Change) -> set[str]:
    """The outermost scopes that a patch works in; empty names for the file itself."""
    before = outline(change.was, change.before)
    return {before.at(each.run.old).split(".", 1)[0] for each in change.runs}


def moved_to(git: Git, carried: Carried, commit: str) -> tuple[Evidence, ...]:
    """Where the classes and functions are now that a conflicting patch works in."""
    names = dict.fromkeys(
        name for change in carried.changes for _, name in gone_names(change) if name
    )
    return tuple(place for name in names for place in _defined(git, commit, name))


def _defined(git: Git, commit: str, name: str) -> tuple[Evidence, ...]:
    """Where the new release defines a class or function of this name."""
    found = _definitions(git, commit).get(name, ()) if name.isidentifier() else ()
    return tuple(Evidence(path, line, f"{text} is here now") for path, line, text in found)


@lru_cache(maxsize=2)
def _definitions(git: Git, commit: str) -> Mapping[str, Sequence[tuple[str, int, str]]]:
    """All outermost classes and functions of a commit: one process, however many are asked for."""
    pattern = r"^(class|def|async def) \w+"
    listed = git.run(
        "grep", "-n", "-z", "-E", "-e", pattern, commit, "--", "*.py", ok=(0, 1)
    ).stdout
    found: dict[str, list[tuple[str, int, str]]] = {}
    for line in listed.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        place, number, text = line.split("\0", 2)
        name = _DEFINED.match(text)
        if name is not None:
            path = place.partition(":")[2]
            found.setdefault(name[1], []).append((path, int(number), text.strip()))
    return found
