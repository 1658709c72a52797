"""What ci/collection_train.py makes of a set; under the engine environment's Python.

``python -m engine.collected_facts SET``, a set of two layers, 1 and 3: prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from collection_train import read, shuffle

_SAMPLE, _LAYERS = 5, 4


def read_facts(folder: Path) -> dict[str, Any]:
    part = read(folder, _SAMPLE, 1, _LAYERS)
    with safe_open(folder / f"hs_{_SAMPLE}.safetensors", "pt") as file:
        states, tokens = file.get_tensor("hidden_states").float(), file.get_tensor("token_ids")
    try:
        read(folder, _SAMPLE, 2, _LAYERS)
        refused = ""
    except ValueError as error:
        refused = str(error)
    return {
        "tokens": part.tokens.tolist() == [tokens.tolist()],
        "layers": [torch.equal(part.states[n, 0], states[:, i]) for i, n in enumerate((1, 3))],
        "nan": [bool(part.states[n].isnan().all()) for n in range(_LAYERS + 1)],
        "prompt": part.prompt,
        "refused": refused,
    }


def shuffle_facts() -> dict[str, Any]:
    rows = torch.arange(6 * 7, dtype=torch.float32).view(1, 6, 7, 1)
    states = torch.cat([rows, rows + 1000])  # two layers of the same rows
    shuffled = shuffle(states, seed=3)
    return {
        "together": torch.equal(shuffled[1], shuffled[0] + 1000),
        "same rows": torch.equal(shuffled[0].flatten().sort().values, rows.flatten()),
        "moved": int((shuffled[0] != rows[0]).sum()),
        "between samples": int((shuffled[0] // 7 != rows[0] // 7).sum()),
        "again": torch.equal(shuffled, shuffle(states, seed=3)),
        "other": torch.equal(shuffled, shuffle(states, seed=4)),
    }


if __name__ == "__main__":
    print(json.dumps({**read_facts(Path(sys.argv[1])), **shuffle_facts()}))
