"""Rows of an engine that slept in between, for ci/collection_gpu.py. It needs a GPU.

    python ci/collection_gpu.py sleep

The same 8 requests are collected while the engine is awake, and after it slept at level 1, at level
1 and woke in parts, and at level 2 with its weights loaded again: rows are those of the first
round, bit by bit, and the buffer lies where it lay. Nothing waits for the files before the engine
falls asleep, and each copy to the host is late: one is under way then.

With --cpu, where there is no sleep mode, the requests run twice without sleep: what is shown is
that this script compares what it says.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from collection_answers import Place

Job = dict[str, Any]
LAYERS = [0, 1, 3, 5, 7, 8]
_REQUESTS, _VOCABULARY = 8, 499
ROUNDS: dict[str, list[list[Any]]] = {
    "awake": [],
    "level 1": [["sleep", 1], ["wake", None]],
    "level 1, in parts": [["sleep", 1], ["wake", ["weights"]], ["wake", ["kv_cache"]]],
    "level 2": [["sleep", 2], ["wake", None], ["reload", None]],
    "level 2, in parts": [
        ["sleep", 2],
        ["wake", ["weights"]],
        ["reload", None],
        ["wake", ["kv_cache"]],
    ],
}
_ON_A_CPU: dict[str, list[list[Any]]] = {"awake": [], "again": []}


def run(job: Job, llm: Any, runner: Any) -> Job:
    """All rounds; what was collected in each is read when the engine is awake again."""
    chance = random.Random(13)  # noqa: S311 - numbers, no secrets
    prompts = [
        {"prompt_token_ids": [chance.randrange(4, _VOCABULARY) for _ in range(length)]}
        for length in chance.choices([3, 17, 60, 150], k=_REQUESTS)
    ]
    found: dict[str, Job] = {}
    left_out: list[str] = []
    before: str | None = None
    for name, acts in job["rounds"]:
        if any(act == "reload" for act, _ in acts) and not hasattr(runner, "reload_weights"):
            left_out.append(name)
            continue
        for act, how in acts:
            _do(llm, act, how)
        if before is not None:
            found[before] |= _kept(llm, found[before])
        found[name] = _collect(llm, prompts)
        found[name]["address"] = runner.get_model().hidden_states_buffer.tensor.data_ptr()
        before = name
    if before is not None:
        found[before] |= _kept(llm, found[before])
    folder = Path(job["collection"]["dir"])
    for one in found.values():
        one["rows"] = {label: _digest(folder / file) for label, file in one["files"].items()}
    return {"rounds": found, "left_out": left_out}


def _do(llm: Any, act: str, how: Any) -> None:
    if act == "sleep":
        llm.sleep(level=how)
    elif act == "wake":
        llm.wake_up(tags=how)
    else:
        llm.collective_rpc("reload_weights")


def _collect(llm: Any, prompts: list[Any]) -> Job:
    from vllm import SamplingParams

    parameters = [
        SamplingParams(
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
            max_tokens=9,
            extra_args={"collect_hidden_states": True, "collect_label": str(number)},
        )
        for number in range(len(prompts))
    ]
    outputs = llm.generate(prompts, parameters, use_tqdm=False)
    return {
        "files": {
            str(number): (output.kv_transfer_params or {})["hidden_states_file"]
            for number, output in enumerate(outputs)
        }
    }


def _kept(llm: Any, one: Job) -> Job:
    """What the writer has counted so far: `one` is on the disk then."""
    flushed = llm.collective_rpc("flush_hidden_states", timeout=60)
    return {"files": one["files"], "counts": [each for each in flushed if each]}


def _digest(path: Path) -> list[Any]:
    """Rows, and a hash of all tensors: the header names the request, which is another one."""
    raw = path.read_bytes()
    body = 8 + int.from_bytes(raw[:8], "little")
    rows = json.loads(raw[8:body])["hidden_states"]["shape"][0]
    return [rows, hashlib.sha256(raw[body:]).hexdigest()]


def sleep(place: Place, modes: list[str], runners: list[str]) -> Job:
    """One engine after the other: what another one takes meanwhile is no memory that sleep left."""
    checks: Job = {}
    rounds = _ON_A_CPU if place.cpu else ROUNDS
    for runner in runners:
        for mode in modes:
            name = f"sleep {runner}/{mode}"
            out = place.work / f"out-sleep-{runner}-{mode}"
            # A drafter's weights are not those that are loaded again. A ring with room for all: who
            # waits for the writer is in other batches, which round otherwise.
            job = place.base(mode) | {
                "what": "sleep",
                "drafter": None,
                "rounds": list(rounds.items()),
                "late": not place.cpu,
                "collection": {"layers": LAYERS, "dir": str(out), "ring_gib": 0.25},
            }
            if not place.cpu:
                job["options"] |= {"enable_sleep_mode": True}
            found = place.run(name, job, runner, False)
            error = {"ok": False, "error": found.get("error")}
            checks[name] = error if "error" in found else judge(found, len(rounds))
            place.keep(checks)
    return checks


def judge(found: Job, rounds: int) -> Job:
    """Whether each round has the first one's rows, at the first one's address."""
    first = found["rounds"]["awake"]
    other = {
        name: sorted(label for label, rows in one["rows"].items() if rows != first["rows"][label])
        for name, one in found["rounds"].items()
    }
    moved = [name for name, one in found["rounds"].items() if one["address"] != first["address"]]
    failed = [each["failed"] for one in found["rounds"].values() for each in one["counts"]]
    count = sum(rows for rows, _ in first["rows"].values())
    return {
        "rounds": list(found["rounds"]),
        "left_out": found["left_out"],
        "rows_of_a_round": count,
        "other_rows": {name: labels for name, labels in other.items() if labels},
        "moved": moved,
        "ok": not any(other.values())
        and not moved
        and not any(failed)
        and len(first["rows"]) == _REQUESTS
        and len(found["rounds"]) + len(found["left_out"]) == rounds
        and len(found["rounds"]) > 1,
    }
