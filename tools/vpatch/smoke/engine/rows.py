"""Records what the drafter of a running engine gets and guesses; both model runners.

A row is one input token of the target: the aux hidden states that were handed to the drafter for
it, beside its request, position and token id. A step is one call of the drafter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Batch:
    """The target's batch that a call of the drafter follows.

    Attributes:
        requests: Their numbers, in the batch's order.
        counts: [requests]: how many rows each of them has.
        positions: [rows]
        tokens: [rows]: the ids that were the target's input.
    """

    requests: list[int]
    counts: torch.Tensor
    positions: torch.Tensor
    tokens: torch.Tensor


class Recorder:
    """Listens at one engine's drafter; `save` writes what it heard.

    Per row: "states" [rows, aux states x hidden] in the engine's dtype, "request", "position",
    "token", "step". Per request of a step: "guesses" [requests, drafts], "guesses_request",
    "guesses_step". Per media item, in order: "media".

    Args:
        runner: The engine's model runner.
        embeds: Whether a row also gets "embeds": what the drafter embeds beside its states, NaN
            where no call of its model was heard, as where a graph is replayed.
    """

    def __init__(self, runner: Any, *, embeds: bool = False) -> None:
        self._heard: dict[str, list[torch.Tensor]] = {}
        self._steps = 0
        self._entered: list[torch.Tensor] = []
        self._fc_inputs: list[torch.Tensor] = []
        drafter, batch_of = _drafter_of(runner)
        self._batch_of = batch_of
        self._propose = drafter.propose
        drafter.propose = self._listening
        self._combine = drafter.model.combine_hidden_states
        drafter.model.combine_hidden_states = self._on_combine
        inner = drafter.model.model
        self._fc = inner.fc
        self._fc.register_forward_pre_hook(self._on_fc)
        self._embeds: list[torch.Tensor] = []
        self._embed = inner.embed_tokens if embeds else None
        if embeds:
            drafter.model.register_forward_pre_hook(self._on_forward, with_kwargs=True)
        self._norms_first = any(getattr(inner, name, None) for name in ("input_norm", "fc_norm"))
        if hasattr(runner.model, "embed_multimodal"):
            self._embed_media = runner.model.embed_multimodal
            runner.model.embed_multimodal = self._on_media

    def _listening(self, *arguments: Any, **named: Any) -> Any:
        batch = self._batch_of(arguments, named)
        if batch is None:  # a dummy run: junk rows that nobody reads
            return self._propose(*arguments, **named)
        self._entered.clear()
        self._fc_inputs.clear()
        self._embeds.clear()
        guesses = self._propose(*arguments, **named)
        rows = len(batch.tokens)
        states = self._checked(rows)
        self._keep("states", states)
        if self._embed is not None:
            self._keep("embeds", self._embedded(states))
        self._keep("request", torch.tensor(batch.requests).repeat_interleave(batch.counts))
        self._keep("position", batch.positions)
        self._keep("token", batch.tokens)
        self._keep("step", torch.full((rows,), self._steps))
        self._keep("guesses", guesses[: len(batch.requests)])
        self._keep("guesses_request", torch.tensor(batch.requests))
        self._keep("guesses_step", torch.full((len(batch.requests),), self._steps))
        self._steps += 1
        return guesses

    def _checked(self, rows: int) -> torch.Tensor:
        """What was handed over for the batch's rows, after a look at what entered `fc`.

        The rows after them fill a graph up: what is in them is never read, and may be NaN.
        """
        (states,), (entered,) = self._entered, self._fc_inputs
        # Shapes too: on some CPUs a linear layer takes a wrong width and reshapes it.
        if entered.shape != states.shape or self._fc.input_size != states.shape[-1]:
            raise AssertionError(f"fc takes {self._fc.input_size} values, got {states.shape[-1]}")
        states = states[:rows]
        if not self._norms_first and not torch.equal(entered[:rows], states):
            raise AssertionError("what entered fc is not what the target handed over")
        return states

    def _on_combine(self, states: torch.Tensor) -> torch.Tensor:
        self._entered.append(states.detach().clone())
        self._combined: torch.Tensor = self._combine(states)
        return self._combined

    def _on_fc(self, _module: object, inputs: tuple[torch.Tensor, ...]) -> None:
        self._fc_inputs.append(inputs[0].detach().clone())

    def _on_forward(self, _module: object, _arguments: object, named: dict[str, Any]) -> None:
        if self._embed is None or self._embeds:
            return  # a step's further calls are for further guesses
        embeds = named.get("inputs_embeds")
        embeds = self._embed(named["input_ids"]) if embeds is None else embeds
        self._embeds.append(embeds.detach().clone())

    def _embedded(self, states: torch.Tensor) -> torch.Tensor:
        """[rows, hidden]: what entered the drafter beside these states in this step."""
        if self._embeds:
            return self._embeds[0][: len(states)]
        size = self._combined.shape[-1]
        return torch.full((len(states), size), torch.nan, dtype=states.dtype)

    def _on_media(self, **arguments: Any) -> Any:
        embeddings = self._embed_media(**arguments)
        for embedding in embeddings:
            self._keep("media", embedding)
        return embeddings

    def _keep(self, name: str, values: torch.Tensor) -> None:
        # The engine writes to these tensors again in the next step.
        self._heard.setdefault(name, []).append(values.detach().cpu().clone())

    def save(self, path: Path) -> None:
        """Writes safetensors."""
        save_file({name: torch.cat(parts) for name, parts in self._heard.items()}, path)


BatchOf = Callable[[tuple[Any, ...], dict[str, Any]], "Batch | None"]


def _drafter_of(runner: Any) -> tuple[Any, BatchOf]:
    if hasattr(runner, "speculator"):  # MRV2
        return runner.speculator, _batch_of_mrv2
    return runner.drafter, lambda _arguments, named: _batch_of_v1(runner, named)


def _batch_of_v1(runner: Any, named: dict[str, Any]) -> Batch:
    starts = named["common_attn_metadata"].query_start_loc_cpu
    requests = list(_numbers(runner.input_batch.req_ids))
    counts = starts[1 : len(requests) + 1] - starts[: len(requests)]
    return Batch(requests, counts, named["target_positions"], named["target_token_ids"])


def _batch_of_mrv2(arguments: tuple[Any, ...], named: dict[str, Any]) -> Batch | None:
    if named.get("dummy_run"):
        return None
    batch = arguments[0] if arguments else named["input_batch"]
    counts = torch.tensor(batch.num_scheduled_tokens[: batch.num_reqs])
    rows = int(counts.sum())
    requests = list(_numbers(batch.req_ids[: batch.num_reqs]))
    return Batch(requests, counts, batch.positions[:rows], batch.input_ids[:rows])


def _numbers(request_ids: list[str]) -> Iterator[int]:
    # Some releases add a random part behind a dash.
    for name in request_ids:
        yield int(name.split("-")[0])
