"""One start of a real vLLM engine on the CPU, under the engine environment's Python.

``python -m engine.engine_start JOB.json`` runs the prompts of the job greedily and writes
``outputs.json`` and, with a drafter, ``rows.safetensors`` into the job's folder: the hidden states
that the drafter gets in each step, beside each row's request, position and input token, the tokens
that it guesses, and the embeddings of media. A job that expects an error gets its text as result.
"""

from __future__ import annotations

import ast
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.config import CompilationMode, speculative
from vllm.model_executor.models.interfaces import supports_eagle3
from vllm.platforms.cpu import CpuPlatform

from vpatch.smoke.engine import cpu_drafter

Job = dict[str, Any]


class Rows:
    """Collects what the drafter gets and what it guesses.

    Per row: "states", "request", "position", "token", "step". Per request of a step: "guesses",
    "guesses_request", "guesses_step". Per medium, in order: "media".
    """

    def __init__(self, runner: Any) -> None:
        self.collected: dict[str, list[torch.Tensor]] = {}
        self._steps = 0
        self._runner = runner
        self._propose = runner.drafter.propose
        runner.drafter.propose = self._collecting
        self._embed_media = runner.model.embed_multimodal
        runner.model.embed_multimodal = self._on_media
        inner = runner.drafter.model.model
        self._fc = inner.fc
        self._fc_inputs: list[torch.Tensor] = []
        self._norms_first = hasattr(inner, "input_norm") and (inner.input_norm or inner.fc_norm)
        self._fc.register_forward_pre_hook(self._on_fc)

    def _collecting(self, **arguments: Any) -> Any:
        tokens = arguments["target_token_ids"]
        starts = arguments["common_attn_metadata"].query_start_loc_cpu
        requests = [int(name.split("-")[0]) for name in self._runner.input_batch.req_ids]
        counts = starts[1 : len(requests) + 1] - starts[: len(requests)]
        self._keep("states", arguments["target_hidden_states"])
        self._keep("request", torch.tensor(requests).repeat_interleave(counts))
        self._keep("position", arguments["target_positions"])
        self._keep("token", tokens)
        self._keep("step", torch.full_like(tokens, self._steps))
        self._fc_inputs.clear()
        guesses = self._propose(**arguments)
        self._check_fc(self.collected["states"][-1])
        self._keep("guesses", guesses)
        self._keep("guesses_request", torch.tensor(requests))
        self._keep("guesses_step", torch.full((len(requests),), self._steps))
        self._steps += 1
        return guesses

    def _check_fc(self, states: torch.Tensor) -> None:
        # Shapes too: on some CPUs a linear layer takes a wrong width and reshapes it.
        (entered,) = self._fc_inputs
        if entered.shape != states.shape or self._fc.input_size != states.shape[-1]:
            raise AssertionError(f"fc takes {self._fc.input_size}, got {list(entered.shape)}")
        if not self._norms_first and not torch.equal(entered, states):
            raise AssertionError("what enters fc is not what the target handed over")

    def _on_media(self, **arguments: Any) -> Any:
        embeddings = self._embed_media(**arguments)
        for embedding in embeddings:
            self._keep("media", embedding)
        return embeddings

    def _on_fc(self, _module: object, inputs: tuple[torch.Tensor, ...]) -> None:
        self._fc_inputs.append(inputs[0].clone())

    def _keep(self, name: str, rows: torch.Tensor) -> None:
        # The engine writes to these tensors again in the next step.
        self.collected.setdefault(name, []).append(rows.detach().clone())

    def save(self, path: Path) -> None:
        save_file({name: torch.cat(parts) for name, parts in self.collected.items()}, path)


def start(job: Job) -> LLM:
    options: dict[str, Any] = {
        "model": job["target"],
        "dtype": "float32",
        "max_model_len": 128,
        "max_num_seqs": 8,
        "seed": 0,
        "enforce_eager": not job.get("compile", False),
        "enable_prefix_caching": False,
        "trust_remote_code": True,  # the stub image processor of the test's own checkpoint
    }
    if job.get("drafter"):
        options["speculative_config"] = {
            "method": "eagle3",
            "model": job["drafter"],
            "num_speculative_tokens": 3,
        }
    return LLM(**options | job.get("options", {}))


def use_vllm_compile() -> None:
    """Compiles as on a GPU: piece by piece, artifacts under VLLM_CACHE_ROOT.

    The CPU platform turns this mode into one that never reads vLLM's own compile cache, and the
    mode's graph passes name CUDA operators.
    """
    check = CpuPlatform.check_and_update_config.__func__

    def check_and_keep_mode(cls: Any, vllm_config: Any) -> None:
        check(cls, vllm_config)
        vllm_config.compilation_config.mode = CompilationMode.VLLM_COMPILE
        vllm_config.compilation_config.compile_sizes = []

    CpuPlatform.check_and_update_config = classmethod(check_and_keep_mode)
    PostGradPassManager.__call__ = lambda _self, _graph: None


def use_the_cache_key_of(source: Path) -> None:
    """Puts another vllm/config/speculative.py's `compute_hash` in the place of this one's."""
    classes = [n for n in ast.parse(source.read_text()).body if isinstance(n, ast.ClassDef)]
    (config,) = [node for node in classes if node.name == "SpeculativeConfig"]
    (function,) = [n for n in config.body if getattr(n, "name", "") == "compute_hash"]
    found: dict[str, Any] = {}
    module = ast.Module([function], type_ignores=[])
    exec(compile(module, str(source), "exec"), vars(speculative), found)  # noqa: S102 - vLLM's own
    speculative.SpeculativeConfig.compute_hash = found["compute_hash"]


def prompt_of(tokens: list[int], placeholder: int) -> dict[str, Any]:
    """A prompt with a picture of noise for each placeholder in it."""
    prompt: dict[str, Any] = {"prompt_token_ids": tokens}
    if count := tokens.count(placeholder):
        noise = numpy.random.default_rng(len(tokens))
        pixels = noise.integers(0, 256, (count, 56, 56, 3), dtype=numpy.uint8)
        chunks = [
            {"type": "image", "image": Image.fromarray(each), "uuid": None} for each in pixels
        ]
        prompt["multi_modal_data"] = {"vision_chunk": chunks}
    return prompt


def runner_of(llm: LLM) -> Any:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def run(job: Job, folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    llm = start(job)
    runner = runner_of(llm)
    rows = Rows(runner) if job.get("drafter") else None
    prompts = [prompt_of(tokens, job["media"]) for tokens in job["prompts"]]
    ready = time.monotonic()
    greedy = SamplingParams(
        temperature=0, max_tokens=job["tokens"], ignore_eos=True, detokenize=False
    )
    answers = llm.generate(prompts, greedy, use_tqdm=False)
    if rows is not None:
        rows.save(folder / "rows.safetensors")
    return {
        "prompts": [list(answer.prompt_token_ids) for answer in answers],  # media in full length
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "seconds": {"start": ready - began, "generate": time.monotonic() - ready},
        "parameters": sorted({name.split(".")[0] for name, _ in runner.model.named_parameters()}),
        "target": type(runner.model).__name__,
        "supports_eagle3": supports_eagle3(runner.model),
    }


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    cpu_drafter.register()
    if job.get("compile"):
        use_vllm_compile()
    if "cache_key_of" in job:
        use_the_cache_key_of(Path(job["cache_key_of"]))
    try:
        outputs = run(job, path.parent)
    except Exception as error:
        outputs = {"error": {"type": type(error).__name__, "message": str(error)}}
        if not job.get("expect_error"):
            raise
    (path.parent / "outputs.json").write_text(json.dumps(outputs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
