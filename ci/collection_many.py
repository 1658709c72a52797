"""10,000 short requests through one engine that collects: do counts add up, is memory flat?

    python ci/collection_gpu.py [--cpu] many

The engine's side (`run`) answers them, some at a time, and looks at the memory of its own process
and of the writer's now and then; `judge` reads what lies in the folder afterwards. An engine that
does not collect runs the same requests: what its memory grows by is not the collection's.
"""

from __future__ import annotations

import json
import random
import struct
from array import array
from pathlib import Path
from typing import Any

Job = dict[str, Any]
REQUESTS, EVERY, IN_FLIGHT = 10_000, 1_000, 64
_VOCABULARY = 499
# Of a process, from the first look on. Allocators keep some MB, and no object stays; one row of the
# tiny model that each of 9,000 requests left would be 9 MB.
_MOST_GROWTH = 6 << 20


def memory_of(pid: int | str) -> int:
    """The bytes of a process that are in memory and its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"/proc/{pid}/status has no RssAnon")


def run(job: Job, llm: Any, collector: Any) -> Job:
    """Answers all requests; the answers go to a file, so that they take no memory here."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    chance = random.Random(11)  # noqa: S311 - numbers, no secrets
    extra = {"collect_hidden_states": True} if job.get("collection") else None
    looks: dict[str, list[int]] = {"engine": [], "writer": []}
    added = done = 0
    with Path(job["answers"]).open("w") as answers:
        while done < job["requests"]:
            while added < job["requests"] and added - done < IN_FLIGHT:
                prompt = [chance.randrange(4, _VOCABULARY) for _ in range(chance.randrange(1, 9))]
                asked = SamplingParams(
                    temperature=0.0,
                    ignore_eos=True,
                    detokenize=False,
                    max_tokens=chance.randrange(1, 4),
                    extra_args=extra,
                )
                engine.add_request(str(added), {"prompt_token_ids": prompt}, asked)
                added += 1
            for output in engine.step():
                if not output.finished:
                    continue
                done += 1
                file = (output.kv_transfer_params or {}).get("hidden_states_file")
                tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids]
                answers.write(json.dumps([file, tokens]) + "\n")
                if done % EVERY == 0:
                    looks["engine"].append(memory_of("self"))
                    if collector is not None:
                        looks["writer"].append(memory_of(collector._writer.pid))
    found: Job = {"done": done, "memory": looks}
    if collector is not None:
        found["flushed"] = llm.collective_rpc("flush_hidden_states", timeout=120)
    return found


def judge(found: Job, plain: Job, answers: Path, folder: Path) -> Job:
    """Every request has one file with its tokens, and nothing else is there.

    Args:
        found: Of the engine that collects.
        plain: Of the one that does not.
        answers: What it wrote of its answers.
        folder: What it collected.
    """
    left = {path.name for path in folder.iterdir()}
    rows, wrong = 0, 0
    files = 0
    with answers.open() as lines:
        for line in lines:
            file, tokens = json.loads(line)
            files += 1
            rows += len(tokens) - 1
            if file not in left or tokens_of(folder / file) != tokens[:-1]:
                wrong += 1
            left.discard(file)
    flushed = next(each for each in found["flushed"] if each)
    adds_up = (flushed["rows"], flushed["files"], flushed["failed"]) == (rows, files, 0)
    growth = {name: looks[-1] - looks[0] for name, looks in found["memory"].items()}
    growth["plain engine"] = plain["memory"]["engine"][-1] - plain["memory"]["engine"][0]
    flat = growth["writer"] <= _MOST_GROWTH
    flat = flat and growth["engine"] - max(growth["plain engine"], 0) <= _MOST_GROWTH
    return {
        "requests": found["done"],
        "rows": rows,
        "wrong": wrong,
        "left_over": sorted(left)[:5],
        "adds_up": adds_up,
        "growth_bytes": growth,
        "memory": found["memory"],
        "ok": adds_up and flat and not wrong and not left and files == found["done"] > 0,
    }


def tokens_of(path: Path) -> list[int]:
    """The token ids in a file, by its header."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    start, end = json.loads(data[8 : 8 + size])["token_ids"]["data_offsets"]
    return array("q", data[8 + size :][start:end]).tolist()
