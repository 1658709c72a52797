"""Patches that upstream's history has as commits: the same change, byte for byte (`git patch-id`).

Only where there is a history: a clone of upstream's repository. That upstream took a patch once
does not say that it is there still; what conflicts for that reason leaves with a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vpatch.git import Git
from vpatch.patches.commits import DIFF_OPTIONS
from vpatch.patches.patch import Patch


def find_taken(git: Git, patches: Sequence[Patch], start: str, end: str) -> Mapping[str, str]:
    """The patches that are commits of upstream's: file -> commit.

    Args:
        git: A repository that has the history.
        start, end: Where upstream was at the old release, and where it is.
    """
    paths = sorted({path for patch in patches for path in patch.paths})
    if not paths:
        return {}
    options = ("--no-merges", "--format=commit %H", "-p", "--full-diff", *DIFF_OPTIONS)
    history = git.output("log", *options, f"{start}..{end}", "--", *paths)
    commits = dict(_ids(git, history))
    # A number in the place of a commit's id: git hands it back.
    mine = b"".join(
        b"commit %040x\n\n" % number + patch.diff for number, patch in enumerate(patches)
    )
    return {
        patches[int(number, 16)].file: commits[change]
        for change, number in _ids(git, mine)
        if change in commits
    }


def _ids(git: Git, text: bytes) -> list[tuple[str, str]]:
    """(what a commit changes, its id) of each commit in a text."""
    listed = git.output("patch-id", "--verbatim", stdin=text).decode("ascii")
    pairs = (line.split(" ") for line in listed.splitlines())
    return [(change, commit) for change, commit in pairs]
