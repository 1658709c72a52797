"""Makes the tables of docs/gates.md: the gates, engines beside them, and mutants of both.

    python ci/gate_docs.py [--check]

Of docs/gates-engine.json (ci/gate_table.py), docs/gates-mutants.json (ci/gate_mutants.py) and
what the gates say now. Exit 1: a gate and an engine disagree; with --check: the page is not this.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from gate_mutants import ROOT, counted, missed, read_list, upstream
from gate_probes import PROBES, agree
from gate_table import TAGS, read_seen
from vpatch.files import write_atomically
from vpatch.gates.check import GATES, check_tree
from vpatch.gates.tree import of_git
from vpatch.pipeline import Upstream, fetch
from vpatch.status.topics import topics_of_gate

PAGE = ROOT / "docs" / "gates.md"
Verdicts = Mapping[str, Mapping[str, Any]]
_CODE = "every start above that works went through this code"
_LONGEST = 110
_TABLE = re.compile(r"(<!-- table: (?P<name>[^\n]+?) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def static_of(tag: str, source: Upstream) -> Verdicts:
    """What the gates say of a release as it is, for the runner that a CPU has."""
    mirror, release = fetch(tag, source, None)
    checked = check_tree(of_git(mirror.git, release.tree, tag), runner="v1")
    return {each.gate.name: each.as_dict() for each in checked.verdicts}


def gate_rows() -> Iterator[str]:
    """The gates."""
    yield "| gate | asks | topic | upstream |"
    yield "| --- | --- | --- | --- |"
    for gate in GATES:
        topics = ", ".join(topics_of_gate(gate.name)) if gate.topic else "-"
        yield f"| `{gate.name}` | {gate.asks} | {topics} | {gate.upstream or '-'} |"


def release_rows(tag: str, static: Verdicts, seen: Verdicts) -> Iterator[str]:
    """One release: each gate, what it says, what the engine did, whether they agree."""
    yield f"\n### {tag}\n"
    yield "| gate | it says | the engine | held together |"
    yield "| --- | --- | --- | --- |"
    probes = {each.gate: each for each in PROBES}
    for gate in GATES:
        verdict, did = static[gate.name], seen.get(gate.name)
        probe = probes.get(gate.name)
        if did is None or probe is None:
            why = (probe.why.get(tag) if probe else None) or ""
            told = f"not seen here: it takes {why}" if why else "-"
            if gate.group == "code" and verdict["verdict"] == "pass":
                told = _CODE
            yield f"| `{gate.name}` | {_said(verdict)} | {told} | {'' if why else '-'} |"
            continue
        held = agree(verdict, did, refuses=probe.refuses)
        yield f"| `{gate.name}` | {_said(verdict)} | {_did(did)} | {held} |"


def _said(verdict: Mapping[str, Any]) -> str:
    if verdict["verdict"] != "fail":
        return "does not apply" if verdict["verdict"] == "not-applicable" else "pass"
    when = "" if verdict["when"] == "never" else f", {verdict['when']}"
    return f"**fail**{when}: {_cell(verdict['error'] or verdict['note'])}"


def _did(seen: Mapping[str, Any]) -> str:
    behind = f" (behind {seen['behind']})" if seen.get("behind") else ""
    when = f", {seen['when']}" if seen["when"] else ""
    return f"{seen['word']}{when}: {_cell(seen['text'])}{behind}"


def _cell(text: str) -> str:
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return short.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def mutant_rows() -> Iterator[str]:
    """Releases, counts, and what was missed."""
    yield "| release | mutants | a gate turns red | run on the engine | break it | of these red | |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    entries = read_list()
    for tag, each in entries.items():
        red = sum(bool(one["red"]) for one in each)
        words = Counter(one["engine"] for one in each)
        ran = sum(count for word, count in words.items() if word in {"broken", "whole"})
        broken, seen = counted(each)
        share = f"{seen / broken:.1%}" if broken else ""
        yield f"| {tag} | {len(each)} | {red} | {ran} | {broken} | {seen} | {share} |"
    lines = list(missed(entries))
    if lines:
        yield "\nThose that break the engine while every gate is green:\n"
        yield from (f"- {_cell(line)}" for line in lines)


def beside_rows(source: Upstream) -> Iterator[str]:
    """Every release that engines were asked about."""
    seen = read_seen()
    for tag in TAGS:
        if tag in seen:
            yield from release_rows(tag, static_of(tag, source), seen[tag])


def page(old: str, source: Upstream) -> str:
    """The page with its tables made anew."""
    tables = {
        "gates": gate_rows,
        "beside the engine": lambda: beside_rows(source),
        "mutants": mutant_rows,
    }

    def made(found: re.Match[str]) -> str:
        rows = "\n".join(tables[found["name"]]()).strip()
        return f"{found[1]}\n{rows}\n\n"

    return _TABLE.sub(made, old)


@click.command(help=__doc__.split("\n\n", 1)[0])
@click.option("--check", is_flag=True, help="Write nothing.")
def main(check: bool) -> None:
    old = PAGE.read_text()
    text = page(old, upstream())
    if not check:
        write_atomically(PAGE, text.encode())
    elif old != text:
        click.echo(f"{PAGE.name} is not up to date: python ci/gate_docs.py", err=True)
        sys.exit(1)
    if "CONTRADICTED" in text:
        click.echo("a gate and an engine disagree", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
