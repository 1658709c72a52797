"""Patches that leave, though patches behind them import what they make."""

from __future__ import annotations

import re
from dataclasses import replace

from vpatch.git import Git
from vpatch.rebase.model import LEAVES, Question, Rebased, RebasedPatch

_PYTHON = ".py"


def with_needed(git: Git, rebased: Rebased) -> Rebased:
    """A rebase whose questions about leaving name the patches that need what would go.

    Args:
        git: The repository with the new release.

    Raises:
        HostError: git failed.
    """
    patches = list(rebased.patches)
    there = _there(git, rebased.base, [path for patch in patches for path in _made(patch)])
    for number, patch in enumerate(patches):
        made = [path for path in _made(patch) if path not in there]
        needing = _needing(made, patches[number + 1 :])
        if needing:
            told = tuple(_told(each, patch, needing) for each in patch.questions)
            patches[number] = replace(patch, questions=told)
    return replace(rebased, patches=tuple(patches))


def _made(patch: RebasedPatch) -> list[str]:
    """The Python files that an obsolete patch makes."""
    files = patch.carried.patch.files if patch.verdict.word == "obsolete" else ()
    return [each.path for each in files if each.kind == "add" and each.path.endswith(_PYTHON)]


def _there(git: Git, commit: str, paths: list[str]) -> set[str]:
    """Those that the new release has of its own."""
    if not paths:
        return set()
    listed = git.output("ls-tree", "-z", "--name-only", "--full-tree", commit, "--", *paths)
    return {name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0")}


def _needing(made: list[str], behind: list[RebasedPatch]) -> dict[str, int]:
    """file -> how many patches behind it, which stay, import it."""
    stay = [each.carried.patch.raw for each in behind if each.verdict.word not in LEAVES]
    counts = {path: sum(bool(_imports(path).search(raw)) for raw in stay) for path in made}
    return {path: count for path, count in counts.items() if count}


def _imports(path: str) -> re.Pattern[bytes]:
    """An added line that imports a file."""
    dotted = path.removesuffix(_PYTHON).replace("/", ".").encode()
    package, _, name = dotted.rpartition(b".")
    whole = rb"(?:from|import) " + re.escape(dotted) + rb"\b"
    of_package = rb"from " + re.escape(package) + rb" import (?:.*\b)?" + re.escape(name) + rb"\b"
    return re.compile(rb"^\+\s*(?:" + whole + rb"|" + of_package + rb")", re.MULTILINE)


def _told(question: Question, patch: RebasedPatch, needing: dict[str, int]) -> Question:
    if question.kind != "obsolete":
        return question
    path, count = max(needing.items(), key=lambda each: each[1])
    who = f"{count} patches" if count > 1 else "1 patch"
    verb = "import" if count > 1 else "imports"
    text = f"{question.text}; but {who} behind it {verb} {path}, which it makes: --keep "
    return replace(question, text=f"{text}{patch.file[:4]} carries it")
