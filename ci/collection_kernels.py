"""The collection's own kernels beside stock's, in CUDA graphs: prints one JSON object.

Runs under vLLM's Python. Each case is replayed behind a write to more memory than the L2 cache
holds; times are the profiler's, of the kernels alone.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from vllm.model_executor.layers.hidden_states_buffer import (
    HiddenStatesBuffer,
    side_by_side,
    write_hidden_states,
)

HIDDEN, LAYERS = 7168, (2, 30, 58)
TOKENS = (1, 8, 32, 128, 512, 1024, 2048, 4096, 8192)
_REPLAYS = 12
_FLUSH_BYTES = 256 << 20


def _profiled(body: Callable[[], object], times: int) -> list[tuple[str, float]]:
    """Names and microseconds of all kernels, in the order of their starts."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(times):
            body()
        torch.cuda.synchronize()
    events = profiler.events() or []
    found = [one for one in events if one.device_type == torch.autograd.DeviceType.CUDA]
    found.sort(key=lambda one: one.time_range.start)
    return [(one.name[:80], one.time_range.elapsed_us()) for one in found]


def kernels_us(body: Callable[[], None], flush: torch.Tensor) -> dict[str, float]:
    """Median microseconds of a replay, by kernel's name; "all" is their sum."""
    graph = torch.cuda.CUDAGraph()
    body()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    marks = {name for name, _ in _profiled(lambda: flush.fill_(1), 1)}
    sums: list[dict[str, float]] = []
    for name, us in _profiled(lambda: (flush.fill_(1), graph.replay()), _REPLAYS):
        if name in marks:
            sums.append({})
        elif sums:
            sums[-1][name] = sums[-1].get(name, 0.0) + us
    if len(sums) != _REPLAYS:
        raise AssertionError(f"{len(sums)} of {_REPLAYS} replays are behind one of {sorted(marks)}")
    names = {name for each in sums for name in each}
    found = {name: statistics.median(each.get(name, 0.0) for each in sums) for name in names}
    found["all"] = statistics.median(sum(each.values()) for each in sums)
    return found


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a large copy."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times: list[float] = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    seconds = statistics.median(times)
    return float(2 * source.numel() / seconds)


def compare(tokens: int, flush: torch.Tensor, bandwidth: float) -> dict[str, Any]:
    """One number of tokens."""
    shape = (tokens, HIDDEN)
    new = {"dtype": torch.bfloat16, "device": "cuda"}
    hidden = [torch.randn(shape, **new) for _ in LAYERS]
    before = [torch.randn(shape, **new) for _ in LAYERS]
    # What the fused add and norm leaves in the residual's place.
    residual = [one + other for one, other in zip(hidden, before, strict=True)]
    kept = [torch.empty(TOKENS[-1], HIDDEN, **new) for _ in LAYERS]
    joined: list[torch.Tensor] = []
    buffer = HiddenStatesBuffer(
        LAYERS, (), HIDDEN, TOKENS[-1], torch.bfloat16, torch.device("cuda")
    )

    def stock_graph() -> None:
        for one, other, target in zip(hidden, before, kept, strict=True):
            target[:tokens] = one + other
        joined[:] = [torch.cat([target[:tokens] for target in kept], dim=-1)]

    def stock_eager() -> None:
        sums = [one + other for one, other in zip(hidden, before, strict=True)]
        joined[:] = [torch.cat(sums, dim=-1)]

    def ours() -> None:
        for place, states in enumerate(residual):
            write_hidden_states(states, buffer.tensor, place * HIDDEN)

    times = {
        "stock_graph": kernels_us(stock_graph, flush),
        "stock_eager": kernels_us(stock_eager, flush),
        "ours": kernels_us(ours, flush),
    }
    stock_eager()
    ours()
    moved = 2 * len(LAYERS) * tokens * HIDDEN * 2
    us = {name: each["all"] for name, each in times.items()}
    return {
        "tokens": tokens,
        "us": us,
        "graph_ratio": us["stock_graph"] / us["ours"],
        "eager_ratio": us["stock_eager"] / us["ours"],
        "bytes": {"ours": moved, "stock_graph": moved // 2 * 7, "stock_eager": moved // 2 * 5},
        "over_floor": us["ours"] / (moved / bandwidth * 1e6),
        "bit_equal": torch.equal(joined[0], side_by_side(buffer.drafter_states(tokens), buffer)),
        "kernels": times,
    }


def main() -> int:
    """Returns 0."""
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    bandwidth = copy_bandwidth()
    rows = [compare(tokens, flush, bandwidth) for tokens in TOKENS]
    print(json.dumps({"bandwidth": bandwidth, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
