"""From facts to cells: which word a release gets for a topic, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vpatch.gates.kept import GateSaid
from vpatch.smoke.stored import StoredCheck, StoredReport
from vpatch.status.cell import Cell, Proof, Row, Word
from vpatch.status.defects import Defect
from vpatch.status.topics import BY_NAME, Topic, in_order, topics_of_gate
from vpatch.status.trees import TreeSaid


@dataclass(frozen=True)
class Facts:
    """What is known of a release.

    Attributes:
        revision: Of its pin; None without one.
        series: The hash of its series; empty without one.
        patches: Topic -> subjects of the series' patches.
        bare, patched: The gates on the tree as it is, and with the series; None: not asked.
        why: Why they were not asked.
        trouble: What is wrong with the pin or the series itself.
        defects: Those that the release has as it is, each with its topic.
        reports: Of this release, patched and not.
        carried: The topics of the series nearest to it: its own, where it has one.
    """

    tag: str
    revision: int | None = None
    series: str = ""
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bare: TreeSaid | None = None
    patched: TreeSaid | None = None
    why: str = ""
    trouble: str = ""
    defects: tuple[tuple[str, Defect], ...] = ()
    reports: tuple[StoredReport, ...] = ()
    carried: frozenset[str] = frozenset()

    def ran(self, report: StoredReport) -> bool:
        """Whether a run may be of this very series: of its revision, and not of other bytes."""
        same = report.series in {"", self.series} or not self.series
        return report.revision == self.revision and same

    def proves(self, report: StoredReport) -> bool:
        """Whether it surely is: one that does not say its series' hash proves nothing of it."""
        return self.ran(report) and (report.series == self.series or not self.series)


def untold(patched: TreeSaid | None) -> str:
    """What is red on a patched tree and stands in no topic's cell: the release is broken by it."""
    failing = patched.failing() if patched else ()
    lines = [gate.line for gate in failing if not topics_of_gate(gate.name)]
    return f"on the patched tree: {'; '.join(lines)}" if lines else ""


def make_row(facts: Facts, topics: Sequence[str]) -> Row:
    """A release's cells."""
    cells = tuple(_cell(facts, topic) for topic in topics)
    return Row(facts.tag, facts.revision, cells, facts.trouble, facts.why, facts.defects)


def all_topics(releases: Sequence[Facts]) -> list[str]:
    """The table's topics, and those of the series that it does not have."""
    return in_order([*BY_NAME, *(topic for one in releases for topic in one.patches)])


def _cell(facts: Facts, topic: str) -> Cell:
    proofs = tuple(_proofs(facts, topic, patched=True))
    current = [one for one in proofs if facts.ran(one.report)]
    sure = tuple(one for one in current if facts.proves(one.report))
    patches = facts.patches.get(topic, ())
    cell = Cell(
        topic,
        "unknown",
        needed=tuple(_needed(facts, topic)),
        upstream=tuple(_upstream(facts, topic)),
        patches=patches,
        proofs=proofs,
        seen=tuple(_proofs(facts, topic, patched=False)),
        broken=tuple(_broken(facts, topic, _newest(current))),
        revision=facts.revision,
        current=sure,
    )
    word = _word(cell, sure)
    return replace(cell, word=word, why=_why(facts, topic) if word == "unknown" else facts.why)


def _why(facts: Facts, topic: str) -> str:
    """Why nothing is known."""
    if facts.why or facts.trouble:
        return facts.why or facts.trouble
    if topic not in BY_NAME or not BY_NAME[topic].gates:
        return "no gate speaks for this topic, and the release has no pin"
    return "an error that comes first hides it: a start never gets so far"


def _word(cell: Cell, current: Sequence[Proof]) -> Word:
    if cell.broken:
        return "broken"
    if cell.patches:
        if any(one.good for one in current):
            return "proven"
        return "stale" if any(one.good for one in cell.proofs) else "patched"
    if cell.needed:
        return "needed"
    return "upstream" if cell.upstream else "unknown"


def _needed(facts: Facts, topic: str) -> Iterator[str]:
    for gate in facts.bare.failing() if facts.bare else ():
        if topic in _mended_in(gate, facts.carried):
            yield gate.line
    yield from (defect.said for of, defect in facts.defects if of == topic)


def _mended_in(gate: GateSaid, carried: frozenset[str]) -> tuple[str, ...]:
    """The topics that a gate counts for, where some of its topics are carried: those."""
    topics = topics_of_gate(gate.name)
    return tuple(topic for topic in topics if topic in carried) or topics


def _upstream(facts: Facts, topic: str) -> Iterator[str]:
    known = BY_NAME.get(topic)
    if facts.bare is None or known is None:
        return
    for name in known.gates:
        gate = facts.bare.gates.get(name)
        if gate is not None and gate.word == "pass":
            yield f"gate {name} passes on the release as it is: {gate.asks}"
    if _does_not_apply(facts, known):
        yield "none of its gates applies to the release"


def _does_not_apply(facts: Facts, topic: Topic) -> bool:
    """Whether the release has nothing that the topic is about.

    An error that comes first hides the rest: then only the patched tree tells.
    """
    tree = facts.patched or facts.bare
    if tree is None or not topic.gates or (tree is facts.bare and tree.hidden):
        return False
    return all(
        tree.gates[name].word == "not-applicable" for name in topic.gates if name in tree.gates
    )


def _proofs(facts: Facts, topic: str, *, patched: bool) -> Iterator[Proof]:
    known = BY_NAME.get(topic)
    mine = [
        one
        for one in facts.reports
        if (one.revision is not None) is patched and _carries(facts, one, topic)
    ]
    for report in sorted(mine, key=lambda one: (one.revision or 0, one.when), reverse=True):
        checks = [one for one in report.checks if known and known.has_check(one.name)]
        if checks:
            yield Proof(
                report,
                sum(one.verdict == "pass" for one in checks),
                tuple(one for one in checks if one.verdict == "fail"),
                tuple(one.name for one in checks if one.verdict == "not-run"),
            )


def _carries(facts: Facts, report: StoredReport, topic: str) -> bool:
    """Whether a run is about a topic: of another revision only the report itself can tell."""
    if report.revision is None:
        return True
    return topic in (facts.patches if facts.ran(report) else report.topics or ())


def _newest(current: Sequence[Proof]) -> list[tuple[Proof, StoredCheck]]:
    """What failed, as the newest report on the same device that asks says."""
    told: set[tuple[str, str]] = set()
    failed = []
    for proof in current:
        for check in proof.report.checks:
            key = (proof.report.device, check.name)
            if key not in told and check in proof.failed:
                failed.append((proof, check))
            told.add(key)
    return failed


def _broken(facts: Facts, topic: str, failed: Sequence[tuple[Proof, StoredCheck]]) -> Iterator[str]:
    for gate in facts.patched.failing() if facts.patched else ():
        if topic in _mended_in(gate, facts.carried) and not _unclaimed(facts, gate):
            yield f"on the patched tree: {gate.line}"
    for proof, check in failed:
        yield f"{check.name} fails ({proof.report.file}): {check.evidence}"


def _unclaimed(facts: Facts, gate: GateSaid) -> bool:
    """Whether the tree has nothing of it, and the series no topic of it: only needed."""
    own = set(topics_of_gate(gate.name))
    return (
        facts.patched is not None and gate.name in facts.patched.absent and not own & facts.carried
    )
