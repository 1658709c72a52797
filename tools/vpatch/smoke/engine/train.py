"""Trains a drafter on a tiny target's own states.

``python -m vpatch.smoke.engine.train JOB.json`` with

    {"target": FOLDER, "out": FOLDER, "ids": [1, 3, 7], "seed": 0, "seconds": 60, "device": "cpu"}

writes a checkpoint and prints one JSON object: "steps"; "loss", the last step's; "accepted", the
share of first guesses on fresh sequences that are the target's greedy choice; "shifted", the same
with every id one too high (null where there is no such layer); "seconds". The checkpoint depends
only on the target, the ids, the seed and the device. Training that takes more than `seconds` fails.

The sequences are random tokens, and their labels are the target's logits at every position: a
whole distribution says more about the states than its greedy choice alone, from which it takes
many times the sequences to learn.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import kl_div

from vpatch.smoke.engine.batch import Batch, Sequences, config_of
from vpatch.smoke.engine.checkpoint import write
from vpatch.smoke.engine.student import Student, config_beside

SEQUENCES, HELD_OUT, LENGTH = 256, 32, 64
STEPS, AT_ONCE = 120, 16
_RATE, _WARM_UP = 4e-3, 20
_SHARPER = 2.5
"""The logits' factor in the loss: the likeliest tokens are what greedy acceptance is about."""
_FIRST_WORD = 4
_FROM = 8
"""Acceptance counts from this position on."""


@dataclass(frozen=True)
class Job:
    """What to train.

    Attributes:
        target: A plain checkpoint.
        out: Where the drafter goes.
        ids: Layers whose states it takes, as vLLM counts.
        seed: Of its weights and its sequences.
        seconds: The limit.
        device: "cpu" or "cuda".
    """

    target: Path
    out: Path
    ids: list[int]
    seed: int
    seconds: float
    device: str

    @classmethod
    def read(cls, path: Path) -> Job:
        """From JSON."""
        job: dict[str, Any] = json.loads(path.read_text())
        return cls(
            Path(job["target"]),
            Path(job["out"]),
            job["ids"],
            job["seed"],
            job["seconds"],
            job["device"],
        )


def words(count: int, length: int, text: dict[str, Any], media: int, seed: int) -> torch.Tensor:
    """[count, length]: random tokens, none of them special."""
    last = min(text["vocab_size"], media)
    stream = torch.Generator().manual_seed(seed)
    return torch.randint(_FIRST_WORD, last, (count, length), generator=stream, device="cpu")


def acceptance(student: Student, sequences: Sequences, ids: list[int]) -> float:
    """The share of first guesses that are what the target chooses greedily."""
    with torch.no_grad():
        logits = student.logits(sequences.pick(ids)[:, :-1], sequences.tokens[:, 1:])
    hits = logits.argmax(-1) == sequences.logits.argmax(-1)[:, 1:]
    return float(hits[:, _FROM:].float().mean())


def fit(student: Student, sequences: Sequences, job: Job) -> float:
    """Trains; returns the last loss.

    Raises:
        TimeoutError: It would take longer than the job allows.
    """
    began = time.monotonic()
    states, parameters = sequences.pick(job.ids), student.parameters()
    wanted = (sequences.logits * _SHARPER).log_softmax(-1)
    optimizer = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=0.01)
    stream = torch.Generator().manual_seed(job.seed)
    loss = torch.tensor(0.0)
    for step in range(STEPS):
        if time.monotonic() - began > job.seconds:
            raise TimeoutError(f"{step} of {STEPS} training steps took over {job.seconds:g} s")
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (step + 1) / _WARM_UP) * (1 - step / STEPS)
        rows = torch.randint(len(states), (AT_ONCE,), generator=stream, device="cpu")
        rows = rows.to(states.device)
        logits = student.logits(states[rows, :-1], sequences.tokens[rows, 1:]) * _SHARPER
        loss = kl_div(
            logits.log_softmax(-1).flatten(0, 1),
            wanted[rows, 1:].flatten(0, 1),
            log_target=True,
            reduction="batchmean",
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def run(job: Job) -> dict[str, Any]:
    """Trains and writes; returns what is printed."""
    began = time.monotonic()
    config = config_of(job.target)
    text, media = config["text_config"], config["media_placeholder_token_id"]
    target = Batch.on(job.target, job.device)
    drafter = config_beside(text, job.ids)
    student = Student(drafter, target, job.seed)
    tokens = words(SEQUENCES + HELD_OUT, LENGTH, text, media, job.seed).to(job.device)
    loss = fit(student, target.sequences(tokens[:SEQUENCES]), job)
    fresh = target.sequences(tokens[SEQUENCES:])
    shifted = [number + 1 for number in job.ids]
    known = max(shifted) <= text["num_hidden_layers"]
    dtype = getattr(torch, text["torch_dtype"])
    weights = {name: weight.to(dtype) for name, weight in student.checkpoint().items()}
    write(job.out, drafter, weights)
    return {
        "steps": STEPS,
        "loss": loss,
        "accepted": acceptance(student, fresh, job.ids),
        "shifted": acceptance(student, fresh, shifted) if known else None,
        "seconds": time.monotonic() - began,
    }


def main(path: Path) -> None:
    job = Job.read(path)
    with torch.device(job.device):
        print(json.dumps(run(job)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
