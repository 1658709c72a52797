"""One case of preflight, and what follows of its ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vpatch.preflight.drafter import IDS, NUMBERING, Drafter, Place
from vpatch.preflight.releases import ReleaseFacts
from vpatch.preflight.target import Target

OUTPUT = "layer-output"
NUMBERINGS = ("layer-input", OUTPUT)


@dataclass(frozen=True)
class Parallel:
    """How many ranks."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1


@dataclass(frozen=True)
class Case:
    """A drafter beside a target on a release.

    Attributes:
        options: What --speculative-config says of layers, by its names.
    """

    target: Target
    drafter: Drafter
    release: ReleaseFacts
    parallel: Parallel
    options: Mapping[str, Any]

    @property
    def believed(self) -> tuple[int, ...] | None:
        """The layers that it was trained on, in vLLM's numbering, as far as its config tells.

        None where it names none. Ids that are one below the default layers are those of an engine
        that counts outputs: they are its default.
        """
        ids = whole_ids(self.options.get(IDS) or self._written)
        if ids is None:
            return None
        counted = self.options.get(NUMBERING) or self.drafter.numbering
        unstated_outputs = counted is None and self.outputs_of_default
        return tuple(each + 1 for each in ids) if counted == OUTPUT or unstated_outputs else ids

    @property
    def outputs_of_default(self) -> bool:
        """Whether its ids are the default layers, counted by their outputs."""
        ids = whole_ids(self.options.get(IDS) or self._written)
        return ids is not None and tuple(each + 1 for each in ids) == self.target.default_layers

    @property
    def taken(self) -> tuple[int, ...]:
        """The layers that the release takes."""
        read = self.read_ids
        ids = whole_ids(read)
        if ids is None:
            return self.target.default_layers
        counted = self.options.get(NUMBERING) or self.drafter.numbering
        shift = self.release.numbering and counted == OUTPUT
        return tuple(each + 1 for each in ids) if shift else ids

    @property
    def captured(self) -> tuple[int, ...]:
        """Those that give a state, in the order in which they come."""
        first = 0 if self.release.captures_first else 1
        last = self.target.layers if self.release.captures_last else self.target.layers - 1
        return tuple(sorted({each for each in self.taken if first <= each <= last}))

    @property
    def read_ids(self) -> Any:
        """What the release finds where it looks for ids, as written; None: nothing."""
        if self.options.get(IDS):
            return self.options[IDS]
        ids = self.drafter.ids
        return next((ids[place] for place in self.release.places if place in ids), None)

    @property
    def _written(self) -> Any:
        return next(iter(self.drafter.ids.values()), None)

    @property
    def states(self) -> int:
        """How many states `fc` is built for."""
        if self.options.get(IDS) and self.drafter.config.get("num_aux_hidden_states") is None:
            return len(self.options[IDS])
        return self.release.states(self.drafter)

    def ignored(self) -> tuple[Place, ...]:
        """Places of ids that the release does not look at."""
        return tuple(place for place in self.drafter.ids if place not in self.release.places)


def whole_ids(value: Any) -> tuple[int, ...] | None:
    """A list of ids as unpatched vLLM takes it: true is 1, and what is no integer is never met."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    return tuple(int(each) if isinstance(each, (int, bool)) else -1 for each in value)


def option(**values: Any) -> str:
    """A piece of the command line."""
    return f"--speculative-config '{json.dumps(values)}'"
