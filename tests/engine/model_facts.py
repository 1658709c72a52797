"""What test_models.py wants to know of checkpoints; under the engine environment's Python.

``python -m engine.model_facts JOB.json``: prints one JSON object. The job says what of:

    int4       a checkpoint with packed experts, and the same one plain
    roundings  presets of Shape
    guesses    a target, its MLA drafter and the drafter's ids
    echoes     a target, drafters that look at their own token, and their ids
    depends    a target, random drafters, and their ids
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import torch
from compressed_tensors.compressors.quantized_compressors.pack_quantized import (
    pack_to_int32,
    unpack_from_int32,
)
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.lifecycle.forward import dequantize as their_dequantize
from safetensors.torch import load_file

from vpatch.smoke.engine import int4
from vpatch.smoke.engine.checkpoint import Maker, Weights
from vpatch.smoke.engine.kimi import ECHO, text_config, text_weights
from vpatch.smoke.engine.reference import Reference, bound
from vpatch.smoke.engine.reference_drafter import ReferenceDrafter
from vpatch.smoke.engine.shapes import PRESETS, Shape

Facts = dict[str, Any]


def by_bits(packed: torch.Tensor) -> torch.Tensor:
    """[rows, columns]: each word's 32 bits in memory, four by four; shares nothing with int4.py."""
    words = packed.numpy().astype("<i4")
    bits = numpy.unpackbits(words.view(numpy.uint8), axis=-1, bitorder="little")
    nibbles = bits.reshape(len(words), -1, 4) @ numpy.array([1, 2, 4, 8], dtype=numpy.uint8)
    return torch.from_numpy(nibbles.astype(numpy.int8) - 8)


def packing(checkpoint: Path, plain: Path) -> Facts:
    """Packed experts beside other readings of the same bytes, and beside what they were."""
    packed, whole = (load_file(each / "model.safetensors") for each in (checkpoint, plain))
    config = json.loads((checkpoint / "config.json").read_text())["text_config"]
    names = [name.removesuffix("_packed") for name in packed if name.endswith("weight_packed")]
    every = torch.arange(-8, 8, dtype=torch.int8).repeat(2, 4)
    return {
        "experts": len(names),
        "whole_experts": sum(".mlp.experts." in name and name in packed for name in whole),
        "round_trip": torch.equal(int4.unpack(int4.pack(every)), every),
        "packs_alike": torch.equal(int4.pack(every), pack_to_int32(every, 4)),
        "bits": all(
            torch.equal(by_bits(packed[f"{n}_packed"]), int4.unpack(packed[f"{n}_packed"]))
            for n in names
        ),
        "theirs": all(_as_theirs(packed, name) for name in names),
        "steps_off": max(_steps_off(packed, name, whole[name]) for name in names),
        "dtypes": sorted({str(packed[f"{names[0]}_{part}"].dtype) for part in ("scale", "shape")}),
        "ignored": QuantizationConfig(**config["quantization_config"]).ignore,
    }


def _as_theirs(packed: Weights, name: str) -> bool:
    words, scales = packed[f"{name}_packed"], packed[f"{name}_scale"].float()
    values = unpack_from_int32(words, 4, torch.Size(packed[f"{name}_shape"].tolist()))
    theirs = their_dequantize(values, scales, dtype=torch.float32)
    return bool(torch.equal(theirs, int4.dequantize(words, packed[f"{name}_scale"])))


def _steps_off(packed: Weights, name: str, weight: torch.Tensor) -> float:
    scales = packed[f"{name}_scale"]
    steps = scales.float().repeat_interleave(int4.GROUP, dim=-1)
    wrong: float = (
        ((int4.dequantize(packed[f"{name}_packed"], scales) - weight.float()).abs() / steps)
        .max()
        .item()
    )
    return wrong


def prompt(shape: Shape, length: int) -> list[int]:
    stream = torch.Generator().manual_seed(7)
    tokens: list[int] = torch.randint(4, shape.media, (length,), generator=stream).tolist()
    return tokens


class Scored(Reference):
    """Keeps what the router saw."""

    def _choose(self, scores: torch.Tensor) -> tuple[torch.Tensor, float]:
        chosen, margin = super()._choose(scores)
        self.seen: list[tuple[torch.Tensor, torch.Tensor]]
        self.seen.append((scores, chosen.sort().values))
        return chosen, margin


def roundings(shape: Shape) -> Facts:
    """A bfloat16 forward of bfloat16 weights beside the same in float32."""
    weights = {name: weight.bfloat16() for name, weight in text_weights(Maker(shape)).items()}
    tokens = prompt(shape, 80)
    runs, seen = [], []
    for rounding in (None, torch.bfloat16):
        reference = Scored(text_config(shape), weights, rounding)
        reference.seen = []
        runs.append(reference.run(reference.embed(tokens)))
        seen.append(reference.seen)
    exact, rounded = runs
    off = (rounded.states - exact.states).norm(dim=-1) / exact.states.norm(dim=-1)
    pairs = list(zip(*seen, strict=True))
    return {
        "by_layer": off.amax(dim=-1).tolist(),
        "bounds": [bound("bfloat16", layers) for layers in range(len(off))],
        "bound": bound("bfloat16"),
        "apart": exact.apart,
        "margin": exact.margin,
        "scores_off": max((a - b).abs().max().item() for (a, _), (b, _) in pairs),
        "same_experts": all(torch.equal(a, b) for (_, a), (_, b) in pairs),
    }


def guesses(target: Path, drafter: Path, ids: list[int]) -> Facts:
    """What a drafter that looks at its own token guesses, over 99 tokens.

    "own": as often that token's embedding, under the target's head, names the guess; "right": as
    often the target says it next.
    """
    reference = Reference.open(target)
    config = json.loads((target / "config.json").read_text())
    tokens = prompt(Shape(media=config["media_placeholder_token_id"]), 100)
    run = reference.run(reference.embed(tokens))
    states = run.states[ids].permute(1, 0, 2).flatten(1)
    drafting = ReferenceDrafter.beside(reference, drafter)
    guessed = torch.tensor(
        [
            drafting.guess(states[: row + 1], drafting.embed(tokens[1 : row + 2]), 1).tokens[0]
            for row in range(len(tokens) - 1)
        ]
    )
    embedded = reference.embed(tokens[1:]) * reference.weight("model.norm.weight")
    named = (embedded @ reference.weight("lm_head.weight").T).argmax(dim=-1)
    says = run.logits[1:].argmax(dim=-1)
    return {"own": int((guessed == named).sum()), "right": int((guessed == says).sum())}


def echoes(target: Path, drafters: list[str], ids: list[int]) -> Facts:
    """What follows where a prompt ends in ECHO, ten times.

    "right": how often the target says ECHO, in float32 and in bfloat16; "margin": by how much at
    least; by drafter, how often each place of the draft is ECHO.
    """
    reference = Reference.open(target)
    config = json.loads((target / "config.json").read_text())
    start = prompt(Shape(media=config["media_placeholder_token_id"]), 5)
    tokens = start + [ECHO] * 11
    run = reference.run(reference.embed(tokens))
    rounded = Reference.open(target, torch.bfloat16).run(reference.embed(tokens))
    said = [one.logits[5:-1].argmax(dim=-1) == ECHO for one in (run, rounded)]
    best = run.logits[5:-1].topk(2).values
    states = run.states[ids].permute(1, 0, 2).flatten(1)
    found: Facts = {}
    for drafter in drafters:
        drafting = ReferenceDrafter.beside(reference, Path(drafter))
        embeds = drafting.embed(tokens[1:])
        guessed = [drafting.guess(states[:n], embeds[:n], 3).tokens for n in range(6, 16)]
        found[Path(drafter).name] = (torch.tensor(guessed) == ECHO).sum(dim=0).tolist()
    margin = (best[:, 0] - best[:, 1]).min().item()
    return {"token": ECHO, "right": [int(one.sum()) for one in said], "margin": margin, **found}


def depends(target: Path, drafters: list[str], ids: list[int]) -> Facts:
    """Of 20 drafts of three, how many guesses stay where the drafter gets something else.

    "states": zeros; "rows": the last three only; "positions": none.
    """
    reference = Reference.open(target)
    tokens = prompt(Shape(), 61)
    states = reference.run(reference.embed(tokens)).states[ids].permute(1, 0, 2).flatten(1)
    found: Facts = {}
    for folder in drafters:
        drafting = ReferenceDrafter.beside(reference, Path(folder))

        def guessed(states: torch.Tensor, last: int = 60, own: Any = drafting) -> torch.Tensor:
            every = [
                own.guess(states[:n][-last:], own.embed(tokens[1 : n + 1][-last:]), 3).tokens
                for n in range(4, 61, 3)[:20]
            ]
            return torch.tensor(every)

        right = guessed(states)
        other = {"states": guessed(torch.zeros_like(states)), "rows": guessed(states, 3)}
        drafting._rotary = replace(drafting._rotary, base=1e30, scaling=None)
        other["positions"] = guessed(states)
        found[Path(folder).name] = {name: int((g == right).sum()) for name, g in other.items()}
    return found


def main(job: dict[str, Any]) -> Facts:
    facts: Facts = {}
    if "int4" in job:
        facts["int4"] = packing(*map(Path, job["int4"]))
    facts["roundings"] = {name: roundings(PRESETS[name]) for name in job.get("roundings", [])}
    if "guesses" in job:
        target, drafter, ids = job["guesses"]
        facts["guesses"] = guesses(Path(target), Path(drafter), ids)
    if "echoes" in job:
        target, drafters, ids = job["echoes"]
        facts["echoes"] = echoes(Path(target), drafters, ids)
    if "depends" in job:
        target, drafters, ids = job["depends"]
        facts["depends"] = depends(Path(target), drafters, ids)
    return facts


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
