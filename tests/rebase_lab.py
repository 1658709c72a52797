"""Two releases of something small, and a series that moves from one to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from series_lab import TAG, Content, Lab, Step
from vpatch.patches.repository import scratch_repository
from vpatch.rebase.model import Choices, Rebased
from vpatch.rebase.rebase import Side, rebase

NEXT = "v9.9.10"
NONE = Choices()


class Move:
    """A series on ``before``, to be carried to ``after``."""

    def __init__(
        self,
        folder: Path,
        before: Mapping[str, Content],
        steps: Sequence[Step],
        after: Mapping[str, Content],
        *,
        kinds: tuple[str, str] = ("sdist", "sdist"),
    ) -> None:
        self.lab = Lab(folder, before)
        self.series = self.lab.series(folder / "series", steps)
        tree = self.lab.tree(None, after)
        self.next = self.lab.commit_tree(tree, None, "The next release")
        self.kinds = kinds
        self.since = ""
        self.made: dict[str, str] = {}
        self.contents: dict[str, bytes] = {}

    def go(self, choices: Choices = NONE) -> Rebased:
        """Carries it; ``contents`` is what comes out."""
        source = Side(TAG, self.lab.commit, self.kinds[0])
        target = Side(NEXT, self.next, self.kinds[1], self.since)
        with scratch_repository(self.lab.git.git_dir) as git:
            rebased = rebase(git, self.series, source, target, choices)
            listing = git.output("ls-tree", "-r", "-z", rebased.tree).decode().split("\0")[:-1]
            entries = [line.split("\t", 1) for line in listing]
            blobs = git.read_blobs(meta.split()[2] for meta, _ in entries)
            self.made = {path: meta.split()[0] for meta, path in entries}
            self.contents = {path: blobs[meta.split()[2]] for meta, path in entries}
        assert sum(rebased.counts.values()) == len(self.series.patches)
        return rebased


def words(rebased: Rebased) -> list[str]:
    """The verdicts, in order."""
    return [patch.verdict.word for patch in rebased.patches]


def kinds(rebased: Rebased) -> list[str]:
    """What is asked."""
    return [question.kind for question in rebased.questions]


def only(file: str, content: Content, path: str = "vllm/a.py") -> list[Step]:
    """A series of one patch that changes one file."""
    return [Step(file, {path: content})]
