"""Holds what a drafter got, and what it guessed, against the references: ``-m ... JOB.json``.

Runs after start.py, needs no vLLM, prints one JSON object. A request of p prompt and g generated
tokens has p + g - 1 rows that count, one for each token that was an input; a step's rows after the
first rejected guess do not.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from vpatch.smoke.engine.guesses import TIE_BOUNDS, compare_embeds, compare_guesses
from vpatch.smoke.engine.reference import Reference, Run, bound
from vpatch.smoke.engine.reference_drafter import ReferenceDrafter
from vpatch.smoke.engine.steps import Request, Rows, Steps


def nearest_layers(row: torch.Tensor, states: torch.Tensor) -> tuple[int, ...]:
    """For each state in the row, which of the reference's [layers + 1, hidden] it is nearest to;
    none for a row that no whole number of states makes."""
    if row.numel() % states.shape[-1]:
        return ()
    parts = row.view(-1, states.shape[-1])
    return tuple(torch.cdist(parts, states).argmin(dim=-1).tolist())


def relative(row: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest relative (Euclidean) deviation of any of the states; both [states, hidden]."""
    deviation: float = ((row - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max().item()
    return deviation


def compare_states(steps: Steps, request: Request, ids: list[int], limit: float) -> dict[str, Any]:
    """How the rows deviate from the layers asked for, and which layers they are nearest to."""
    states = request.run.states
    hidden = states.shape[-1]
    worst, within, count = 0.0, 0, 0
    layers: Counter[tuple[int, ...]] = Counter()
    positions: set[int] = set()
    for position, row in steps.rows():
        positions.add(position)
        count += 1
        layers[nearest_layers(row, states[:, position])] += 1
        if row.numel() != len(ids) * hidden:
            worst = math.inf
            continue
        deviation = relative(row.view(-1, hidden), states[ids, position])
        within += deviation <= limit
        # NaN compares as false with everything: it must not pass for small.
        worst = max(worst, deviation if math.isfinite(deviation) else math.inf)
    first = min(positions, default=request.inputs)
    missing = sorted(set(range(first, request.inputs)) - positions)
    return {
        "inputs": request.inputs,
        "rows": count,
        "within": within,
        "worst": worst if math.isfinite(worst) else None,
        "first_position": first,
        "missing": missing,
        "layers": [[list(found), number] for found, number in layers.most_common()],
        "layers_apart": _apart(states),
        "router_margin": request.run.margin,
    }


def _apart(states: torch.Tensor) -> float:
    """The smallest relative distance of neighbouring layers' states, over all tokens."""
    steps = (states[1:] - states[:-1]).norm(dim=-1) / states[:-1].norm(dim=-1)
    smallest: float = steps.min().item()
    return smallest


def compare_answer(request: Request, limit: float) -> dict[str, Any]:
    """Whether the answer is the reference's greedy choice, and what might be chosen in its place.

    "ties": for each token of the answer those that rounding may choose, the best one among them.
    """
    logits = request.run.logits[len(request.prompt) - 1 :][: len(request.answer)]
    near = logits.max(dim=-1, keepdim=True).values - TIE_BOUNDS * limit * logits.std()
    return {
        "greedy": logits.argmax(dim=-1).tolist() == request.answer,
        "ties": [row.nonzero().flatten().tolist() for row in logits >= near],
    }


def compare_steps(steps: Steps, request: Request) -> dict[str, Any]:
    """Which steps took a part of the prompt, and which went on from its end."""
    end = len(request.prompt)
    return {
        "partial_steps": [step for step, kept in steps.kept.items() if max(kept) < end - 1],
        "prompt_steps": [step for step, kept in steps.kept.items() if min(kept) < end],
        "answer_steps": [step for step, kept in steps.kept.items() if min(kept) >= end],
    }


def accepted_by_step(rows: Rows, request: Request) -> dict[int, int]:
    """By step: how many of its guesses the engine took, but for those that the answer's end met.

    They are tried in the request's next step. The one after that begins behind them, and behind
    the token that the target adds.
    """
    mine = rows["request"] == request.number
    numbers = rows["step"][mine].unique().tolist()
    first = [int(rows["position"][mine & (rows["step"] == step)].min()) for step in numbers]
    following = zip(numbers, first[1:], first[2:], strict=False)
    return {step: after - tried - 1 for step, tried, after in following}


def compare_drafts(rows: Rows, steps: Steps, request: Request) -> dict[str, Any]:
    """By place in the draft: how many guesses could be accepted, and how many were.

    A right guess is not enough: the engine has to have gone on behind it.
    """
    mine = rows["guesses_request"] == request.number
    taken = accepted_by_step(rows, request)
    drafted: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for step, guesses in zip(
        rows["guesses_step"][mine].tolist(), rows["guesses"][mine].tolist(), strict=True
    ):
        last = max(steps.kept.get(step, {}), default=-1)
        if last < len(request.prompt) - 1:
            continue  # guesses after a part of a prompt are never tried
        alive = True
        tried = request.tokens[last + 2 :]
        if step not in taken:
            tried = tried[:-1]  # the answer's last token may be the target's own
        for place, (guess, token) in enumerate(zip(guesses, tried, strict=False)):
            drafted[place] += 1
            alive = alive and guess == token and place < taken.get(step, len(tried))
            accepted[place] += alive
    places = len(rows["guesses"][0]) if len(rows["guesses"]) else 0
    return {
        "drafted": [drafted[place] for place in range(places)],
        "accepted": [accepted[place] for place in range(places)],
    }


class KeptRuns:
    """The reference's runs over text, kept in a folder: starts of one target answer alike."""

    def __init__(self, target: Path, folder: Path) -> None:
        self.reference = Reference.open(target)
        self._target = target
        self._folder = folder

    def run(self, tokens: list[int]) -> Run:
        """One run over token ids."""
        key = hashlib.sha256(json.dumps([str(self._target), tokens]).encode()).hexdigest()
        path = self._folder / f"{key[:32]}.safetensors"
        if path.is_file():
            kept = load_file(path)
            return Run(kept["states"], kept["logits"], kept["margin"].item())
        run = self.reference.run(self.reference.embed(tokens))
        values = {"states": run.states, "logits": run.logits, "margin": torch.tensor(run.margin)}
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            save_file({name: value.contiguous() for name, value in values.items()}, file.name)
        Path(file.name).replace(path)
        return run


def requests_of(job: dict[str, Any], phase: dict[str, Any], rows: Rows) -> Iterator[Request]:
    """A phase's requests, each with the reference's run.

    All pictures of a job are one and the same (start.py): prompts that have one are of one length.
    A placeholder's token in an answer is a token as any other.
    """
    runs = KeptRuns(Path(job["target"]), Path(job["runs"]))
    media = job.get("media")
    answers = zip(phase["requests"], phase["prompts"], phase["tokens"], strict=True)
    for number, prompt, answer in answers:
        inputs = (prompt + answer)[:-1]
        places = [place for place, token in enumerate(prompt) if token == media]
        if not places:
            yield Request(number, prompt, answer, runs.run(inputs))
            continue
        embeddings = runs.reference.embed(inputs)
        picture = dict(zip(places, rows["media"].float(), strict=False))
        embeddings[places] = torch.stack([picture[place] for place in places])
        run = runs.reference.run(embeddings)
        yield Request(number, prompt, answer, run, picture)


def compare_phase(job: dict[str, Any], phase: dict[str, Any], rows: Rows) -> list[dict[str, Any]]:
    """All findings about each request of a phase."""
    drafter = None
    if job.get("guesses"):
        target = Reference.open(Path(job["target"]))
        drafter = ReferenceDrafter.beside(target, Path(job["drafter"]))
    found = []
    for request in requests_of(job, phase, rows):
        steps = Steps.of(rows, request)
        limit = bound(job["dtype"])
        entry = compare_states(steps, request, job["ids"], limit)
        entry |= compare_answer(request, limit) | compare_steps(steps, request)
        entry |= compare_drafts(rows, steps, request)
        if drafter is not None:
            entry |= compare_guesses(rows, steps, request, drafter, limit)
        if drafter is not None and "embeds" in rows:
            entry |= compare_embeds(rows, request, drafter, limit)
        found.append(entry)
    return found


def _no_rows() -> Rows:
    """What a drafter has heard that was never called."""
    per_row = {name: torch.zeros(0, dtype=torch.long) for name in ("request", "position", "token")}
    per_draft = dict.fromkeys(("guesses_request", "guesses_step", "step"), per_row["request"])
    return {**per_row, **per_draft, "states": torch.zeros(0, 1), "guesses": torch.zeros(0, 0)}


def main(path: Path) -> dict[str, Any]:
    """Compares the phases that the job wants compared."""
    job = json.loads(path.read_text())
    outputs = json.loads((path.parent / "outputs.json").read_text())
    rows = load_file(path.parent / "rows.safetensors") or _no_rows()
    phases = {
        phase["name"]: compare_phase(job, outputs["phases"][phase["name"]], rows)
        for phase in job["phases"]
        if phase.get("compare", True)
    }
    return {"phases": phases, "width": rows["states"].shape[-1], "bound": bound(job["dtype"])}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
