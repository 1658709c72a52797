"""Talk for the person at the terminal, on stderr: progress bars there, plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from vpatch.report import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


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
            TransferSpeedColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
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
