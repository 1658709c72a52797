"""Does a changed file break the engine? The smoke's starts that run its lines, and its checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from gate_mutate import Mutant
from overlay import make_tree
from vpatch.errors import FindingError, HostError
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.smoke import session
from vpatch.smoke.environment import Environment, make_environment
from vpatch.smoke.judge import Check, Result, judge_all
from vpatch.smoke.library import engine_library
from vpatch.smoke.plan import Plan, Wish
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import facts_of
from vpatch.smoke.run import Children, Outcome, Start, _run
from vpatch.smoke.wheels import find_subject
from vpatch.tags import version_of
from vpatch.wheel.edits import FileEdit

# What takes a minute, or asks nothing of a drafter's states.
_LEFT_OUT = re.compile(
    r"(trained|temperature|structured-output|server|prefix-caching)/.*|.*/compile"
)
_LIMIT_S = 180.0
_PASSED = re.compile(r"PATH|LANG|TMPDIR|LD_LIBRARY_PATH")
Lines = Mapping[str, Collection[int]]


@dataclass(frozen=True)
class Broken:
    """What an engine did with a mutant.

    Attributes:
        word: ``broken``, ``whole``, or ``not reached``: no start runs the lines.
        check: The check that fails; empty where none does.
        evidence: Its own words.
        starts: The starts that were made.
    """

    word: str
    check: str
    evidence: str
    starts: tuple[str, ...]


class Forked:
    """Engine-side modules in forks of one process; stands in for `vpatch.smoke.run.Children`."""

    def __init__(
        self, environment: Environment, scratch: Path, variables: Mapping[str, str]
    ) -> None:
        self._library = engine_library(scratch)
        self._folder = scratch / "home"
        self._folder.mkdir(exist_ok=True)
        self.preloads = scratch / "preloads.json"
        self.site = environment.path[0]
        self.traced: Sequence[str] = ()
        own = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
        self._variables = {
            **own,
            "HOME": str(self._folder),
            "PYTHONUNBUFFERED": "1",
            **environment.variables,
            **variables,
        }
        command = [str(environment.python), str(Path(__file__).with_name("gate_fork.py"))]
        with (scratch / "fork.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.preloads)],
                env=self._variables | {"PYTHONPATH": str(self._library)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
            )
        self._in = cast("IO[bytes]", self._process.stdin)
        self._out = cast("IO[bytes]", self._process.stdout)
        self._answer()

    def module(
        self,
        name: str,
        argument: Path,
        *,
        log: Path,
        limit: float,
        variables: Mapping[str, str] | None = None,
        answer: Path | None = None,
    ) -> str | None:
        """As `vpatch.smoke.run.Children.module`."""
        path = [*([] if name == "compare" else [str(self.site)]), str(self._library)]
        request = {
            "module": f"vpatch.smoke.engine.{name}",
            "argument": str(argument),
            "log": str(log),
            "output": str(answer or log),
            "limit": min(limit, _LIMIT_S),
            "path": path,
            "folder": str(self._folder),
            "variables": {**(variables or {}), "PYTHONPATH": os.pathsep.join(path)},
            "traced": list(self.traced) if name == "start" else [],
            "lines": str(log.with_name("lines.json")),
        }
        self._in.write(json.dumps(request).encode() + b"\n")
        self._in.flush()
        code = self._answer()["code"]
        if code is None:
            return f"did not end within {request['limit']:.0f} seconds"
        return None if code == 0 else f"ended with exit code {code}"

    def _answer(self) -> dict[str, Any]:
        line = self._out.readline()
        if not line:
            raise HostError("the process that forks has ended", hint="See fork.log.")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the process."""
        self._in.close()
        self._process.wait()


class Lab:
    """The smoke of one patched release, and what becomes of it where a file is another one.

    Args:
        tag: The release.
        repo: Where its series is.
        source: Where releases come from.
        scratch: Kept between runs: checkpoints, the unchanged release's answers.
        files: The files whose lines are followed.
    """

    def __init__(
        self, tag: str, repo: Path, source: Upstream, scratch: Path, files: Sequence[str]
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        wheel, _ = find_subject(tag, "cpu", repo, source, scratch / "wheel", unpatched=False)
        cache = source.cache
        self.environment = make_environment(wheel, "cpu", cache=cache, progress=SilentProgress())
        self.plan = _plan(tag)
        self.scratch = scratch
        self._whole = scratch / "whole" / self.environment.path[0].name
        self.files = files
        variables = session._variables(self.environment, cache / "smoke", scratch)
        (common,) = {tuple(sorted(start.variables.items())) for start in self.plan.starts}
        self._forked = Forked(self.environment, scratch, {**variables, **dict(common)})
        self._children = cast("Children", self._forked)
        self.models = self._models()
        self.whole = {start.name: self._unchanged(start) for start in self.plan.starts}
        wrong = [each for each in judge_all(self.plan.checks, self.whole) if each.verdict != "pass"]
        if wrong:
            raise FindingError(f"{tag} itself does not pass {wrong[0].check}: {wrong[0].evidence}")
        self.lines = {start.name: self._lines(start) for start in self.plan.starts}

    def close(self) -> None:
        """Ends what was started."""
        self._forked.close()

    def concerned(self, path: str, lines: Iterable[int]) -> list[Start]:
        """The starts that run some of these lines; all where none are named. The quickest first."""
        wanted = {(path, line) for line in lines}
        found = [
            start
            for start in self.plan.starts
            if start.job.get("drafter") and (not wanted or wanted & self.lines[start.name])
        ]
        return sorted(found, key=lambda start: self.whole[start.name].seconds)

    def judge(self, mutant: Mutant) -> Broken:
        """What the engine does with a changed file."""
        starts = self.concerned(mutant.path, mutant.piece.lines)
        if not starts:
            return Broken("not reached", "", "", ())
        self._forked.site = self._changed(mutant.path, mutant.data)
        made = []
        try:
            for start in starts:
                made.append(start.name)
                failed = self._failed(
                    start, self._start(start, self.scratch / "mutants" / mutant.key)
                )
                if failed is not None:
                    return Broken("broken", failed.check, failed.evidence[:400], tuple(made))
        finally:
            shutil.rmtree(self.scratch / "mutants" / mutant.key, ignore_errors=True)
            self._forked.site = self.environment.path[0]
        return Broken("whole", "", "", tuple(made))

    def _failed(self, start: Start, outcome: Outcome) -> Result | None:
        outcomes = {**self.whole, start.name: outcome}
        results = judge_all(self._checks(start.name), outcomes)
        failed = [each for each in results if each.verdict == "fail"]
        return failed[0] if failed else next((e for e in results if e.verdict != "pass"), None)

    def _checks(self, start: str) -> list[Check]:
        return [check for check in self.plan.checks if start in check.starts]

    def _start(self, start: Start, folder: Path) -> Outcome:
        placed = session._placed(start, self.models, self.environment, self.scratch)
        shutil.rmtree(folder, ignore_errors=True)
        return _run(replace(placed, limit=_LIMIT_S), self._children, folder)

    def _changed(self, path: str, data: bytes) -> Path:
        """A folder of links with this file changed; one for each path, so that what Python compiles
        of its neighbours is kept."""
        lower = self.environment.path[0]
        place = self.scratch / "sites" / path.replace("/", "-").removesuffix(".py") / lower.name
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            make_tree(lower, place, [FileEdit(path, None, data, 0, 0o100644)])
        file = place / path
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()  # its time and size may be those of the file before
        file.write_bytes(data)
        return place

    def _models(self) -> dict[str, Path]:
        if not (self.scratch / "models-of-spec").is_dir():
            return session.write_models(self.plan.models, self._children, self.scratch)
        folder = self.scratch / "models"
        return {place.name: place for place in folder.iterdir()}

    def _unchanged(self, start: Start) -> Outcome:
        folder = self._whole / start.name.replace("/", "-")
        kept = folder / "outcome.json"
        if kept.is_file():
            return Outcome(**{**json.loads(kept.read_text()), "log": folder / "log"})
        self._forked.traced = self.files
        outcome = self._start(start, folder)
        self._forked.traced = ()
        shown = {**vars(outcome), "log": None}
        kept.write_text(json.dumps(shown))
        return outcome

    def _lines(self, start: Start) -> set[tuple[str, int]]:
        folder = self._whole / start.name.replace("/", "-")
        modules = folder / "lines.modules"
        if start.job.get("drafter") and not self._forked.preloads.is_file():
            shutil.copyfile(modules, self._forked.preloads)  # for the next time
        return {(path, line) for path, line in json.loads((folder / "lines.json").read_text())}


def _plan(tag: str) -> Plan:
    facts = facts_of(version_of(tag))
    every = make_plan(Wish("cpu", "full", ("v1",)), facts)
    names = [
        check.name
        for check in every.checks
        if not any(_LEFT_OUT.fullmatch(each) for each in (check.name, *check.starts))
    ]
    wish = Wish("cpu", "full", ("v1",), tuple(names))
    plan = make_plan(wish, facts)
    return replace(plan, starts=tuple(s for s in plan.starts if not _LEFT_OUT.fullmatch(s.name)))
