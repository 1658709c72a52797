"""One case of preflight, and what follows of its ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vpatch.preflight.drafter import NORMS, Drafter, Place
from vpatch.preflight.releases import ReleaseFacts
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.target import Target
from vpatch.preflight.verdict import speculative
from vpatch.preflight.weights import Built

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
        drafter: As its files say.
        options: What --speculative-config says of layers, by its names.
    """

    target: Target
    drafter: Drafter
    release: ReleaseFacts
    parallel: Parallel
    options: Mapping[str, Any]

    @cached_property
    def read(self) -> Drafter:
        """The drafter with the config that the release's classes get."""
        return self.release.reads(self.drafter)

    @cached_property
    def built(self) -> Built:
        """What the release's class has parameters for."""
        release, read = self.release, self.read
        norms = {name for name in NORMS if release.norm(read, name)}
        table = release.d2t_always or read.draft_vocab != self.target.vocab
        return Built(read, self.states, frozenset(norms), table)

    @property
    def believed(self) -> tuple[int, ...] | None:
        """The layers that it was trained on, in vLLM's numbering, as far as its config tells.

        None where it names none. Ids that are one below the default layers are those of an engine
        that counts outputs: they are its default. A drafter without ids is taken for one of the
        default layers, whatever it says of another method's.
        """
        ids = whole_ids(self.options.get(IDS) or self._written)
        if ids is None:
            return self.target.default_layers if self.others is not None else None
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
        return self.checked if self.others is None else self.others

    @property
    def checked(self) -> tuple[int, ...]:
        """Those that the series' one reader of ids knows of."""
        ids = whole_ids(self.read_ids)
        if ids is None:
            return self.target.default_layers
        counted = self.options.get(NUMBERING) or self.read.numbering
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
        ids = self.read.ids
        return next((ids[place] for place in self.release.places if place in ids), None)

    @property
    def others(self) -> tuple[int, ...] | None:
        """The layers that the release takes by the names of another method; None: it does not."""
        release, read = self.release, self.read
        first = ("top-level",) if not release.checks and release.runner == "v2" else release.places
        if self.options.get(IDS) or any(place in read.ids for place in first):
            return None
        if release.hides and read.eagle_config:
            return None
        named = dict(read.other_ids())
        for place, more in release.others:
            ids = whole_ids(named.get(place))
            if ids is not None:
                return tuple(each + more for each in ids)
        return None

    @property
    def _written(self) -> Any:
        return next(iter(self.drafter.ids.values()), None)

    @property
    def states(self) -> int:
        """How many states `fc` is built for."""
        if self.options.get(IDS) and self.read.config.get("num_aux_hidden_states") is None:
            return len(self.options[IDS])
        return self.release.states(self.read)

    def ignored(self) -> tuple[Place, ...]:
        """Places of ids that the release does not look at."""
        read = [place for place in self.read.ids if place in self.release.places]
        return tuple(place for place in self.drafter.ids if place not in read)


def whole_ids(value: Any) -> tuple[int, ...] | None:
    """A list of ids as unpatched vLLM takes it: true is 1, and what is no integer is never met."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    return tuple(int(each) if isinstance(each, (int, bool)) else -1 for each in value)


def option(**values: Any) -> str:
    """A piece of the command line."""
    return speculative(values)
