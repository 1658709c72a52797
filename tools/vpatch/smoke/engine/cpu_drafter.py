"""Lets vLLM's CPU runner draft: a stand-in for a GPU in tests, for releases that refuse it there.

Up to v0.19 `CPUModelRunner` asserts that there is no speculative config. It inherits everything
that drafts from the GPU runner, though, so little is missing. Whatever is under test - the
drafter's construction and loading, the check of the target's interface and its error text, the
aux states' way into the drafter - is the GPU runner's own code here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.v1.spec_decode.eagle import EagleProposer
from vllm.v1.utils import CpuGpuBuffer
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.gpu_model_runner import GPUModelRunner


def register() -> None:
    """Patches the two runner classes in this process; a `vllm.general_plugins` entry point."""
    if getattr(CPUModelRunner, "drafts", False):
        return
    CPUModelRunner.drafts = True
    _hide_the_speculative_config_while_the_cpu_runner_asserts()
    _part_the_host_from_the_device()
    CPUModelRunner.load_model = _load_model
    CPUModelRunner._copy_draft_token_ids_to_cpu = _copy_draft_token_ids_to_cpu
    # The CPU's rotary kernel reads [tokens, heads, size] as [tokens x heads, size].
    RotaryEmbedding.forward_cpu = RotaryEmbedding.forward_native


def _hide_the_speculative_config_while_the_cpu_runner_asserts() -> None:
    gpu_init, cpu_init = GPUModelRunner.__init__, CPUModelRunner.__init__

    def init_as_gpu(self: Any, *args: Any, **kwargs: Any) -> None:
        gpu_init(self, *args, **kwargs)
        self.hidden_speculative_config, self.speculative_config = self.speculative_config, None

    def init_as_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        cpu_init(self, *args, **kwargs)
        self.speculative_config = self.hidden_speculative_config
        if self.speculative_config is not None:
            for buffer in vars(self.drafter).values():
                if isinstance(buffer, CpuGpuBuffer):
                    buffer.gpu = buffer.cpu

    GPUModelRunner.__init__ = init_as_gpu
    CPUModelRunner.__init__ = init_as_cpu


def _part_the_host_from_the_device() -> None:
    propose = EagleProposer.propose

    def propose_on_a_copy(self: Any, *, common_attn_metadata: Any, **arguments: Any) -> Any:
        # Drafting moves the lengths on the device and their copy on the host: one tensor here.
        common_attn_metadata.seq_lens = common_attn_metadata.seq_lens.clone()
        return propose(self, common_attn_metadata=common_attn_metadata, **arguments)

    EagleProposer.propose = propose_on_a_copy


@contextlib.contextmanager
def _no_memory_profiler() -> Iterator[SimpleNamespace]:
    """There is no device memory to profile."""
    yield SimpleNamespace(consumed_memory=0)


def _load_model(self: Any, *args: Any, **kwargs: Any) -> None:
    gpu_model_runner.DeviceMemoryProfiler = _no_memory_profiler
    GPUModelRunner.load_model(self, *args, **kwargs)


def _copy_draft_token_ids_to_cpu(
    self: Any, _scheduler_output: object, zeros_only: bool = False
) -> None:
    # The GPU runner's, without CUDA's streams.
    self._draft_token_req_ids = self.input_batch.req_ids.copy()
    drafts = self._draft_token_ids
    if torch.is_tensor(drafts):
        self.draft_token_ids_cpu[: len(drafts)] = 0 if zeros_only else drafts
