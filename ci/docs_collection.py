"""Tables of docs/collection.md, from what ci/collection_gpu.py found on a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from docs_smoke import table

_FOUND = Path(__file__).resolve().parent.parent / "docs" / "collection-gpu.json"


def _found(part: str) -> Any:
    return json.loads(_FOUND.read_text())[part]


def kernels() -> str:
    """Microseconds of the collection's kernels and of the release's, by number of tokens."""
    head = (
        "tokens",
        "release in a graph: add, copy, concatenate, µs",
        "release, eager: add, concatenate, µs",
        "collection: three writes, µs",
        "times less, graph",
        "times less, eager",
        "of the floor",
    )
    rows = [
        (
            str(row["tokens"]),
            *(f"{row['us'][name]:.1f}" for name in ("stock_graph", "stock_eager", "ours")),
            *(f"{row[name]:.2f}" for name in ("graph_ratio", "eager_ratio", "over_floor")),
        )
        for row in _found("kernels")["rows"]
    ]
    return table(head, rows)


def answers() -> str:
    """By engine: rows against the reference, and answers against the engines without."""
    found = _found("answers")
    head = ("engine", "files", "rows", "worst (bound)", "drafts accepted", "preemptions", "answers")
    return table(head, _answered(found))


def _answered(found: dict[str, Any]) -> Iterable[Sequence[str]]:
    for name, check in found.items():
        kind, _, engine = name.partition(" ")
        if kind != "rows":
            continue
        metrics = found[f"starts {engine}"]["metrics"]
        case = engine.rpartition("/")[0]
        alone = engine.endswith("alone")
        equal = not alone and all(
            found[f"bits {case}: {other} = plain"]["ok"] for other in ("collect", "stock")
        )
        yield (
            f"`{engine.replace('/collect-alone', ', no drafter').replace('/collect', '')}`",
            str(check["files"]),
            str(check["rows"]),
            f"{check['worst']:.1%} ({check['bound']:.1%})",
            str(metrics.get("vllm:spec_decode_num_accepted_tokens", "-")),
            str(metrics["vllm:num_preemptions"]),
            "-" if alone else "bit-equal" if equal else "**differ**",
        )


def throughput() -> str:
    """By engine: tokens a second, and the share of the engine that collects nothing."""
    found = _found("throughput")
    head = ("engine", "into", "tokens/s", "share", "KV blocks")
    into = {"none": "-", "shm": "/dev/shm", "disk": "a disk"}  # noqa: S108
    rows = []
    for name, one in sorted(found.items(), key=lambda each: (each[0][:2], -each[1]["rate"])):
        runner, _, sink = name.partition("/")
        share = one["rate"] / found[f"{runner}/none"]["rate"]
        blocks, rate = str(one["blocks"]), str(one["rate"])
        rows.append((runner, into.get(sink, sink), rate, f"{share:.1%}", blocks))
    return table(head, rows)


def trace() -> str:
    """By case: microseconds of all kernels of the release, and with the series."""
    head = ("tokens", "release, µs", "series, µs", "collecting, µs", "copies to the host, µs")
    rows = [
        (
            case,
            *(f"{one[kind]['kernels']:.0f}" for kind in ("stock", "plain", "collect")),
            f"{one['collect']['to_host']:.0f}",
        )
        for case, one in _found("trace").items()
    ]
    return table(head, rows)
