"""Two data-parallel ranks that collect, for ci/collection_gpu.py: whose files are whose?

The engine's side (`run`) is what `vllm serve --data-parallel-size 2` starts: one front, an engine a
rank, each with a collector, a writer and names of its own. A release from v0.17.1 on whose CPU
communicator brings experts' tokens together runs it on a CPU; on GPUs it takes two.
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

from collection_answers import Place
from collection_judge import rows_of

Job = dict[str, Any]
LAYERS = [0, 1, 3, 8]
_REQUESTS, _VOCABULARY, _RANKS = 24, 499, 2
_NAME = re.compile(r"(hs-[0-9a-f]{8}-([0-9]+))-[0-9]{8}\.safetensors")


def run(job: Job, options: Job) -> Job:
    """Answers requests that come at once, waits for their files, and tells which are there."""
    return asyncio.run(_run(job, options))


async def _run(job: Job, options: Job) -> Job:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**options))
    chance = random.Random(12)  # noqa: S311 - numbers, no secrets
    asked = [
        ([chance.randrange(4, _VOCABULARY) for _ in range(length)], chance.choice([1, 2, 9, 20]))
        for length in chance.choices([1, 3, 17, 60], k=_REQUESTS)
    ]

    async def answer(number: int) -> Job:
        prompt, tokens = asked[number]
        parameters = SamplingParams(
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
            max_tokens=tokens,
            extra_args={"collect_hidden_states": True, "collect_label": str(number)},
        )
        request = engine.generate({"prompt_token_ids": prompt}, parameters, str(number))
        last: Any = [output async for output in request][-1]
        return {
            "prompt": prompt,
            "tokens": list(last.outputs[0].token_ids),
            "reason": last.outputs[0].finish_reason,
            "file": (last.kv_transfer_params or {}).get("hidden_states_file"),
        }

    try:
        answers = await asyncio.gather(*(answer(number) for number in range(_REQUESTS)))
        flushed = await engine.collective_rpc("flush_hidden_states", timeout=60)
        there = sorted(one.name for one in Path(job["collection"]["dir"]).iterdir())
    finally:
        engine.shutdown()
    return {
        "answers": {str(number): one for number, one in enumerate(answers)},
        "flushed": flushed,
        "there": there,
    }


def data_parallel(place: Place) -> Job:
    """One start of two ranks; rows by the reference, names by rank."""
    out = place.work / "out-data-parallel"
    job = place.base("eager") | {
        "what": "data-parallel",
        "drafter": None,
        "collection": {"layers": LAYERS, "dir": str(out)},
    }
    job["options"] |= {"data_parallel_size": _RANKS}
    found = place.run("v1/data-parallel", job, "v1", False)
    if "error" in found:
        return {"starts v1/data-parallel": {"ok": False, "error": found["error"]}}
    dtype = "float32" if place.cpu else "bfloat16"
    # The counts that come back are those of the first rank.
    rows = rows_of(found, out, place.models / "kimi", dtype, counted=_is_first)
    return {"rows v1/data-parallel": rows, "ranks v1/data-parallel": ranks_of(found)}


def _is_first(name: str) -> bool:
    named = _NAME.fullmatch(name)
    return named is not None and named[2] == "0"


def ranks_of(found: Job) -> Job:
    """Whether each rank has files of its own name, and the flush waited for all of them."""
    files = [one["file"] for one in found["answers"].values()]
    named = [_NAME.fullmatch(file or "") for file in files]
    engines = {one[1]: int(one[2]) for one in named if one is not None}
    by_rank = {
        rank: sum(one is not None and int(one[2]) == rank for one in named)
        for rank in range(_RANKS)
    }
    return {
        "files": by_rank,
        "late": sorted(set(files) - set(found["there"])),
        "ok": sorted(engines.values()) == list(range(_RANKS))
        and all(by_rank.values())
        and None not in named
        and len(set(files)) == len(files)
        and set(files) == set(found["there"]),
    }
