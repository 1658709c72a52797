"""How a long step tells the person who waits what it is doing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives a step's name and how far it is. Steps do not nest."""

    def start(self, name: str, total: int | None) -> None:
        """A step begins; ``total`` is its size in bytes where that is known."""

    def advance(self, count: int) -> None:
        """``count`` more bytes are done."""

    def done(self) -> None:
        """The step ended."""

    def say(self, text: str) -> None:
        """One line of talk: what is being waited for, what is begun again."""


class SilentProgress:
    """Progress for callers that do not show any."""

    def start(self, name: str, total: int | None) -> None:
        """Says nothing."""

    def advance(self, count: int) -> None:
        """Says nothing."""

    def done(self) -> None:
        """Says nothing."""

    def say(self, text: str) -> None:
        """Says nothing."""
