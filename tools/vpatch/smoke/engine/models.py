"""``python -m vpatch.smoke.engine.models SPEC.json`` writes the checkpoints that a SPEC asks for.

A SPEC is one JSON object:

    folder    where each checkpoint becomes a folder of its name
    shape     fields of Shape; what it leaves out is CPU's
    targets   name; kind: plain, or int4 for packed experts; schema: old, or new for the config
              of v0.32.0 on; layers, dense, dtype: other than the shape's, or null
    drafters  name; target: a target's name; kind: of drafters.py; ids: the layers
              whose states it takes, or null for the release's default of three; form: where the
              config keeps them (FORMS); vocabulary: reduced or full; changes: laid over the config;
              lacks: names of weights that its checkpoint leaves out

Prints one JSON object: by name of each target and drafter its folder and how many values it has,
and of a target how far apart neighbouring layers' states and the router's choices are (the smallest
relative distance, and the smallest margin, over a seeded prompt). The bytes of a checkpoint depend
on the SPEC alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vpatch.smoke.engine import drafters, kimi
from vpatch.smoke.engine.checkpoint import Config, Weights, saved, write
from vpatch.smoke.engine.reference import Reference
from vpatch.smoke.engine.shapes import Shape

_PROMPT = 64
DEFAULT_STATES = 3
"""So many states a drafter takes where its config names no layers."""


def _check_names(name: str, known: Mapping[str, tuple[str, ...]], own: Mapping[str, str]) -> None:
    for field, value in own.items():
        if value not in known[field]:
            raise ValueError(f"{name}: {field} is {value}, not {', '.join(known[field])}")


@dataclass(frozen=True)
class Target:
    """One target of a SPEC."""

    name: str
    kind: str = "plain"
    schema: str = "old"
    layers: int | None = None
    dense: int | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        known = {"kind": kimi.KINDS, "schema": kimi.SCHEMAS}
        _check_names(self.name, known, {"kind": self.kind, "schema": self.schema})

    def shape(self, of_all: Shape) -> Shape:
        """The SPEC's shape with what this target has of its own."""
        return replace(
            of_all,
            layers=of_all.layers if self.layers is None else self.layers,
            first_dense=of_all.first_dense if self.dense is None else self.dense,
            dtype=self.dtype or of_all.dtype,
        )


@dataclass(frozen=True)
class Drafter:
    """One drafter of a SPEC."""

    name: str
    target: str
    kind: str
    ids: list[int] | None
    form: str
    vocabulary: str = "reduced"
    changes: Config | None = None
    lacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = {
            "kind": tuple(drafters.KINDS),
            "form": tuple(FORMS),
            "vocabulary": tuple(drafters.VOCABULARIES),
        }
        own = {"kind": self.kind, "form": self.form, "vocabulary": self.vocabulary}
        _check_names(self.name, known, own)
        if (self.ids is None) != (self.form == "none"):
            raise ValueError(f"{self.name}: form none goes with ids null, each other form with ids")


def _nested(config: Config, drafter: Drafter) -> Config:
    return config | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": drafter.ids}}


def _top_level(config: Config, drafter: Drafter) -> Config:
    return config | {"eagle_aux_hidden_state_layer_ids": drafter.ids}


def _layer_ids(config: Config, drafter: Drafter) -> Config:
    return config | {"eagle_config": {"layer_ids": drafter.ids}}


def _speculators(config: Config, drafter: Drafter) -> Config:
    method = {"proposal_type": "greedy", "speculative_tokens": 3}
    inner = {key: value for key, value in config.items() if key != "draft_vocab_size"}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {
                "name_or_path": drafter.target,
                "architectures": ["KimiK25ForConditionalGeneration"],
            },
        },
        "transformer_layer_config": inner,
        "draft_vocab_size": config["draft_vocab_size"],
        "eagle_aux_hidden_state_layer_ids": drafter.ids,
        "norm_before_residual": False,
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "torch_dtype": config["torch_dtype"],
    }


FORMS: dict[str, Callable[[Config, Drafter], Config]] = {
    "nested": _nested,  # public Kimi drafters
    "top-level": _top_level,
    "layer-ids": _layer_ids,
    "speculators": _speculators,
    "none": lambda config, _drafter: config,
}
"""Where a drafter's config keeps the ids of its layers."""


def write_drafter(folder: Path, drafter: Drafter, shape: Shape, target: Weights) -> Weights:
    """One drafter's checkpoint; returns the weights as saved."""
    states = DEFAULT_STATES if drafter.ids is None else len(drafter.ids)
    made = drafters.make(drafter.kind, drafter.vocabulary, target, shape, states)
    weights = saved(made.weights, shape)
    for name in drafter.lacks:
        del weights[name]
    config = FORMS[drafter.form](made.config, drafter)
    write(folder, config | (drafter.changes or {}), weights)
    return weights


def apart(checkpoint: Path, shape: Shape) -> dict[str, float | None]:
    """How far apart a target's layers and its router's choices are, as the reference computes them.

    Returns:
        "layers_apart": Run.apart, "router_margin": Run.margin, null where no layer has experts.
    """
    stream = torch.Generator().manual_seed(shape.seed)
    tokens = torch.randint(4, shape.media, (_PROMPT,), generator=stream).tolist()
    reference = Reference.open(checkpoint)
    run = reference.run(reference.embed(tokens))
    margin = run.margin if math.isfinite(run.margin) else None  # JSON has no infinity
    return {"layers_apart": run.apart, "router_margin": margin}


def _count(weights: Weights) -> int:
    return sum(weight.numel() for weight in weights.values())


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Writes what the SPEC asks for; returns what to print.

    Raises:
        ValueError: A name, kind, form or shape that is not there, or a shape that cannot hold what
            is asked for.
    """
    folder, shape = Path(spec["folder"]), Shape.read(spec["shape"])
    targets = {entry["name"]: Target(**entry) for entry in spec["targets"]}
    of_all = [Drafter(**entry) for entry in spec["drafters"]]
    texts: dict[str, Weights] = {}
    found: dict[str, Any] = {"targets": {}, "drafters": {}}
    for name, target in targets.items():
        own = target.shape(shape)
        written = kimi.write_target(folder / name, own, target.kind, target.schema)
        texts[name] = written.text
        about = {"folder": str(folder / name), "parameters": written.parameters}
        found["targets"][name] = about | apart(folder / name, own)
    for drafter in of_all:
        of_target = targets[drafter.target].shape(shape)
        weights = write_drafter(folder / drafter.name, drafter, of_target, texts[drafter.target])
        found["drafters"][drafter.name] = {
            "folder": str(folder / drafter.name),
            "parameters": _count(weights),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
