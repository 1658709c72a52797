"""Which gates a patch turned green on the old release, and whether they are green on the new one.

The gates are vLLM's (``vpatch check``): a series of anything else has none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.rebase.commits import Made, make_commits
from vpatch.rebase.model import Evidence
from vpatch.rebase.steps import Step

if TYPE_CHECKING:
    from vpatch.gates.modules import Module, Program

_Greens = dict[str, tuple[Evidence, ...]]
_Known = dict[str, tuple[Evidence, ...] | None]


class Gated:
    """The gates of a series' topics, asked as rarely as possible.

    Args:
        git: A repository of our own with both releases; it gains objects.
        steps: The series on the old release.
        source, target: Both releases' commits.
    """

    def __init__(self, git: Git, steps: Sequence[Step], source: str, target: str) -> None:
        self.git = git
        self.steps = steps
        self.source = source
        self.target = target
        self._known: dict[str, _Known] = {}
        self._parsed: dict[str, Module] = {}
        self._touched = {path for step in steps for path in step.patch.paths}

    def mended(self, file: str) -> tuple[str, tuple[Evidence, ...]] | None:
        """What a patch turned green, if all of it is green on the new release as it is.

        Returns:
            A sentence and the lines that it rests on; None where there is no such gate, or one of
            them is not green.
        """
        number = next(n for n, step in enumerate(self.steps) if step.patch.file == file)
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

        names = tuple(each.name for each in GATES if each.topic == topic and each.group != "code")
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

    def _asked(self, commit: str, names: tuple[str, ...]) -> _Greens:
        """The gates that a commit passes, each with a line where one is known."""
        known = self._known.setdefault(commit, {})
        missing = [name for name in names if name not in known]
        if missing:
            known.update(dict.fromkeys(missing))
            known.update(self._ask(commit, missing))
        passed = ((name, known[name]) for name in names)
        return {name: found for name, found in passed if found is not None}

    def _ask(self, commit: str, names: Collection[str]) -> _Greens:
        from vpatch.gates.check import GATES  # noqa: PLC0415
        from vpatch.gates.gate import Subject, judge  # noqa: PLC0415
        from vpatch.gates.modules import Program  # noqa: PLC0415
        from vpatch.gates.tree import of_git  # noqa: PLC0415

        # The states of the old series are one release but for the files of the series.
        parsed = self._parsed if commit != self.target else {}
        modules = {name: each for name, each in parsed.items() if each.path not in self._touched}
        try:
            subject = Subject(Program(of_git(self.git, commit, commit), dict(modules)))
        except UsageError:
            return {}  # no vLLM
        found: _Greens = {}
        for gate in GATES:
            if gate.name in names and (verdict := judge(subject, gate)).found.word == "pass":
                first = verdict.found.evidence[:1]
                found[gate.name] = tuple(Evidence(one.file, one.line, one.text) for one in first)
        for path in subject.program.tree.paths if commit != self.target else ():
            module = _parsed(subject.program, path)
            if module is not None:
                self._parsed[module.dotted] = module
        return found


def _parsed(program: Program, path: str) -> Module | None:
    """A module of a program that was asked for already."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return program.module(dotted) if program.is_parsed(dotted) else None
