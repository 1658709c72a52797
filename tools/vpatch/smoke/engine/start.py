"""One start of a vLLM engine in this process, and what it answers: ``-m ... JOB.json``.

The job names a target, possibly a drafter, the options for ``LLM(...)`` and phases: sets of
requests that are run one after the other. ``outputs.json`` beside it gets the answers, or the error
that ended the start; ``rows.safetensors`` what the drafter got (rows.py).
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy
from PIL import Image
from vllm import LLM, SamplingParams

from vpatch.smoke.engine.parent import end_with_parent
from vpatch.smoke.engine.prepare import error_of, prepare
from vpatch.smoke.engine.rows import Recorder

Job = dict[str, Any]
_GREEDY = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
_PICTURE = 56
# The driver takes back what an ended process had a moment later.
_SETTLES_S = 1.0
_HELD: list[object] = []


def wait_for_others(lock: str | None) -> object:
    """Waits for other engines to end: what one frees disturbs another one's memory profiling.

    What is imported before, is imported while the other one runs. The lock goes when this process
    has ended, and its memory on the GPU with it.

    Returns:
        What holds the lock: to be kept.
    """
    if lock is None:
        return None
    file = Path(lock).open("w")  # noqa: SIM115 - until the process ends
    fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(_SETTLES_S)
    return file


def options_of(job: Job) -> dict[str, Any]:
    """The arguments of ``LLM(...)``."""
    options: dict[str, Any] = {"model": job["target"], "seed": 0, **job["options"]}
    if job.get("drafter"):
        options["speculative_config"] = {
            "method": "eagle3",
            "model": job["drafter"],
            "num_speculative_tokens": job["drafts"],
            **job.get("speculative", {}),
        }
    return options


def prompt_of(tokens: list[int] | str, placeholder: int | None) -> dict[str, Any]:
    """A text, or token ids with a picture of noise for each placeholder among them."""
    if isinstance(tokens, str):
        return {"prompt": tokens}
    prompt: dict[str, Any] = {"prompt_token_ids": tokens}
    if placeholder is not None and (count := tokens.count(placeholder)):
        noise = numpy.random.default_rng(len(tokens))
        pixels = noise.integers(0, 256, (count, _PICTURE, _PICTURE, 3), dtype=numpy.uint8)
        chunks = [
            {"type": "image", "image": Image.fromarray(each), "uuid": None} for each in pixels
        ]
        prompt["multi_modal_data"] = {"vision_chunk": chunks}
    return prompt


class Engine:
    """A running engine whose steps are taken one by one."""

    def __init__(self, job: Job) -> None:
        self._media = job.get("media")
        self._llm = LLM(**options_of(job))
        self._engine = self._llm.llm_engine
        self._next = 0

    @property
    def runner(self) -> Any:
        """The model runner; the engine is in this process."""
        executor = self._engine.engine_core.engine_core.model_executor
        return executor.driver_worker.worker.model_runner

    def run(self, phase: Job) -> dict[str, Any]:
        """Runs a phase's requests, each added before the step that it names.

        Returns:
            "requests": their numbers in rows.safetensors; "prompts": as the engine saw them, media
            in full length; "tokens" and "texts": the answers; "best": where logprobs were asked
            for, by position the two best tokens and the nats between them; "steps"; "seconds".
        """
        began = time.monotonic()
        count = len(phase["prompts"])
        first, self._next = self._next, self._next + count
        waiting = sorted(enumerate(phase.get("arrivals") or [0] * count), key=lambda one: one[1])
        answers: dict[int, Any] = {}
        step = 0
        while waiting or self._engine.has_unfinished_requests():
            while waiting and waiting[0][1] <= step:
                number = waiting.pop(0)[0]
                self._add(first + number, phase, number)
            for output in self._engine.step():
                if output.finished:
                    answers[int(output.request_id.split("-")[0]) - first] = output
            step += 1
        ordered = [answers[number] for number in range(count)]
        _check_whole(phase, ordered)
        return {
            "requests": list(range(first, first + count)),
            "prompts": [list(answer.prompt_token_ids) for answer in ordered],
            "tokens": [list(answer.outputs[0].token_ids) for answer in ordered],
            "texts": [answer.outputs[0].text for answer in ordered],
            "best": [_two_best(answer.outputs[0].logprobs) for answer in ordered],
            "steps": step,
            "seconds": time.monotonic() - began,
        }

    def drafting(self) -> dict[str, Any]:
        """The engine's own counts: "drafts", "drafted", "accepted", and "by_place" in the draft."""
        names = {
            "vllm:spec_decode_num_drafts": "drafts",
            "vllm:spec_decode_num_draft_tokens": "drafted",
            "vllm:spec_decode_num_accepted_tokens": "accepted",
            "vllm:spec_decode_num_accepted_tokens_per_pos": "by_place",
        }
        return {
            names[metric.name]: getattr(metric, "values", None) or getattr(metric, "value", 0)
            for metric in self._llm.get_metrics()
            if metric.name in names
        }

    def _add(self, number: int, phase: Job, index: int) -> None:
        sampling = {**_GREEDY, "max_tokens": phase["tokens"], **phase.get("sampling", {})}
        if seeds := phase.get("seeds"):
            sampling["seed"] = seeds[index]
        prompt = prompt_of(phase["prompts"][index], self._media)
        self._engine.add_request(str(number), prompt, _parameters(sampling))


def _check_whole(phase: Job, answers: list[Any]) -> None:
    """An answer that ends before its length was not asked to."""
    if not phase.get("sampling", {}).get("ignore_eos", True):
        return
    for number, answer in enumerate(answers):
        length = len(answer.outputs[0].token_ids)
        if length != phase["tokens"]:
            raise AssertionError(
                f"{phase['name']} request {number}: {length} tokens of {phase['tokens']} came"
            )


def _two_best(logprobs: Any) -> list[dict[str, Any]]:
    found = []
    for choices in logprobs or []:
        (one, best), (other, second) = sorted(
            choices.items(), key=lambda choice: choice[1].logprob, reverse=True
        )[:2]
        found.append({"tokens": [one, other], "margin": best.logprob - second.logprob})
    return found


def _parameters(sampling: dict[str, Any]) -> SamplingParams:
    if structure := sampling.pop("structured_outputs", None):
        # Called guided decoding before v0.12.
        from vllm.sampling_params import StructuredOutputsParams

        sampling["structured_outputs"] = StructuredOutputsParams(**structure)
    return SamplingParams(**sampling)


def run(job: Job, folder: Path) -> dict[str, Any]:
    """Starts the engine and runs every phase."""
    began = time.monotonic()
    engine = Engine(job)
    # Workers in processes of their own cannot be looked into.
    about = _about(engine.runner) if job["look"] else {}
    recorder = None
    if job.get("drafter") and job["record"]:
        recorder = Recorder(engine.runner, embeds=job.get("embeds", False))
    ready = time.monotonic()
    phases = {phase["name"]: engine.run(phase) for phase in job["phases"]}
    if recorder is not None:
        recorder.save(folder / "rows.safetensors")
    return {
        "phases": phases,
        "seconds": {"start": ready - began, "run": time.monotonic() - ready},
        "drafting": engine.drafting(),
        **about,
    }


def _about(runner: Any) -> dict[str, Any]:
    return {
        "target": type(runner.model).__name__,
        "drafter": _drafter_name(runner),
        "runner": f"{type(runner).__module__}.{type(runner).__name__}",
        "modules": sorted({name.split(".")[0] for name, _ in runner.model.named_parameters()}),
    }


def _drafter_name(runner: Any) -> str | None:
    drafter = getattr(runner, "speculator", None) or getattr(runner, "drafter", None)
    return None if drafter is None else type(drafter.model).__name__


def main(path: Path) -> int:
    """Returns 0 when the engine answered, 1 when it did not."""
    end_with_parent()
    job: Job = json.loads(path.read_text())
    prepare(job)
    outputs: dict[str, Any]
    _HELD.append(wait_for_others(job.get("lock")))
    began = time.monotonic()
    try:
        outputs = run(job, path.parent)
    except BaseException as error:  # the error is what this start has to tell
        outputs = {"error": error_of(error), "seconds": {"error": time.monotonic() - began}}
        raise
    finally:
        (path.parent / "outputs.json").write_text(json.dumps(outputs))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
