"""Which gates a patch turned green on the old release, and whether they are green on the new one.

The gates are vLLM's (``vpatch check``): a series of anything else has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vpatch.errors import UsageError
from vpatch.garbage import uncollected
from vpatch.git import Git
from vpatch.rebase.commits import Made, make_commits
from vpatch.rebase.model import Evidence
from vpatch.rebase.steps import Step

if TYPE_CHECKING:
    from vpatch.gates.gate import Subject, Verdict
    from vpatch.gates.modules import Module

_Greens = dict[str, tuple[Evidence, ...]]
Mended = tuple[str, tuple[Evidence, ...]]


class Gated:
    """The gates of a series' topics, asked as rarely as possible.

    Args:
        git: A repository of our own with both releases; it gains objects.
        steps: The series on the old release.
        source, target: Both releases' commits.
        kept: The user's cache, in which answers are kept; None: nowhere.
    """

    def __init__(
        self, git: Git, steps: Sequence[Step], source: str, target: str, kept: Path | None = None
    ) -> None:
        self.git = git
        self.steps = steps
        self.source = source
        self.target = target
        self.kept = kept
        # Both releases are asked for one topic after another.
        self._subjects: dict[str, Subject] = {}
        # What states of one release, and releases, share: blob -> it.
        self._parsed: dict[str, Module] = {}

    def mended(self, file: str) -> Mended | None:
        """What a patch turned green, if all of it is green on the new release as it is.

        Returns:
            A sentence and the lines that it rests on; None where there is no such gate, or one of
            them is not green.
        """
        number = next(n for n, step in enumerate(self.steps) if step.patch.file == file)
        with uncollected():
            fresh = self._fresh(self.steps[number].patch.topic)
            if not fresh:
                return None
            before, after = (
                self._asked(self._line[each], tuple(fresh)) for each in (number, number + 1)
            )
        turned = [name for name in fresh if name in after and name not in before]
        if not turned:
            return None
        what = f"gates {', '.join(turned)} pass" if turned[1:] else f"gate {turned[0]} passes"
        why = f"what it mends, upstream has of its own: {what} on the release as it is"
        return why, tuple(each for name in turned for each in fresh[name])

    def _fresh(self, topic: str) -> _Greens:
        """The gates of a topic that upstream turned green of its own."""
        from vpatch.gates.check import GATES  # noqa: PLC0415 - they take a while to import

        # What a gate of the code says may rest on those that were asked before it.
        names = tuple(each.name for each in GATES if each.topic == topic and each.group != "code")
        if not names:
            return {}
        now = self._asked(self.target, names)
        old = self._asked(self.source, tuple(now))
        return {name: line for name, line in now.items() if name not in old}

    @cached_property
    def _line(self) -> list[str]:
        """The commits of the old series, the release first."""
        made = [
            Made(
                step.patch,
                {p: e for p, e in step.after.items() if step.before.get(p) != e},
            )
            for step in self.steps
        ]
        return [self.source, *make_commits(self.git, self.source, made, name="source")]

    @cached_property
    def _trees(self) -> dict[str, str]:
        """commit -> its tree."""
        return {}

    def _asked(self, commit: str, names: Collection[str]) -> _Greens:
        """The gates that a commit passes, each with a line where one is known."""
        from vpatch.gates.kept import gates_of  # noqa: PLC0415

        if commit not in self._trees:
            self._trees[commit] = self.git.line("rev-parse", f"{commit}^{{tree}}")
        tree = self._trees[commit]
        try:
            found = gates_of(tree, names, self.kept, lambda asked: self._ask(commit, asked))
        except UsageError:
            return {}  # no vLLM
        return {
            name: tuple(_evidence(one.place, one.text))
            for name, one in found.items()
            if one.word == "pass"
        }

    def _ask(self, commit: str, names: Collection[str]) -> list[Verdict]:
        from vpatch.gates.check import GATES  # noqa: PLC0415
        from vpatch.gates.gate import judge  # noqa: PLC0415

        subject = self._subject(commit)
        verdicts = [judge(subject, gate) for gate in GATES if gate.name in names]
        self._parsed.update(subject.program.by_blob())
        return verdicts

    def _subject(self, commit: str) -> Subject:
        from vpatch.gates.gate import Subject  # noqa: PLC0415
        from vpatch.gates.modules import Program  # noqa: PLC0415
        from vpatch.gates.tree import of_git  # noqa: PLC0415

        if commit in self._subjects:
            return self._subjects[commit]
        subject = Subject(Program.knowing(of_git(self.git, commit, commit), self._parsed))
        if commit in (self.source, self.target):
            self._subjects[commit] = subject
        return subject


def _evidence(place: str, text: str) -> Iterator[Evidence]:
    file, _, line = place.rpartition(":")
    if file:
        yield Evidence(file, int(line), text)
