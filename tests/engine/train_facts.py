"""How far the batched reference is from the plain one; under the engine environment's Python.

``python -m engine.train_facts TARGET``: prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from vpatch.smoke.engine.batch import Batch
from vpatch.smoke.engine.reference import Reference


def main(checkpoint: Path) -> None:
    stream = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, 500, (3, 20), generator=stream)
    sequences = Batch.on(checkpoint, "cpu").sequences(tokens)
    reference = Reference.open(checkpoint)
    states, logits, margins = [], [], []
    for number, row in enumerate(tokens.tolist()):
        run = reference.run(reference.embed(row))
        states.append((sequences.states[:, number] - run.states).abs().max().item())
        logits.append((sequences.logits[number] - run.logits).abs().max().item())
        margins.append(run.margin)
    found = {"states": max(states), "logits": max(logits), "margin": min(margins)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
