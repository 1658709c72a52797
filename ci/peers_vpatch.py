"""vpatch's rebase on plain commits, as a process: what rebase_peers.py runs beside the others.

    python ci/peers_vpatch.py GIT_DIR BASE NEXT SERIES FROM TO

Prints one JSON object: verdicts, questions and the tree. Exit code as `vpatch rebase`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vpatch.patches.repository import scratch_repository
from vpatch.patches.series import Series
from vpatch.rebase.model import LEAVES
from vpatch.rebase.rebase import Side, rebase


def main() -> None:
    """Carries the series."""
    git_dir, base, target, folder, *names = sys.argv[1:]
    series = Series.read(Path(folder), names[0])
    with scratch_repository(Path(git_dir)) as git:
        sides = Side(names[0], base), Side(names[1], target)
        rebased = rebase(git, series, *sides, gates=False)
    told = {
        "tree": rebased.tree if rebased.exit_code == 0 else "",
        "kept": sum(patch.verdict.word not in LEAVES for patch in rebased.patches),
        "counts": rebased.counts,
        "questions": [question.name for question in rebased.questions],
        "patches": {patch.carried.patch.subject: patch.verdict.word for patch in rebased.patches},
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.exit(rebased.exit_code)


if __name__ == "__main__":
    main()
