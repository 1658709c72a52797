"""What the float32 reference says about sampled tokens: their probabilities.

``python -m vpatch.smoke.engine.distribution JOB.json`` with

    {"target": FOLDER, "prompt": [5, 6], "temperature": 0.25, "fewest": 50,
     "sequences": [[7, 8, 9]]}

takes sequences that an engine sampled after the prompt, and prints ``{"after": [{"prefix": [7],
"probabilities": [...]}]}``: for every prefix of one token or more that came at least `fewest`
times, each next token's probability. The first token is left out: no draft was verified for it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vpatch.smoke.engine.reference import Reference

Prefix = tuple[int, ...]


def frequent_prefixes(sequences: Iterable[Sequence[int]], fewest: int) -> list[Prefix]:
    """Prefixes, of one token or more, that a token followed so often; the most frequent first."""
    counts = Counter(
        tuple(sequence[:length]) for sequence in sequences for length in range(1, len(sequence))
    )
    return [prefix for prefix, count in counts.most_common() if count >= fewest]


def probabilities(
    target: Reference, prompt: Sequence[int], prefix: Prefix, temperature: float
) -> list[float]:
    """[vocabulary]: each token's probability after prompt and prefix."""
    logits = target.run(target.embed([*prompt, *prefix])).logits[-1]
    shares: list[float] = (logits.double() / temperature).softmax(-1).tolist()
    return shares


def after(job: dict[str, Any]) -> dict[str, Any]:
    """What is printed, for a job as above."""
    target = Reference.open(Path(job["target"]))
    found = [
        {
            "prefix": prefix,
            "probabilities": probabilities(target, job["prompt"], prefix, job["temperature"]),
        }
        for prefix in frequent_prefixes(job["sequences"], job["fewest"])
    ]
    return {"after": found}


if __name__ == "__main__":
    print(json.dumps(after(json.loads(Path(sys.argv[1]).read_text()))))
