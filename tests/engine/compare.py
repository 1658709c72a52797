"""Holds what a drafter got, and what it guessed, against the references.

``python -m engine.compare JOB.json`` under the engine environment's Python, after engine_start:
prints one JSON object. A request of p prompt and g generated tokens has p + g - 1 rows that count,
one for each token that was an input; a step's rows after the first rejected guess do not.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vpatch.smoke.engine.reference import Reference, Run
from vpatch.smoke.engine.reference_drafter import ReferenceDrafter

Rows = dict[str, torch.Tensor]
CLOSE = 1e-3


@dataclass(frozen=True)
class Request:
    """One request: its number, prompt and answer, and the reference's run over both."""

    number: int
    prompt: list[int]
    answer: list[int]
    run: Run

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.answer

    @property
    def inputs(self) -> int:
        return len(self.tokens) - 1  # the last token was never an input


def kept_rows(rows: Rows, request: Request) -> dict[int, dict[int, torch.Tensor]]:
    """Step -> position -> state, for rows whose token and whose whole past are the final ones."""
    mine = rows["request"] == request.number
    kept: dict[int, dict[int, torch.Tensor]] = {}
    for step in rows["step"][mine].unique().tolist():
        here = mine & (rows["step"] == step)
        kept[step] = {}
        for position, token, state in zip(
            rows["position"][here].tolist(),
            rows["token"][here].tolist(),
            rows["states"][here],
            strict=True,
        ):
            if position >= request.inputs or token != request.tokens[position]:
                break  # rejected, and so is what follows
            kept[step][position] = state
    return kept


def nearest_layers(row: torch.Tensor, states: torch.Tensor) -> tuple[int, ...]:
    """For each state in the row, which of the reference's [layers + 1, hidden] it is nearest to."""
    parts = row.view(-1, states.shape[-1])
    return tuple(torch.cdist(parts, states).argmin(dim=-1).tolist())


def compare_states(rows: Rows, request: Request, ids: list[int]) -> dict[str, Any]:
    """The largest deviation from the asked layers, and the layers that came."""
    states = request.run.states
    worst, layers, positions = 0.0, set(), set()
    kept = kept_rows(rows, request)
    for step in kept.values():
        for position, row in step.items():
            wanted = states[ids, position].flatten()
            if row.shape != wanted.shape:
                return {"shape": list(row.shape), "wanted": list(wanted.shape)}
            distance = (row - wanted).abs().max().item()
            if not math.isfinite(distance):
                return {"not_finite_at": position}
            worst = max(worst, distance)
            layers.add(nearest_layers(row, states[:, position]))
            positions.add(position)
    return {
        "positions": sorted(positions),
        "worst": worst,
        "layers": [list(found) for found in sorted(layers)],
        "layers_apart": (states[1:] - states[:-1]).abs().amax(-1).min().item(),
        # Steps after the prompt's last piece: one for each token, had no guess been accepted.
        "steps": sum(max(step) >= len(request.prompt) - 1 for step in kept.values()),
    }


def compare_answer(request: Request) -> dict[str, Any]:
    """Whether the answer is the reference's own, and by how much each token won."""
    best = request.run.logits[len(request.prompt) - 1 :].topk(2, dim=-1)
    return {
        "answer_is_greedy": best.indices[:, 0].tolist() == request.answer,
        "token_margin": (best.values[:, 0] - best.values[:, 1]).min().item(),
        "router_margin": request.run.margin,
    }


def compare_guesses(rows: Rows, request: Request, drafter: ReferenceDrafter) -> dict[str, Any]:
    """How many guesses of the engine's drafter are not the reference drafter's.

    Without the last step's: the answer was cut there, and with it what the drafter had seen.
    """
    kept = kept_rows(rows, request)
    mine = rows["guesses_request"] == request.number
    states: dict[int, torch.Tensor] = {}
    wrong, certain = 0, 0
    steps = rows["guesses_step"][mine].tolist()[:-1]
    for step, guesses in zip(steps, rows["guesses"][mine].tolist(), strict=False):
        states |= kept[step]
        length = max(kept[step]) + 1
        past = torch.stack([states[position] for position in range(length)])
        wanted = drafter.guess(past, request.tokens[1 : length + 1], len(guesses))
        for guess, token, margin in zip(guesses, wanted.tokens, wanted.margins, strict=True):
            if margin < CLOSE:
                break  # rounding may choose here, and all further guesses follow from it
            certain += 1
            wrong += guess != token
    return {"certain_guesses": certain, "wrong_guesses": wrong}


def requests_of(job: dict[str, Any], outputs: dict[str, Any], rows: Rows) -> list[Request]:
    reference = Reference.open(Path(job["target"]))
    requests = []
    pairs = zip(outputs["prompts"], outputs["tokens"], strict=True)
    for number, (prompt, answer) in enumerate(pairs):
        inputs = (prompt + answer)[:-1]
        embeddings = reference.embed(inputs)
        here = torch.tensor(inputs) == job["media"]
        if here.any():
            embeddings[here] = rows["media"]  # one prompt of a job may have media
        requests.append(Request(number, prompt, answer, reference.run(embeddings)))
    return requests


def summary(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    outputs = json.loads((folder / "outputs.json").read_text())
    rows = load_file(folder / "rows.safetensors")
    found = []
    for request in requests_of(job, outputs, rows):
        entry = compare_states(rows, request, job["ids"]) | compare_answer(request)
        if job.get("mla"):
            target = Reference.open(Path(job["target"]))
            drafter = ReferenceDrafter.beside(target, Path(job["drafter"]))
            entry |= compare_guesses(rows, request, drafter)
        found.append(entry)
    return {"requests": found, "width": rows["states"].shape[-1]}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    print(json.dumps(summary(json.loads(path.read_text()), path.parent)))
