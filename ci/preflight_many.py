"""Engine side of `preflight_engine.py --refused`: starts that end at the config, in one process.

Reads a list of folders with a job.json each; every one gets log and outputs.json, as from
vpatch.smoke.engine.start. Importing vLLM takes longer than being refused. The first engine that is
not refused ends the process: it wants one of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vllm import LLM

from vpatch.smoke.engine.prepare import error_of, prepare
from vpatch.smoke.engine.start import options_of


def refused(folder: Path, job: dict[str, Any]) -> bool:
    """Whether the config was refused; its error is written."""
    with (folder / "log").open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            LLM(**options_of(job))
        except Exception as error:
            (folder / "outputs.json").write_text(json.dumps({"error": error_of(error)}))
            return "Starting to load model" not in (folder / "log").read_text(errors="replace")
    return False


def main(path: Path) -> None:
    """Every folder of the list, until one is not refused."""
    for number, name in enumerate(json.loads(path.read_text())):
        folder = Path(name)
        job = json.loads((folder / "job.json").read_text())
        if number == 0:
            prepare(job)
        if not refused(folder, job):
            (folder / "outputs.json").unlink(missing_ok=True)
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
