"""What ci/collection_gpu.py's engines found, judged: collected rows, and equal answers.

Where a token's weakest chosen expert is hardly better than its strongest refused one, rounding
chooses, and an engine may rightly take either: then the rows are held against the reference with
the one, or with the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = dict[str, Any]
# Of an expert's sigmoid: its input is off by the states' bound at most, its slope 1/4 at most.
_TIE_SLOPE = 0.25


def _rows_off(reference: Any, sequence: list[int], states: Any, layers: list[int]) -> Any:
    """([tokens, layers] relative deviations, the run's smallest distance of two experts)."""
    import torch

    run = reference.run(reference.embed(sequence))
    wanted = run.states[layers].permute(1, 0, 2)
    deviation = (states.float() - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    return torch.nan_to_num(deviation, nan=1e9), run.margin


def other_choice(target: Path, below: float) -> Any:
    """The reference that takes the runner-up where two experts are at most so near each other."""
    import torch

    from vpatch.smoke.engine.reference import Reference

    class OtherChoice(Reference):
        def _choose(self, scores: torch.Tensor) -> tuple[torch.Tensor, float]:
            chosen, margin = super()._choose(scores)
            for token in range(len(scores)):
                mine, near = super()._choose(scores[token : token + 1])
                if near <= below:
                    without = scores[token : token + 1].clone()
                    without[0, mine[0, -1]] = -1e9
                    chosen[token] = super()._choose(without)[0][0]
            return chosen, margin

    return OtherChoice.open(target)


def rows_of(
    found: Job,
    folder: Path,
    target: Path,
    dtype: str,
    counted: Callable[[str], bool] = lambda _: True,
) -> Job:
    """Holds every collected file against the float32 reference.

    Args:
        found: What an engine found.
        folder: That of the files.
        target: The checkpoint.
        dtype: Of the engine's states.
        counted: Whether the engine's counts are of this file too.
    """
    from safetensors import safe_open

    from vpatch.smoke.engine.reference import Reference, bound

    reference = Reference.open(target)
    worst, rows, wrong, files = 0.0, 0, [], set()
    counts = [0, 0]
    tied: list[str] = []
    for number, answer in found["answers"].items():
        if answer["file"] is None:
            wrong.append(f"{number}: no file")
            continue
        files.add(answer["file"])
        with safe_open(folder / answer["file"], "pt") as file:
            states, tokens = file.get_tensor("hidden_states"), file.get_tensor("token_ids")
            metadata = file.metadata()
        sequence = answer["prompt"] + answer["tokens"]
        if tokens.tolist() != sequence[:-1] or metadata["label"] != number:
            wrong.append(f"{number}: other tokens")
            continue
        layers = json.loads(metadata["layers"])
        deviation, margin = _rows_off(reference, sequence[:-1], states, layers)
        if deviation.max() > bound(dtype) and margin < _TIE_SLOPE * bound(dtype):
            tied.append(f"{number}: {margin:.1e}")
            other = other_choice(target, margin)
            deviation, _ = _rows_off(other, sequence[:-1], states, layers)
        largest = deviation.max().item()
        worst, rows = max(worst, largest), rows + len(tokens)
        if counted(answer["file"]):
            counts = [counts[0] + len(tokens), counts[1] + 1]
        if largest > bound(dtype):
            wrong.append(f"{number}: {largest:.2%} off")
    more = sorted(path.name for path in folder.iterdir() if path.name not in files)
    flushed = [each for each in found["flushed"] if each]  # of the ranks that write
    written = [sum(each[key] for each in flushed) for key in ("rows", "files", "failed")]
    adds_up = written == [*counts, 0]
    return {
        "rows": rows,
        "files": len(files),
        "worst": worst,
        "bound": bound(dtype),
        "wrong": wrong[:5],
        "tied": tied,
        "left_over": more,
        "adds_up": adds_up,
        "ok": not wrong and not more and adds_up and rows > 0,
    }


def same(one: Job, other: Job, aborted: set[str]) -> Job:
    """Whether two engines gave the same answers, to the bits of their logprobs.

    Args:
        one: What an engine found.
        other: Likewise.
        aborted: Numbers of requests that may have ended or not.
    """
    if "error" in one or "error" in other:
        return {"ok": False, "error": one.get("error") or other.get("error")}
    ours, theirs = one["answers"], other["answers"]
    tokens = [n for n in ours if n in theirs and ours[n]["tokens"] != theirs[n]["tokens"]]
    bits = [n for n in ours if n in theirs and ours[n]["logprobs"] != theirs[n]["logprobs"]]
    # Where a step more was taken, an abort comes before another end.
    lacking = sorted((ours.keys() ^ theirs.keys()) - aborted)
    return {
        "answers": len(ours),
        "other_tokens": tokens,
        "other_bits": bits,
        "only_one_has": lacking,
        "ok": not tokens and not bits and not lacking,
    }
