"""One engine start for ci/collection_gpu.py: ``JOB.json``. Runs under vLLM's Python.

"what" of the job: `answers` runs requests and keeps tokens, logprobs and what was collected;
`many` takes 10,000 short ones (collection_many.py); `sleep` collects the same ones before and after
the engine slept (collection_sleep.py); `data-parallel` starts two ranks (collection_parallel.py);
`trace` sums up kernels by name, by the profiler; `throughput` takes the time of long prompts;
`start` starts, and ends.
"turn" of the job: it writes TURN.ready when the engine stands, and goes on when TURN.go is there.
"limit" of the job: after so many seconds of its turn it says where it stood, and ends.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import collection_many
import collection_parallel
import collection_rates
import collection_sleep
from vpatch.smoke.engine.parent import end_with_parent
from vpatch.smoke.engine.prepare import prepare

Job = dict[str, Any]
REQUESTS, VOCABULARY = 64, 499
_TRACED = 5
_LATE_CYCLES = 40_000_000


def options_of(job: Job) -> Job:
    """The arguments of ``LLM(...)``."""
    options: Job = {
        "model": job["target"],
        "seed": 0,
        "dtype": "bfloat16",
        "trust_remote_code": True,
        "limit_mm_per_prompt": {"vision_chunk": 0},
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        **job["options"],
    }
    if job.get("drafter"):
        options["speculative_config"] = {
            "method": "eagle3",
            "model": job["drafter"],
            "num_speculative_tokens": 3,
        }
    if job.get("collection"):
        options["hidden_states_collection"] = job["collection"]
    if job.get("extract"):
        options |= _upstreams_extraction(job["extract"])
    return options


def _upstreams_extraction(folder: str) -> Job:
    from vllm.config import KVTransferConfig

    ids = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
    return {
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": ids},
        },
        "kv_transfer_config": KVTransferConfig(
            kv_connector="ExampleHiddenStatesConnector",
            kv_role="kv_producer",
            kv_connector_extra_config={"shared_storage_path": folder},
        ),
    }


def runner_of(llm: Any) -> Any:
    """The model runner; the engine is in this process."""
    core = llm.llm_engine.engine_core.engine_core
    return core.model_executor.driver_worker.worker.model_runner


def delay_copies(runner: Any) -> None:
    """Each copy to the host begins long after the forwards behind it could."""
    import torch

    runner.hidden_states_collector._before_copy = lambda: torch.cuda._sleep(_LATE_CYCLES)


def requests() -> list[tuple[list[int], Job]]:
    """Prompts and what is asked of them: short, long, stopped by a token."""
    chance = random.Random(8)  # noqa: S311
    found = []
    for number in range(REQUESTS):
        length = chance.choice([1, 3, 17, 60, 150])
        prompt = [chance.randrange(4, VOCABULARY) for _ in range(length)]
        stops = [chance.randrange(4, VOCABULARY) for _ in range(30)] if number % 2 else []
        asked = {"max_tokens": chance.choice([1, 2, 9, 30, 50]), "stop_token_ids": stops}
        found.append((prompt, asked))
    return found


def answers(job: Job, llm: Any) -> Job:
    """Runs the requests; some come late, some are aborted."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    waiting = list(enumerate(requests()))
    aborted = {12: 5, 20: 21, 25: 33, 31: 40}
    done: dict[int, Any] = {}
    step = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[0][0] <= 3 * step + 20:
            number, (prompt, asked) = waiting.pop(0)
            extra = {"collect_hidden_states": True, "collect_label": str(number)}
            asked["extra_args"] = extra if job.get("collection") else None
            parameters = SamplingParams(
                temperature=0.0, ignore_eos=True, detokenize=False, logprobs=0, **asked
            )
            engine.add_request(str(number), {"prompt_token_ids": prompt}, parameters)
        for output in engine.step():
            if output.finished:
                done[int(output.request_id.split("-")[0])] = output
        if step in aborted:
            engine.abort_request([str(aborted[step])])
        step += 1
    found: Job = {
        "steps": step,
        "answers": {number: _answer(output) for number, output in sorted(done.items())},
        "metrics": {
            metric.name: metric.value
            for metric in llm.get_metrics()
            if metric.name in ("vllm:num_preemptions", "vllm:spec_decode_num_accepted_tokens")
        },
    }
    if job.get("collection"):
        found["flushed"] = llm.collective_rpc("flush_hidden_states", timeout=60)
    return found


def _answer(output: Any) -> Job:
    answer = output.outputs[0]
    tokens = list(answer.token_ids)
    probabilities = [
        each[token].logprob.hex()
        for token, each in zip(tokens, answer.logprobs or [], strict=False)
    ]
    file = (output.kv_transfer_params or {}).get("hidden_states_file")
    return {
        "prompt": list(output.prompt_token_ids),
        "tokens": tokens,
        "logprobs": probabilities,
        "reason": answer.finish_reason,
        "file": file,
    }


def many(job: Job, llm: Any) -> Job:
    """10,000 short requests."""
    return collection_many.run(job, llm, runner_of(llm).hidden_states_collector)


def trace(job: Job, llm: Any) -> Job:
    """By case: kernels' names, their numbers and microseconds, of all its repetitions."""
    from torch.profiler import ProfilerActivity, profile
    from vllm import SamplingParams

    chance = random.Random(9)  # noqa: S311
    extra = {"collect_hidden_states": True} if job.get("collection") else None

    def run(batch: int, length: int, tokens: int) -> None:
        prompts = [
            {"prompt_token_ids": [chance.randrange(4, VOCABULARY) for _ in range(length)]}
            for _ in range(batch)
        ]
        parameters = SamplingParams(
            temperature=0.0, ignore_eos=True, detokenize=False, max_tokens=tokens, extra_args=extra
        )
        llm.generate(prompts, parameters, use_tqdm=False)

    found: Job = {}
    cases = [(f"prefill {length}", 1, length, 1) for length in job["lengths"]]
    cases += [(f"decode {4 * batch}", batch, 4, 17) for batch in job["batches"]]
    for name, batch, length, tokens in cases:
        for _ in range(2):
            run(batch, length, tokens)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(_TRACED):
                run(batch, length, tokens)
        kernels = {
            event.key[:160]: [event.count, event.self_device_time_total]
            for event in profiler.key_averages()
            if event.self_device_time_total > 0
        }
        found[name] = {"repetitions": _TRACED, "kernels": kernels}
    return {"cases": found}


def sleep(job: Job, llm: Any) -> Job:
    """Rounds, with sleep between them."""
    return collection_sleep.run(job, llm, runner_of(llm))


def start(job: Job, llm: Any) -> Job:  # noqa: ARG001 - what it says while it compiles is enough
    """Nothing."""
    return {}


def throughput(job: Job, llm: Any) -> Job:
    """Long prompts, and the time that they take."""
    return collection_rates.run(job, llm)


def main(path: Path) -> int:
    """Returns 0; what it found is beside the job."""

    def tell(found: Job) -> None:
        path.with_suffix(".found.json").write_text(json.dumps(found))

    end_with_parent()
    job: Job = json.loads(path.read_text())
    prepare(job.get("stand_ins", {}))
    if job["what"] == "data-parallel":
        tell(collection_parallel.run(job, options_of(job)))
        # Its engines' processes have ended; threads that heard from them may not end.
        sys.stdout.flush()
        os._exit(0)
    tell(_in_process(job, tell))
    return 0


def _in_process(job: Job, tell: Callable[[Job], None]) -> Job:
    from vllm import LLM

    began = time.monotonic()
    llm = LLM(**options_of(job))
    ready = time.monotonic()
    if turn := job.get("turn"):
        Path(f"{turn}.ready").touch()
        while not Path(f"{turn}.go").exists():
            time.sleep(0.05)
    if job.get("limit"):
        collection_rates.end_after(job, tell)
    if job.get("late"):
        delay_copies(runner_of(llm))
    works = {
        "answers": answers,
        "many": many,
        "sleep": sleep,
        "start": start,
        "trace": trace,
        "throughput": throughput,
    }
    found = works[job["what"]](job, llm)
    found["seconds"] = {"start": ready - began, "run": time.monotonic() - ready}
    config = llm.llm_engine.vllm_config
    if config.parallel_config.world_size == 1:  # Else it is in other processes.
        found["runner"] = type(runner_of(llm)).__module__
    found["blocks"] = config.cache_config.num_gpu_blocks
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
