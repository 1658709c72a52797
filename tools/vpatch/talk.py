"""Talk for the person at the terminal, on stderr: progress bars there, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console

from vpatch.report import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_MINUTES_FROM_S, _HOURS_FROM_MIN = 90, 90


class ConsoleProgress:
    """A bar per step on a terminal; elsewhere one line when a step begins."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def start(self, name: str, total: int | None) -> None:
        """A step begins; ``total`` is its size in bytes where that is known."""
        self.done()
        if not self._console.is_terminal:
            size = f" ({total / 1e6:.1f} MB)" if total else ""
            self.say(f"{name}{size}")
            return
        from rich.progress import (  # noqa: PLC0415 - only where there is a terminal
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._bars.start()
        self._task = self._bars.add_task(name, total=total)

    def advance(self, count: int) -> None:
        """``count`` more bytes are done."""
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, count)

    def done(self) -> None:
        """The step ended; also called when one fails, so that the terminal is left clean."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = None
        self._task = None

    def say(self, text: str) -> None:
        """One line of talk."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class ConsoleTally:
    """How many of something are done: a bar on a terminal, a line now and then elsewhere.

    Args:
        console: Where talk goes.
        name: What is being done.
        total: How many there are.
        done: How many were done before.
        every: Seconds between lines where there is no terminal.
    """

    def __init__(
        self, console: Console, name: str, total: int, done: int, *, every: float = 30.0
    ) -> None:
        self._console = console
        self._name = name
        self._total = total
        self._first = done
        self._every = every
        self._began: float | None = None
        self._told = time.monotonic()
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._start_bar()

    def _start_bar(self) -> None:
        from rich.progress import (  # noqa: PLC0415 - only where there is a terminal
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeRemainingColumn(),
            console=self._console,
            speed_estimate_period=600,
        )
        self._bars.start()
        self._task = self._bars.add_task(
            self._name, total=self._total, completed=self._first, more=""
        )

    def to(self, done: int, more: str) -> None:
        """So many are done; ``more`` is said beside it."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, more=more)
            return
        now = time.monotonic()
        if self._began is None:  # what came before the first ones says nothing of the others
            self._began, self._first = now, done
        if now >= self._told + self._every or done == self._total:
            self._told = now
            self.say(f"[{done}/{self._total}] {more}{self._left(done, now)}")

    def _left(self, done: int, now: float) -> str:
        new = done - self._first
        if self._began is None or not new or done >= self._total:
            return ""
        return f", {duration((now - self._began) / new * (self._total - done))} left"

    def say(self, text: str) -> None:
        """One line of talk."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        """Nothing more comes; the terminal is left clean."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = None


def duration(seconds: float) -> str:
    """As people say it: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < _MINUTES_FROM_S:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < _HOURS_FROM_MIN else f"{minutes / 60:.1f} h"
