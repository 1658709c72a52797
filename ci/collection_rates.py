"""Tokens a second of long prompts, the engine's side of `throughput` of ci/collection_gpu.py.

A watch (`end_after`) is kept over it: an engine that hangs ends, and says where it stood.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

Job = dict[str, Any]
_VOCABULARY, _WARM = 499, 4
_POLL_S = 0.002


def run(job: Job, llm: Any) -> Job:
    """Runs of prompts without a shared prefix, one token generated; until all is written.

    "rate" is that of the last number of prompts; `job["stands"]` says what is being done.
    """
    from vllm import SamplingParams

    chance = random.Random(10)  # noqa: S311
    collection = job.get("collection")
    extra = {"collect_hidden_states": True} if collection else None
    parameters = SamplingParams(
        temperature=0.0, ignore_eos=True, detokenize=False, max_tokens=1, extra_args=extra
    )
    folder = job.get("extract") or (collection or {}).get("dir")

    def once(count: int) -> tuple[float, Job]:
        prompts = [
            {"prompt_token_ids": [chance.randrange(4, _VOCABULARY) for _ in range(job["prompt"])]}
            for _ in range(count)
        ]
        began = time.monotonic()
        job["stands"] = f"generating, {count} prompts; before: {json.dumps(rates)}"
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        generated = time.monotonic() - began
        job["stands"] = f"waiting for files of {count} prompts; before: {json.dumps(rates)}"
        if collection:
            llm.collective_rpc("flush_hidden_states", timeout=120)
        if job.get("extract"):
            _wait_for_upstream(llm, outputs)
        seconds = time.monotonic() - began
        held = sum(one.stat().st_size for one in Path(folder).glob("*")) if folder else 0
        if folder:
            for one in Path(folder).glob("*"):
                one.unlink()
        return seconds, {"bytes": held, "generated": generated}

    rates: dict[str, list[float]] = {}
    once(_WARM)
    for count in job["prompts"]:
        for _ in range(3):
            seconds, more = once(count)
            rates.setdefault(str(count), []).append(count * job["prompt"] / seconds)
    medians = {count: statistics.median(each) for count, each in rates.items()}
    last = str(job["prompts"][-1])
    return {"rates": rates[last], "rate": medians[last], "by_prompts": medians, "more": more}


def _wait_for_upstream(llm: Any, outputs: list[Any]) -> None:
    """Its files are whole when their locks are free.

    What has finished is handed to its worker with the next step, and `generate` takes none behind
    its last answer: an engine in this process would hold these locks for ever.
    """
    for output in outputs:
        path = output.kv_transfer_params["hidden_states_path"]
        with Path(f"{path}.lock").open() as lock:
            while not _is_free(lock):
                llm.llm_engine.engine_core.get_output()
                time.sleep(_POLL_S)


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end_after(job: Job, tell: Callable[[Job], None]) -> None:
    """Where the job is not over in its limit: tells where it stood, and ends this process."""

    def end() -> None:
        stands = job.get("stands", "at its beginning")
        tell({"error": f"not over {job['limit']} s after its turn came; it was {stands}"})
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)

    timer = threading.Timer(job["limit"], end)
    timer.daemon = True
    timer.start()
