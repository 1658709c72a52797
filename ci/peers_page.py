"""What rebase_peers.py prints, the page docs/rebase.md, and what is not allowed in it."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vpatch.patches.repo import pinned, pinned_tags

ROOT = Path(__file__).resolve().parents[1]
OURS = "vpatch rebase"
WORDS = ("right", "stops", "silent", "wrong")


@dataclass(frozen=True)
class Row:
    """A case, and a word for each tool."""

    name: str
    what: str
    words: Mapping[str, str]


@dataclass(frozen=True)
class Step:
    """A real series on the next release, with one tool."""

    step: str
    tool: str
    outcome: str
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Time:
    """A thing against the clock.

    Attributes:
        cpu: The processor's seconds.
        peer: It has to be faster than this one; empty: it is a peer itself, or has none.
        times: How many times as fast.
        limit: Seconds that it may take; 0: any.
        cores: How many it uses at once.
    """

    what: str
    tool: str
    seconds: float
    cpu: float
    peer: str = ""
    limit: float = 0
    cores: int = 1
    times: float = 1

    def took(self, *, busy: bool) -> float:
        """Seconds; on a machine that has other work, those that it would take alone, at best."""
        return self.cpu / self.cores if busy else self.seconds


@dataclass
class Page:
    """All that was found."""

    tools: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    steps: tuple[Step, ...] = ()
    times: tuple[Time, ...] = ()
    load: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether the machine had other work than this."""
        return self.load > (os.cpu_count() or 1)


def problems(page: Page) -> Iterator[str]:
    """Where vpatch is wrong or silent, or slower than was promised."""
    for row in page.rows:
        if row.words[OURS] in ("wrong", "silent"):
            yield f"case {row.name}: vpatch is {row.words[OURS]}: {row.what}"
    for time in page.times:
        took = time.took(busy=page.busy)
        if time.limit and took > time.limit:
            yield f"{time.what}: {took:.2f} s, more than {time.limit:g} s"
        peer = next((p for p in page.times if p.what == time.what and p.tool == time.peer), None)
        if peer is not None and took * time.times > peer.took(busy=page.busy):
            yield (
                f"{time.what}: {took:.2f} s, {peer.tool} {peer.took(busy=page.busy):.2f} s: "
                f"not {time.times:g} times as fast"
            )


def shown(page: Page, part: str) -> Iterator[str]:
    """One part for people."""
    if part == "cases":
        for row in page.rows:
            words = "  ".join(f"{tool}: {word:7}" for tool, word in row.words.items())
            yield f"{row.name:9} {words}"
    elif part == "real":
        for step in page.steps:
            took = f"{step.seconds:7.2f} s {step.cpu:7.2f} cpu"
            yield f"{step.step}  {step.tool:14} {took}  {step.outcome}"
    else:
        for time in page.times:
            yield f"{time.what:40} {time.tool:42} {time.seconds:7.2f} s {time.cpu:7.2f} cpu"


def text(page: Page) -> str:
    """The page."""
    return "\n".join([*_head(), *_cases(page), *_steps(page), *_times(page)]) + "\n"


def _head() -> Iterator[str]:
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    yield "# `vpatch rebase` beside its peers"
    yield ""
    yield (
        "`python ci/rebase_peers.py --markdown docs/rebase.md` wrote this, all tools in one run, "
        f"on {os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()}). Each tool runs as "
        "its users run it, with its own defaults; settings of a person are out of the way. "
        f"The series: {', '.join(_series())}."
    )


def _series() -> Iterator[str]:
    for tag in pinned_tags(ROOT):
        pin, series = pinned(ROOT, tag)
        yield f"{tag} revision {pin.revision} ({len(series.patches)} patches)"


def _cases(page: Page) -> Iterator[str]:
    if not page.rows:
        return
    yield from ("", "## Moves that mislead", "")
    yield (
        "*right*: the tree that it has to be. *stops*: exit code other than 0, a person looks. "
        "*silent*: the tree is right, exit code 0, and a patch is gone, or lost a part, without a "
        "word about it. ***wrong***: exit code 0, and the tree is not what it has to be. Where "
        "only a person can know, going through at all is wrong."
    )
    yield ""
    yield f"| case | upstream | {' | '.join(page.tools)} |"
    yield f"|---|---|{'---|' * len(page.tools)}"
    for row in page.rows:
        words = (row.words[tool] for tool in page.tools)
        cells = " | ".join(f"**{word}**" if word == "wrong" else word for word in words)
        yield f"| {row.name} | {row.what} | {cells} |"
    for word in WORDS:
        counts = (Counter(row.words[tool] for row in page.rows)[word] for tool in page.tools)
        yield f"| | {word} | {' | '.join(map(str, counts))} |"


def _steps(page: Page) -> Iterator[str]:
    if not page.steps:
        return
    yield from ("", "## The real series on the next pinned release", "")
    yield (
        "The peers stop at the first conflict, and their seconds end there; vpatch has a verdict "
        "for every patch then. Its exit code is 3 where one conflicts, 1 where it asks."
    )
    yield ""
    yield "| step | tool | outcome | seconds | CPU |"
    yield "|---|---|---|---|---|"
    for step in page.steps:
        figures = f"{step.seconds:.2f} | {step.cpu:.2f}"
        yield f"| {step.step} | {step.tool} | {step.outcome} | {figures} |"


def _times(page: Page) -> Iterator[str]:
    if not page.times:
        return
    yield from ("", "## Seconds", "")
    if page.busy:
        yield (
            f"The machine had other work (load {page.load:.1f} on {os.cpu_count()} cores): seconds "
            "are longer than alone, and bounds are held against the processor's seconds, divided "
            "by the cores that are used."
        )
        yield ""
    yield "| what | tool | seconds | CPU | bound | kept |"
    yield "|---|---|---|---|---|---|"
    missed = list(problems(page))
    for time in page.times:
        bounds = [f"{time.limit:g} s"] if time.limit else []
        if time.peer:
            many = f"{time.times:g} times as fast as {time.peer}"
            bounds.append(many if time.times > 1 else f"less than {time.peer}")
        late = any(line.startswith(f"{time.what}:") for line in missed)
        kept = "" if not bounds else "**no**" if late else "yes"
        figures = f"{time.seconds:.2f} | {time.cpu:.2f}"
        yield f"| {time.what} | {time.tool} | {figures} | {', '.join(bounds)} | {kept} |"
