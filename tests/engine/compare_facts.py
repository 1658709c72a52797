"""What test_compare.py wants to know of compare.py and rows.py; under the engine environment's
Python. ``python -m engine.compare_facts JOB.json``: prints one JSON object. The job names a
"target" and a "folder".
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from vpatch.smoke.engine import compare
from vpatch.smoke.engine.guesses import compare_embeds, compare_guesses
from vpatch.smoke.engine.reference import Reference, Run
from vpatch.smoke.engine.rows import Recorder
from vpatch.smoke.engine.steps import Request, Steps

Facts = dict[str, Any]
Cell = tuple[int, int, int]  # step, position, token

HIDDEN, LAYERS, VOCABULARY = 4, 8, 20
IDS = [1, 3, 7]
PROMPT, ANSWER = [5, 6, 7], [11, 12, 14]
LIMIT = 0.01
# A part of the prompt; its end; two tokens of the answer, and a guess that was not taken.
CELLS: Sequence[Cell] = ((0, 0, 5), (0, 1, 6), (1, 2, 7), (2, 3, 11), (2, 4, 12), (2, 5, 13))
GUESSES = [[1, 2, 3], [12, 13, 14], [1, 2, 3]]


def request(number: int = 0) -> Request:
    """Three prompt and three generated tokens; the reference's states are noise."""
    states = torch.randn(LAYERS + 1, 5, HIDDEN, generator=torch.Generator().manual_seed(1))
    logits = torch.zeros(5, VOCABULARY)
    for place, token in enumerate(ANSWER):
        logits[len(PROMPT) - 1 + place, token] = 1.0
    logits[3, 13] = 1.0 - 1e-5
    return Request(number, PROMPT, ANSWER, Run(states, logits, math.inf))


def rows_of(
    cells: Sequence[Cell] = CELLS,
    ids: Sequence[int] = IDS,
    change: Callable[[torch.Tensor], torch.Tensor] = lambda states: states,
) -> dict[str, torch.Tensor]:
    """What rows.py writes, with another request's rows between; `change` gets [rows, width]."""
    reference = request().run.states
    states = [reference[list(ids), min(cell[1], 4)].flatten() for cell in cells]
    steps, positions, tokens = (torch.tensor([cell[i] for cell in cells]) for i in range(3))
    mine = {
        "states": change(torch.stack(states)) if states else torch.empty(0, len(ids) * HIDDEN),
        "request": torch.zeros(len(cells), dtype=torch.long),
        "position": positions.long(),
        "token": tokens.long(),
        "step": steps.long(),
    }
    width = mine["states"].shape[-1]
    other = {
        "states": torch.full((2, width), 9.0),
        "request": torch.ones(2, dtype=torch.long),
        "position": torch.tensor([0, 1]),
        "token": torch.tensor([5, 6]),
        "step": torch.tensor([0, 1]),
    }
    return {
        **{name: torch.cat([other[name], values]) for name, values in mine.items()},
        "guesses": torch.tensor([*GUESSES, [12, 14, 14]]),
        "guesses_request": torch.tensor([0, 0, 0, 1]),
        "guesses_step": torch.tensor([0, 1, 2, 1]),
    }


def states_of(rows: dict[str, torch.Tensor]) -> Facts:
    """compare_states' findings about the request."""
    return compare.compare_states(Steps.of(rows, request()), request(), IDS, LIMIT)


def not_a_number(states: torch.Tensor) -> torch.Tensor:
    """NaN in one value of one row."""
    states[1, 5] = math.nan
    return states


def without(*gone: int) -> dict[str, torch.Tensor]:
    """Without these positions' rows."""
    return rows_of([cell for cell in CELLS if cell[1] not in gone])


def all_states() -> Facts:
    """By case."""
    rejected = [*CELLS[:3], (2, 3, 11), (2, 4, 13), (2, 5, 14), (3, 4, 12)]
    after_rejected = [*CELLS[:3], (2, 3, 13), (2, 4, 12)]
    cases = {
        "right": rows_of(),
        "near": rows_of(change=lambda states: states * (1 + LIMIT / 2)),
        "far": rows_of(change=lambda states: states * (1 + LIMIT * 2)),
        "other layers": rows_of(ids=[2, 4, 5]),
        "fewer layers": rows_of(ids=[1, 3]),
        "no whole states": rows_of(change=lambda states: states[:, :-1]),
        "not a number": rows_of(change=not_a_number),
        "infinite": rows_of(change=lambda states: states / 0),
        "one missing": without(1),
        "first missing": without(0, 1),
        "last missing": without(4),
        "none": rows_of([]),
        "rejected": rows_of(rejected),
        "after a rejected one": rows_of(after_rejected),
    }
    return {name: states_of(rows) for name, rows in cases.items()}


def drafts(*cells: Cell) -> Facts:
    """compare_drafts' findings where [12, 14, 9] is guessed after the prompt, and these come."""
    asked = Request(0, PROMPT, [11, 12, 14, 15, 16], request().run)
    rows = rows_of([(0, 0, 5), (0, 1, 6), (0, 2, 7), *cells])
    rows["guesses"] = torch.tensor([[12, 14, 9]])
    rows["guesses_request"] = rows["guesses_step"] = torch.tensor([0])
    return compare.compare_drafts(rows, Steps.of(rows, asked), asked)


def guesses(
    wanted: Sequence[Sequence[int]],
    margins: Sequence[float],
    cells: Sequence[Cell] = CELLS,
    none_in: int | None = None,
) -> Facts:
    """compare_guesses beside a drafter that wants these at each step but the last one.

    The engine made no guess in step `none_in`.
    """
    asked: list[tuple[int, list[int], int]] = []

    def guess(past: torch.Tensor, embeds: torch.Tensor, count: int) -> SimpleNamespace:
        asked.append((len(past), embeds[:, 0].int().tolist(), count))
        mine = wanted[len(asked) - 1][:count]
        return SimpleNamespace(
            tokens=mine, margins=margins[:count] if count > 1 else [1.0], spreads=[1.0] * count
        )

    rows = rows_of(cells)
    if none_in is not None:
        rows["guesses"][none_in] = -1
    drafter = SimpleNamespace(guess=guess, embed=embed, takes_pictures=False)
    steps = Steps.of(rows, request())
    found = compare_guesses(rows, steps, request(), drafter, LIMIT)
    return {**found, "asked": asked}


def embed(tokens: Sequence[int]) -> torch.Tensor:
    """[tokens, 2]: no two tokens' are near each other."""
    return torch.tensor([[float(token), float(-token)] for token in tokens])


def embeds(
    tokens: Sequence[int],
    picture: Sequence[int] = (),
    *,
    takes: bool = False,
    change: Callable[[torch.Tensor], torch.Tensor] = lambda rows: rows,
) -> Facts:
    """compare_embeds where the drafter embedded these tokens, one for each of CELLS.

    Args:
        tokens: What the rows hold.
        picture: Positions whose embeddings are a picture's: [0.5, 0.5].
        takes: Whether the drafter is for pictures.
        change: Gets the rows' embeddings.
    """
    rows = rows_of()
    other = torch.full((2, 2), 9.0)
    rows["embeds"] = torch.cat([other, change(embed(tokens))])
    own = {position: torch.tensor([0.5, 0.5]) for position in picture}
    asked = replace(request(), picture=own)
    drafter = SimpleNamespace(embed=embed, takes_pictures=takes)
    return compare_embeds(rows, asked, drafter, LIMIT)


def all_embeds() -> Facts:
    """By case."""
    right = [6, 7, 11, 12, 14, 1]

    def pictured(rows: torch.Tensor) -> torch.Tensor:
        rows[:2] = 0.5
        return rows

    return {
        "right": embeds(right),
        "the last token after a part": embeds([6, 5, 11, 12, 14, 1]),
        "not heard": embeds(right, change=lambda rows: rows * math.nan),
        "one further": embeds([7, 11, 12, 14, 1, 1]),
        "a picture": embeds(right, [1, 2], takes=True, change=pictured),
        "a placeholder in its place": embeds(right, [1, 2], takes=True),
        "a placeholder as it is": embeds(right, [1, 2]),
    }


def whole(target: Path, folder: Path) -> Facts:
    """main() on rows that are the reference's own, twice; then on answers that are not greedy."""
    reference = Reference.open(target)
    tokens = list(PROMPT)
    for _ in range(4):
        run = reference.run(reference.embed(tokens))
        tokens.append(int(run.logits[-1].argmax()))
    run = reference.run(reference.embed(tokens[:-1]))
    inputs = len(tokens) - 1
    states = run.states[[0, 2]].transpose(0, 1).flatten(1)
    rows = {
        "states": states.contiguous(),
        "request": torch.zeros(inputs, dtype=torch.long),
        "position": torch.arange(inputs),
        "token": torch.tensor(tokens[:-1]),
        "step": torch.tensor([0] * 3 + [1] * (inputs - 3)),
        "guesses": torch.tensor([[tokens[4], tokens[5], 0]]),
        "guesses_request": torch.tensor([0]),
        "guesses_step": torch.tensor([0]),
    }
    folder.mkdir()
    save_file(rows, folder / "rows.safetensors")
    job: Facts = {
        "target": str(target),
        "runs": str(folder / "runs"),
        "dtype": "float32",
        "ids": [0, 2],
        "phases": [{"name": "batch"}, {"name": "sampled", "compare": False}],
    }
    (folder / "job.json").write_text(json.dumps(job))

    def compared(answer: list[int]) -> Facts:
        phase = {"requests": [0], "prompts": [PROMPT], "tokens": [answer]}
        (folder / "outputs.json").write_text(json.dumps({"phases": {"batch": phase}}))
        return compare.main(folder / "job.json")

    answer = tokens[len(PROMPT) :]
    first = compared(answer)
    kept = len(list((folder / "runs").iterdir()))
    again = compared(answer)
    job["media"] = answer[0]
    (folder / "job.json").write_text(json.dumps(job))
    placeholder = compared(answer)
    del job["media"]
    (folder / "job.json").write_text(json.dumps(job))
    other = compared([*answer[:-1], answer[-1] + 1])
    return {
        "first": first,
        "same": first == again,
        "placeholder is as any": first == placeholder,
        "kept": kept,
        "other": other,
    }


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """As vLLM's, which say their input's size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.input_size = inputs


class Model(torch.nn.Module):  # type: ignore[misc]
    """A drafter's model: who listens is told what it is called with."""

    def forward(self, **_named: Any) -> None:
        """Does nothing."""


class Drafter:
    """As much of a drafter of vLLM as the recorder sees.

    Args:
        size: What `fc` takes.
        hand: What `combine_hidden_states` makes of the states before `fc`.
        calls: The model's calls in one step: their named arguments.
    """

    def __init__(
        self,
        size: int = 6,
        hand: Callable[[torch.Tensor], torch.Tensor] = lambda states: states,
        calls: Sequence[Facts] = (),
    ) -> None:
        fc = Linear(size, 2)
        self.model = Model()
        self.model.model = SimpleNamespace(fc=fc, embed_tokens=lambda ids: embed(ids.tolist()))
        self.model.combine_hidden_states = lambda states: fc(hand(states))
        self._calls = calls

    def propose(self, *arguments: Any, **named: Any) -> torch.Tensor:
        """Guesses 7 for every request; padded to four."""
        states = named.get("target_hidden_states")
        self.model.combine_hidden_states(states if states is not None else arguments[1])
        for call in self._calls:
            self.model(**call)
        return torch.full((4, 3), 7)


def recorded(
    runner: SimpleNamespace, call: Callable[[], object], folder: Path, *, embeds: bool = False
) -> Facts:
    """What a call of the drafter is recorded as, or why it is refused."""
    try:
        recorder = Recorder(runner, embeds=embeds)
        call()
    except AssertionError as error:
        return {"refused": str(error)}
    folder.mkdir(exist_ok=True)
    recorder.save(folder / "recorded.safetensors")
    return {
        name: [_told(row) for row in values]
        for name, values in load_file(folder / "recorded.safetensors").items()
    }


def _told(row: torch.Tensor) -> Any:
    """JSON has no NaN."""
    return "nan" if row.isnan().all() else row.tolist()


STATES = torch.arange(30, dtype=torch.float32).view(5, 6)


def v1(
    folder: Path, drafter: Drafter, *, embeds: bool = False, states: torch.Tensor = STATES
) -> Facts:
    """Two requests of one and three rows, and a padded one; V1's runner."""
    batch = SimpleNamespace(req_ids=["4", "2-8f3a"])
    runner = SimpleNamespace(drafter=drafter, input_batch=batch, model=SimpleNamespace())
    named = {
        "target_hidden_states": states,
        "target_positions": torch.tensor([9, 0, 1, 2]),
        "target_token_ids": torch.tensor([50, 51, 52, 53]),
        "common_attn_metadata": SimpleNamespace(query_start_loc_cpu=torch.tensor([0, 1, 4, 5])),
    }
    return recorded(runner, lambda: drafter.propose(**named), folder, embeds=embeds)


def with_junk(row: int) -> torch.Tensor:
    """The states with NaN in this row."""
    states = STATES.clone()
    states[row] = math.nan
    return states


def heard(folder: Path) -> Facts:
    """What is embedded in five rows, one of them padding, in a step of two calls."""
    ids = {"input_ids": torch.tensor([51, 52, 53, 54, 0]), "inputs_embeds": None}
    given = ids | {"inputs_embeds": torch.arange(10, dtype=torch.float32).view(5, 2)}
    return {
        "ids": v1(folder, Drafter(calls=[ids, given]), embeds=True),
        "embeddings": v1(folder, Drafter(calls=[given, ids]), embeds=True),
        "nothing heard": v1(folder, Drafter(), embeds=True),
    }


def mrv2(folder: Path) -> Facts:
    """The same from MRV2's, after a dummy run, and with a picture."""
    drafter = Drafter()
    pictures = [torch.ones(2, 3), torch.zeros(1, 3)]
    model = SimpleNamespace(embed_multimodal=lambda **_named: pictures)
    runner = SimpleNamespace(speculator=drafter, drafter=None, model=model)
    batch = SimpleNamespace(
        num_reqs=2,
        num_scheduled_tokens=[1, 3, 0],
        req_ids=["4", "2", "9"],
        positions=torch.tensor([9, 0, 1, 2, 0]),
        input_ids=torch.tensor([50, 51, 52, 53, 0]),
    )

    def call() -> None:
        drafter.propose(batch, STATES, dummy_run=True)
        model.embed_multimodal(pixels=None)
        drafter.propose(batch, STATES)
        drafter.propose(input_batch=batch, target_hidden_states=STATES + 1)

    return recorded(runner, call, folder)


def main(job: Facts) -> Facts:
    """Everything."""
    folder = Path(job["folder"])
    good, steps = request(), Steps.of(rows_of(), request())
    return {
        "states": all_states(),
        "answer": compare.compare_answer(good, LIMIT),
        "steps": compare.compare_steps(steps, good),
        "drafts": {
            "at the end": compare.compare_drafts(rows_of(), steps, good),
            "both": drafts((1, 3, 11), (1, 4, 12), (1, 5, 14), (2, 6, 15)),
            "one": drafts((1, 3, 11), (1, 4, 12), (1, 5, 14), (2, 5, 14)),
            "none": drafts((1, 3, 11), (1, 4, 12), (1, 5, 14), (2, 4, 12)),
        },
        "guesses": {
            "right": guesses(GUESSES, [1.0, 1.0, 1.0]),
            "wrong": guesses([[1], [12, 13, 4]], [1.0, 1.0, 1.0]),
            "wrong after a part of the prompt": guesses([[4], GUESSES[1]], [1.0, 1.0, 1.0]),
            "none after a part of the prompt": guesses(GUESSES[1:], [1.0, 1.0, 1.0], none_in=0),
            "none after the prompt": guesses(GUESSES, [1.0, 1.0, 1.0], none_in=1),
            "near": guesses([[1], [12, 9, 9]], [1.0, 2 * LIMIT - 1e-6, 1.0]),
            "not near": guesses([[1], [12, 9, 9]], [1.0, 2 * LIMIT + 1e-6, 1.0]),
            "a missing row": guesses([], [], [cell for cell in CELLS if cell[1] != 0]),
        },
        "embeds": all_embeds(),
        "whole": whole(Path(job["target"]), folder / "whole"),
        "recorded": {
            "v1": v1(folder, Drafter()),
            "junk in padding": v1(folder, Drafter(), states=with_junk(4)),
            "junk in a row": v1(folder, Drafter(), states=with_junk(3)),
            "mrv2": mrv2(folder),
            "fc of another size": v1(folder, Drafter(size=4, hand=lambda states: states[:, :4])),
            **heard(folder),
            "other values": v1(folder, Drafter(hand=lambda states: states * 2)),
        },
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
