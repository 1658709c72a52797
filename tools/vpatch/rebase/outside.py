"""Calls that upstream added in files that no patch touches, of what a patch declares otherwise.

The merge never sees them: a patch that gives a function another parameter fits, and the caller that
upstream wrote meanwhile, elsewhere, is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vpatch.gates.modules import Function
from vpatch.git import Git
from vpatch.rebase.guard.calls import FileSide, calls_on, said_otherwise
from vpatch.rebase.guard.change import CALL_MISFIT, Reader
from vpatch.rebase.guard.library import Library
from vpatch.rebase.guard.outline import outline
from vpatch.rebase.guard.pieces import pieces
from vpatch.rebase.model import LEAVES, Question, Rebased, RebasedPatch
from vpatch.rebase.rebase import Side
from vpatch.rebase.snapshot import Snapshot

_PYTHON = ".py"
_HEAD = re.compile(
    rb"^(?P<indent>[ \t]*)(?:class[ \t]+(?P<owner>\w+)"
    rb"|(?:async[ \t]+)?def[ \t]+(?P<name>\w+)[ \t]*\()",
    re.MULTILINE,
)
_BRACKET = re.compile(rb"[(\[{]|[)\]}]")


@dataclass(frozen=True)
class _Trees:
    """The old release, the new one, and the new one with the series."""

    old: Snapshot
    new: Snapshot
    result: Snapshot


def with_outside_calls(git: Git, rebased: Rebased, source: Side) -> Rebased:
    """A rebase, with a question for every call of upstream's that fits its own tree alone.

    Args:
        git: A repository of our own with both releases.
        rebased: What became of the series. Where there is a conflict, there is nothing to ask yet.
        source: The old release.

    Raises:
        HostError: git failed.
    """
    if rebased.conflicts or rebased.tree == rebased.base_tree:
        return rebased
    trees = _Trees(*(Snapshot(git, each) for each in (source.commit, rebased.base, rebased.tree)))
    declared = _declared_otherwise(trees)
    patches = list(rebased.patches)
    for path in _changed(trees.old, trees.new) if declared else ():
        if trees.result.listed.get(path) == trees.new.listed[path]:
            for scope, line, name, why in _wrong_calls(trees, path, declared):
                number = _speaking(patches, declared[name], name)
                asked = _question(patches[number], path, scope, line, why)
                questions = patches[number].questions
                if asked.name not in {each.name for each in questions}:
                    patches[number] = replace(patches[number], questions=(*questions, asked))
    return replace(rebased, patches=tuple(patches))


def _changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The Python files of a tree that another one has otherwise, or has not; they are read."""
    found = [
        path
        for path, entry in after.listed.items()
        if path.endswith(_PYTHON) and before.listed.get(path) != entry
    ]
    after.read_ahead(found)
    return found


def _declared_otherwise(trees: _Trees) -> dict[str, str]:
    """What is called by a name and takes less, or something else, than upstream's: name -> file."""
    found: dict[str, str] = {}
    for path in _changed(trees.new, trees.result):
        before = trees.new.original(path)
        after = trees.result.original(path)
        if before is not None and after is not None:
            theirs, ours = _heads(before.data), _heads(after.data)
            found |= {
                name.rpartition(".")[2]: path
                for name in theirs.keys() & ours.keys()
                if theirs[name] != ours[name] and not _takes_all(theirs[name], ours[name])
            }
    return found


def _heads(data: bytes) -> dict[str, tuple[bytes, ...]]:
    """What the functions of a file say of their parameters, by the name that a call has for them.

    The maker of a class is called by the class's name. Functions of one name are together: a call
    does not tell which of them it means.
    """
    found: dict[str, tuple[bytes, ...]] = {}
    owner = ""
    for match in _HEAD.finditer(data):
        if match["owner"] is not None:
            owner = match["owner"].decode() if not match["indent"] else owner
            continue
        name = match["name"].decode()
        own = f"{owner}." if match["indent"] else ""
        called = f"{own}{owner}" if name == "__init__" and own else f"{own}{name}"
        found[called] = (*found.get(called, ()), _parameters(data, match.end() - 1))
    return found


def _parameters(data: bytes, start: int) -> bytes:
    """From one bracket to the one that closes it."""
    depth = 0
    for match in _BRACKET.finditer(data, start):
        depth += 1 if match[0] in b"([{" else -1
        if not depth:
            return data[start : match.end()]
    return data[start:]


def _takes_all(theirs: tuple[bytes, ...], ours: tuple[bytes, ...]) -> bool:
    """Whether every call that fits upstream's functions fits those of the series."""
    if len(theirs) != len(ours):
        return False
    pairs = [(_parsed(one), _parsed(other)) for one, other in zip(theirs, ours, strict=True)]
    return all(
        one is not None and other is not None and _covers(one, other) for one, other in pairs
    )


def _parsed(parameters: bytes) -> Function | None:
    try:
        (node,) = ast.parse(b"def f%b: ..." % parameters).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return node if isinstance(node, Function) else None


def _covers(theirs: Function, ours: Function) -> bool:
    one, other = theirs.args, ours.args
    before = [each.arg for each in (*one.posonlyargs, *one.args)]
    after = [each.arg for each in (*other.posonlyargs, *other.args)]
    if after[: len(before)] != before or len(after) - len(other.defaults) > len(before):
        return False
    if len(before) - len(one.defaults) < len(after) - len(other.defaults):
        return False
    more_rest = (one.vararg and not other.vararg) or (one.kwarg and not other.kwarg)
    known = {*after, *(each.arg for each in other.kwonlyargs)}
    needed = {
        each.arg
        for each, default in zip(other.kwonlyargs, other.kw_defaults, strict=True)
        if default is None
    }
    only = {each.arg for each in one.kwonlyargs}
    return not more_rest and only <= known and needed <= only


def _wrong_calls(
    trees: _Trees, path: str, declared: Mapping[str, str]
) -> Iterator[tuple[str, int, str, str]]:
    """(scope, line, name, why) of calls that are new in a file of upstream's."""
    entry, old = trees.new.original(path), trees.old.original(path)
    if entry is None:
        return
    known = {line.strip() for line in old.data.split(b"\n")} if old is not None else set()
    lines = entry.data.split(b"\n")
    fresh = frozenset(n for n, text in enumerate(lines, start=1) if text.strip() not in known)
    called = re.compile(rb"(?<!def )\b(?:" + b"|".join(map(str.encode, declared)) + rb")\s*\(")
    if not called.search(entry.data):
        return
    sides = [_side(tree, path, entry.data) for tree in (trees.new, trees.result)]
    if sides[0] is None or sides[1] is None:
        return
    for call, line, _ in calls_on(pieces(entry.data), fresh):
        name = _name(call.func)
        if name in declared:
            why = _why(call, line, sides[0], sides[1])
            if why:
                yield sides[1].outline.at(line), line, name, why


def _side(tree: Snapshot, path: str, data: bytes) -> FileSide | None:
    library = Library(read=_reader(tree))
    module = library.of(path, data)
    return FileSide(library, module, outline(path, data), data) if module is not None else None


def _reader(tree: Snapshot) -> Reader:
    def read(path: str) -> bytes | None:
        entry = tree.original(path)
        return entry.data if entry is not None else None

    return read


def _name(called: ast.expr) -> str:
    return getattr(called, "attr", getattr(called, "id", ""))


def _why(call: ast.Call, line: int, theirs: FileSide, ours: FileSide) -> str:
    was, now = theirs.at(line).callee(call.func), ours.at(line).callee(call.func)
    if was is None or now is None or was.unfit(theirs.library, call):
        return ""
    return now.unfit(ours.library, call) or said_otherwise(call, was, now)


def _speaking(patches: list[RebasedPatch], path: str, name: str) -> int:
    """The patch that is asked about: the last that stays and writes the name in the file."""
    word = re.compile(rb"^\+.*\b" + name.encode() + rb"\b", re.MULTILINE)

    def speaks(number: int) -> tuple[bool, bool, bool, int]:
        patch = patches[number].carried.patch
        stays = patches[number].verdict.word not in LEAVES
        return stays, path in patch.paths, bool(word.search(patch.diff)), number

    return max(range(len(patches)), key=speaks)


def _question(patch: RebasedPatch, path: str, scope: str, line: int, why: str) -> Question:
    return Question(
        name=f"{patch.file}:{CALL_MISFIT}:{path}:{scope}",
        kind=CALL_MISFIT,
        path=path,
        line=line,
        text=f"upstream's call in a file that no patch touches is wrong with the series: {why}",
    )
