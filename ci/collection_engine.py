"""One engine start for ci/collection_gpu.py: ``JOB.json``. Runs under vLLM's Python.

"what" of the job: `answers` runs requests and keeps tokens, logprobs and what was collected;
`many` takes 10,000 short ones (collection_many.py); `trace` sums up kernels by name, by the
profiler; `throughput` takes the time of long prompts.
"turn" of the job: it writes TURN.ready when the engine stands, and goes on when TURN.go is there.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import collection_many
from vpatch.smoke.engine.parent import end_with_parent
from vpatch.smoke.engine.prepare import prepare

Job = dict[str, Any]
REQUESTS, VOCABULARY = 64, 499
_TRACED = 5
_LATE_CYCLES = 40_000_000


def make(job: Job) -> Any:
    """The engine."""
    from vllm import LLM

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
    return LLM(**options)


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
    if job.get("late"):
        import torch

        # Each copy to the host begins long after the forwards behind it could.
        collector = runner_of(llm).hidden_states_collector
        collector._before_copy = lambda: torch.cuda._sleep(_LATE_CYCLES)
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


def throughput(job: Job, llm: Any) -> Job:
    """Runs of prompts without a shared prefix, one token generated; until all is written."""
    from vllm import SamplingParams

    chance = random.Random(10)  # noqa: S311
    collection = job.get("collection")
    extra = {"collect_hidden_states": True} if collection else None
    parameters = SamplingParams(
        temperature=0.0, ignore_eos=True, detokenize=False, max_tokens=1, extra_args=extra
    )
    folder = job.get("extract") or (collection or {}).get("dir")

    def run(count: int) -> tuple[float, Job]:
        prompts = [
            {"prompt_token_ids": [chance.randrange(4, VOCABULARY) for _ in range(job["prompt"])]}
            for _ in range(count)
        ]
        began = time.monotonic()
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        generated = time.monotonic() - began
        if collection:
            llm.collective_rpc("flush_hidden_states", timeout=120)
        if job.get("extract"):
            _wait_for_upstream(outputs)
        seconds = time.monotonic() - began
        held = sum(one.stat().st_size for one in Path(folder).glob("*")) if folder else 0
        if folder:
            for one in Path(folder).glob("*"):
                one.unlink()
        return seconds, {"bytes": held, "generated": generated}

    run(8)
    runs = [run(job["prompts"]) for _ in range(3)]
    rates = [job["prompts"] * job["prompt"] / seconds for seconds, _ in runs]
    return {"rates": rates, "rate": statistics.median(rates), "more": runs[-1][1]}


def _wait_for_upstream(outputs: list[Any]) -> None:
    """Its files are whole when their locks are free."""
    import fcntl

    for output in outputs:
        path = output.kv_transfer_params["hidden_states_path"]
        with Path(f"{path}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)


def main(path: Path) -> int:
    """Returns 0; what it found is beside the job."""
    end_with_parent()
    job: Job = json.loads(path.read_text())
    prepare(job.get("stand_ins", {}))
    began = time.monotonic()
    llm = make(job)
    ready = time.monotonic()
    if turn := job.get("turn"):
        Path(f"{turn}.ready").touch()
        while not Path(f"{turn}.go").exists():
            time.sleep(0.05)
    work = {"answers": answers, "many": many, "trace": trace, "throughput": throughput}[job["what"]]
    found = work(job, llm)
    found["seconds"] = {"start": ready - began, "run": time.monotonic() - ready}
    config = llm.llm_engine.vllm_config
    if config.parallel_config.world_size == 1:  # Else it is in other processes.
        found["runner"] = type(runner_of(llm)).__module__
    found["blocks"] = config.cache_config.num_gpu_blocks
    path.with_suffix(".found.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
