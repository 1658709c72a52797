"""reference.py beside transformers' DeepseekV3ForCausalLM, on the same weights.

``python -m engine.against_transformers JOB`` under the engine environment's Python. JOB is JSON: a
"preset" of Shape and "changes" laid over the text model's config. Prints how far apart the two are,
in the largest absolute difference of any value.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from vpatch.smoke.engine.checkpoint import Maker, saved
from vpatch.smoke.engine.kimi import text_config, text_weights
from vpatch.smoke.engine.reference import Reference
from vpatch.smoke.engine.shapes import PRESETS

TOKENS = 100


def states_of(model: Any, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Each decoder layer's input and the final norm's input, and the logits."""
    seen: list[torch.Tensor] = []

    def keep(_module: object, inputs: tuple[torch.Tensor, ...], named: dict[str, Any]) -> None:
        seen.append((inputs[0] if inputs else named["hidden_states"])[0].clone())

    for module in (*model.model.layers, model.model.norm):
        module.register_forward_pre_hook(keep, with_kwargs=True)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    return torch.stack(seen), logits


def main(job: dict[str, Any]) -> dict[str, Any]:
    shape = PRESETS[job["preset"]]
    text = text_config(shape) | job["changes"]
    as_saved = saved(text_weights(Maker(shape)), shape)
    weights = {name: weight.float() for name, weight in as_saved.items()}
    stream = torch.Generator().manual_seed(shape.seed)
    tokens = torch.randint(4, shape.vocab, (TOKENS,), generator=stream).tolist()
    reference = Reference(text, weights)
    run = reference.run(reference.embed(tokens))

    taken = {
        key: value for key, value in text.items() if key not in ("model_type", "architectures")
    }
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**taken, attn_implementation="eager"))
    model.float().eval().load_state_dict(weights)
    states, logits = states_of(model, tokens)
    return {
        "states": len(states),
        "worst": (states - run.states).abs().max().item(),
        "logits": (logits - run.logits).abs().max().item(),
        "smallest_step": (run.states[1:] - run.states[:-1]).abs().amax(-1).min().item(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
