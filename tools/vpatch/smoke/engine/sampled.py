"""The reference's probabilities for what a start sampled: ``-m ... JOB.json``, after start.py.

The job's "distribution" holds what engine/distribution.py needs beside the answers of the phase
"sampled", whose prompts are all the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vpatch.smoke.engine import distribution


def job_of(job: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """The job of engine/distribution.py."""
    phase = outputs["phases"]["sampled"]
    return {
        "target": job["target"],
        "prompt": phase["prompts"][0],
        "sequences": phase["tokens"],
        **job["distribution"],
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    answers = json.loads((path.parent / "outputs.json").read_text())
    print(json.dumps(distribution.after(job_of(json.loads(path.read_text()), answers))))
