"""Trains a drafter on a collected set: ``JOB.json``. Runs under vLLM's Python.

    {"target": FOLDER, "set": FOLDER, "out": FOLDER, "ids": [1, 3, 7], "takes": [1, 3, 7],
     "shuffled": false, "last": 8, "first": 0, "count": 256, "seed": 0, "seconds": 300,
     "device": "cpu"}

The drafter's config names "ids"; what it is trained on are the states "takes", "shuffled" among all
rows where that is so. Its labels are the target's logits, made of the "last" state of each row.
Nothing but the set and the target's weights is read: no forward of the target is run. Prints one
JSON object: "rows"; "greedy", the share of generated tokens that the labels say; "loss";
"seconds". The checkpoint depends on the job, the target and the set alone.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from vpatch.smoke.engine import train
from vpatch.smoke.engine.batch import Batch, Sequences, config_of
from vpatch.smoke.engine.checkpoint import write
from vpatch.smoke.engine.student import Student, config_beside

Job = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Some samples of a set, of one length.

    Attributes:
        tokens: [samples, rows].
        states: [layers of the target + 1, samples, rows, hidden]; NaN where a layer is not in the
            set.
        prompt: Tokens of each prompt.
    """

    tokens: torch.Tensor
    states: torch.Tensor
    prompt: int


def read(folder: Path, first: int, count: int, layers: int) -> Part:
    """The samples of these numbers.

    Raises:
        ValueError: One is not there, or longer than another one.
    """
    about = json.loads((folder / "set.json").read_text())
    lines = map(json.loads, (folder / "samples.jsonl").read_text().splitlines())
    wanted = range(first, first + count)
    samples = {one["sample"]: one for one in lines if one["sample"] in wanted and "file" in one}
    lengths = {(one["prompt"], one["prompt"] + one["generated"]) for one in samples.values()}
    if len(samples) != count or len(lengths) != 1:
        raise ValueError(f"{folder}: {len(samples)} of {count} samples, lengths {lengths}")
    tokens, states = [], []
    for number in wanted:
        with safe_open(folder / samples[number]["file"], "pt") as file:
            tokens.append(file.get_tensor("token_ids"))
            states.append(file.get_tensor("hidden_states").float())
    found = torch.stack(states)  # [samples, rows, layers, hidden]
    whole = torch.full((layers + 1, *found.shape[:2], found.shape[-1]), torch.nan)
    for column, layer in enumerate(about["layers"]):
        whole[layer] = found[:, :, column]
    return Part(torch.stack(tokens), whole, next(iter(lengths))[0])


def shuffle(states: torch.Tensor, seed: int) -> torch.Tensor:
    """The same rows, each at another one's place; a row's layers stay together."""
    rows = states.flatten(1, 2)
    order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(seed))
    return rows[:, order].unflatten(1, states.shape[1:3])


def run(job: Job) -> Job:
    """Trains and writes; returns what is printed."""
    began = time.monotonic()
    text = config_of(Path(job["target"]))["text_config"]
    target = Batch.on(Path(job["target"]), job["device"])
    part = read(Path(job["set"]), job["first"], job["count"], text["num_hidden_layers"])
    states = shuffle(part.states, job["seed"]) if job["shuffled"] else part.states
    with torch.no_grad():
        logits = target.logits(part.states[job["last"]].to(job["device"]))
    tokens = part.tokens.to(job["device"])
    sequences = Sequences(tokens, states.to(job["device"]), logits)
    says = logits[:, part.prompt - 1 : -1].argmax(-1) == tokens[:, part.prompt :]
    drafter = config_beside(text, job["ids"])
    student = Student(drafter, target, job["seed"])
    out = Path(job["out"])
    takes = train.Job(
        Path(job["target"]), out, job["takes"], job["seed"], job["seconds"], job["device"]
    )
    loss = train.fit(student, sequences, takes)
    dtype = getattr(torch, text["torch_dtype"])
    write(out, drafter, {name: one.to(dtype) for name, one in student.checkpoint().items()})
    return {
        "rows": tokens.numel(),
        "greedy": float(says.float().mean()),
        "loss": loss,
        "seconds": time.monotonic() - began,
    }


def main(path: Path) -> None:
    job: Job = json.loads(path.read_text())
    print(json.dumps(run(job)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
