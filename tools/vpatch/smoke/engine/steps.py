"""A request's part of what rows.py recorded, as far as it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from vpatch.smoke.engine.reference import Run

Rows = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Request:
    """One request and the reference's run over its prompt and answer.

    Attributes:
        number: As in rows.safetensors.
        picture: By position, what the target embeds in a placeholder's place.
    """

    number: int
    prompt: list[int]
    answer: list[int]
    run: Run
    picture: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def tokens(self) -> list[int]:
        """The whole sequence."""
        return self.prompt + self.answer

    @property
    def inputs(self) -> int:
        """How many of its tokens the target read: the last one was never an input."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Steps:
    """A request's rows that count: step -> position -> state."""

    kept: dict[int, dict[int, torch.Tensor]]

    @classmethod
    def of(cls, rows: Rows, request: Request) -> Steps:
        """Those rows whose token, and whose whole past, are the final ones."""
        return cls.of_values(rows, request, "states")

    @classmethod
    def of_values(cls, rows: Rows, request: Request, name: str) -> Steps:
        """The same with other values of the rows in the states' place."""
        mine = rows["request"] == request.number
        kept: dict[int, dict[int, torch.Tensor]] = {}
        for step in rows["step"][mine].unique().tolist():
            here = mine & (rows["step"] == step)
            kept[step] = {}
            for position, token, state in zip(
                rows["position"][here].tolist(),
                rows["token"][here].tolist(),
                rows[name][here].float(),
                strict=True,
            ):
                if position >= request.inputs or token != request.tokens[position]:
                    break  # rejected, and so is what follows
                kept[step][position] = state
        return cls({step: states for step, states in kept.items() if states})

    def rows(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Position and state of each row."""
        for states in self.kept.values():
            yield from states.items()
