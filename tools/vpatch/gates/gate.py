"""Gates and verdicts: what is asked of a tree, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vpatch.gates.engine import Runner, Scene, Start, scene
from vpatch.gates.machine import Machine, Path, paths
from vpatch.gates.modules import Program
from vpatch.gates.registry import MissingPart
from vpatch.gates.stand_ins import stand_ins
from vpatch.gates.values import Place, Thrown, TooMuch, Value

Word = Literal["pass", "fail", "not-applicable"]
When = Literal["config", "after load", "first step", "never"]
# `start`: every start of Kimi-K2.5 with an EAGLE-3 drafter meets it; `option`: some do.
Group = Literal["start", "option", "code"]

_WAYS = 12


@dataclass(frozen=True)
class Evidence:
    """A line of the tree that a verdict rests on.

    Attributes:
        text: What is there, or what is not.
    """

    file: str
    line: int
    text: str

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {"file": self.file, "line": self.line, "text": self.text}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Found:
    """What a gate's check says.

    Attributes:
        error: The error text that a user gets; empty where none comes.
        when: When it comes; ``never``: a wrong result without a word.
        note: One sentence for people.
        unread: Of one that does not apply: only because its code could not be read.
        absent: Of one that fails: the tree has nothing at all of what is asked about.
    """

    word: Word
    evidence: tuple[Evidence, ...] = ()
    error: str = ""
    when: When = "never"
    note: str = ""
    unread: bool = False
    absent: bool = False


Check = Callable[["Subject"], Found]


@dataclass(frozen=True)
class Gate:
    """Something that a start needs.

    Attributes:
        name: Stable, for people and machines.
        asks: What is asked, as one phrase.
        topic: The topic of this project's series that mends it; empty where none does.
        upstream: The first release of upstream that has it; empty where none has.
    """

    name: str
    asks: str
    group: Group
    topic: str
    upstream: str
    check: Check = field(repr=False)


@dataclass(frozen=True)
class Verdict:
    """A gate, and what was found."""

    gate: Gate
    found: Found

    @property
    def failed(self) -> bool:
        """Whether a user would be hurt."""
        return self.found.word == "fail"

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        found = self.found
        return {
            "gate": self.gate.name,
            "asks": self.gate.asks,
            "group": self.gate.group,
            "verdict": found.word,
            "when": found.when if self.failed else None,
            "error": found.error or None,
            "note": found.note or None,
            "evidence": [each.as_dict() for each in found.evidence],
            "topic": self.gate.topic or None,
            "upstream": self.gate.upstream or None,
        }


@dataclass(frozen=True, eq=False)
class Subject:
    """The tree under check, with what several gates ask.

    Attributes:
        chosen: The model runner that VLLM_USE_V2_MODEL_RUNNER names; None: nobody chooses.
    """

    program: Program
    chosen: Runner | None = None
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    def keep(self, name: str, make: Callable[[], Any]) -> Any:
        """Works something out once."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def forget(self) -> None:
        """Lets go of all that was parsed and worked out; it can be asked no more.

        Values and runs refer to each other in circles: what they hold would wait for somebody
        to look for garbage among half a million nodes, which takes a tenth of a check.
        """
        self._kept.clear()
        self.program.forget()

    def ways(
        self,
        start: Start,
        act: Callable[[Scene], Value],
        *,
        first: bool = True,
        last: bool = True,
        limit: int = _WAYS,
    ) -> list[Path]:
        """All ways through what is done with a start."""

        def run(machine: Machine) -> Value:
            made = scene(machine, start)
            if self.chosen is not None:
                made.config.attrs["use_v2_model_runner"] = self.chosen == "v2"
            return act(made)

        return paths(self.program, run, stand_ins(start, first=first, last=last), limit)

    def way(self, start: Start, act: Callable[[Scene], Value], **how: Any) -> Path:
        """The way through it on which what is unknown does not hold."""
        return self.ways(start, act, limit=1, **how)[0]

    @property
    def runner(self) -> Runner:
        """The model runner that is asked about; the default one where nobody chooses."""
        return self.chosen or self.default_runner

    @property
    def default_runner(self) -> Runner:
        """The model runner that this tree takes for such a start where nobody chooses."""
        alone = self if self.chosen is None else Subject(self.program)
        runner: Runner = self.keep("default runner", alone._default_runner)
        return runner

    def _default_runner(self) -> Runner:
        def ask(made: Scene) -> Value:
            return made.run.attribute_or(made.config, "use_v2_model_runner", None)

        try:
            return "v2" if self.way(Start(), ask).value is True else "v1"
        except TooMuch:
            return "v1"

    def text_at(self, place: Place) -> str:
        """A line of the tree."""
        data = self.program.tree.read(place.path) or b""
        lines = data.split(b"\n")
        known = 0 < place.line <= len(lines)
        return lines[place.line - 1].decode("utf-8", "replace").strip() if known else ""

    def evidence(self, place: Place, text: str = "") -> Evidence:
        """A line as evidence."""
        return Evidence(place.path, place.line, text or self.text_at(place))


def raised(subject: Subject, thrown: Thrown, when: When, note: str = "") -> Found:
    """What an exception of the code means to its user."""
    error = f"{thrown.kind}: {thrown.text}" if thrown.text else thrown.kind
    return Found("fail", (subject.evidence(thrown.place),), error, when, note)


def judge(subject: Subject, gate: Gate) -> Verdict:
    """Asks one gate."""
    try:
        return Verdict(gate, gate.check(subject))
    except MissingPart as missing:
        return Verdict(gate, unread(f"this tree has no {missing}"))
    except TooMuch:
        return Verdict(gate, unread("the code cannot be followed to its end"))


def unread(note: str, evidence: tuple[Evidence, ...] = ()) -> Found:
    """Nothing is known: what is asked about could not be read."""
    return Found("not-applicable", evidence, note=note, unread=True)


def not_silent(verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """What could not be read is red, unless another gate says why it could not."""
    if any(each.failed and each.gate.group == "start" for each in verdicts):
        return verdicts
    return tuple(
        replace(each, found=replace(each.found, word="fail")) if each.found.unread else each
        for each in verdicts
    )
