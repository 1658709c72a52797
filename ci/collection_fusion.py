"""What the compiler's passes fuse, with the buffer and without, for ci/collection_gpu.py.

    python ci/collection_gpu.py --stock SITE fusion

All-reduce and RMS norm become one kernel where the pass finds one behind the other; it needs two
GPUs and flashinfer. Each engine compiles anew, and says at log level DEBUG how many places each
pass replaced. Of engines with the same drafter, or with none, these numbers have to be equal:
the release, the series, and the series that collects. A pass that replaced nothing proves nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from collection_answers import Place

Job = dict[str, Any]
LAYERS = [0, 1, 3, 5, 7, 8]
FUSES = "allreduce_rms_fusion.py"
# `... [.../fusion/allreduce_rms_fusion.py:856] Replaced 16 patterns`, from v0.26.0 on also
# `... AllReduceFusedAddRMSNormPass Replaced ...`.
_REPLACED = re.compile(r"\[(?:[^\]\s]*/)?([\w.-]+\.py):\d+\][^\n]*?\bReplaced (\d+) patterns?\b")


def replaced(log: str) -> dict[str, list[int]]:
    """By the pass's file: what each of its runs replaced, in no order of ranks and graphs."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, count in _REPLACED.findall(log):
        found[name].append(int(count))
    return {name: sorted(counts) for name, counts in sorted(found.items())}


def fusion(place: Place, runners: list[str]) -> Job:
    """Engines one after the other; equal numbers where the drafter is the same."""
    checks: Job = {}
    for runner in runners:
        for drafter in (None, str(place.models / "llama")):
            case = f"{runner}/{'eagle3' if drafter else 'no drafter'}"
            found: dict[str, dict[str, list[int]]] = {}
            for kind in ("plain", "collect", "stock") if place.has_stock else ("plain", "collect"):
                name = f"fusion {case}/{kind}"
                job = _job(place, drafter, place.work / name.replace(" ", "-").replace("/", "-"))
                if kind != "collect":
                    del job["collection"]
                result = place.run(name, job, runner, kind == "stock")
                if "error" in result:
                    checks[name] = {"ok": False, "error": result["error"]}
                else:
                    found[kind] = replaced(Path(result["log"]).read_text(errors="replace"))
            checks[f"fusion {case}"] = judge(found)
            place.keep(checks)
    return checks


def _job(place: Place, drafter: str | None, out: Path) -> Job:
    job = place.base("graphs") | {
        "what": "start",
        "drafter": drafter,
        "collection": {"layers": LAYERS, "dir": str(out)},
        "variables": {"VLLM_LOGGING_LEVEL": "DEBUG"},
    }
    job["options"] |= {
        "tensor_parallel_size": 2,
        "compilation_config": {"pass_config": {"fuse_allreduce_rms": True}},
    }
    return job


def judge(found: dict[str, dict[str, list[int]]]) -> Job:
    """Whether all kinds of engines replaced the same, and the pass in question something."""
    plain = found.get("plain", {})
    matches = {kind: sum(one.get(FUSES, [])) for kind, one in found.items()}
    other = {
        kind: {name: [one.get(name), plain.get(name)] for name in one.keys() | plain.keys()}
        for kind, one in found.items()
        if one != plain
    }
    why = "" if matches.get("plain") else "the pass replaced nothing: no proof"
    return {
        "matches": matches,
        "other": other,
        "why": why,
        "ok": not other and not why and len(found) > 1,
    }
