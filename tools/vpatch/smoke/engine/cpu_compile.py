"""Lets the CPU compile as a GPU does: piece by piece, artifacts under VLLM_CACHE_ROOT.

The CPU platform turns that mode into one that never reads vLLM's own compile cache, and the mode's
graph passes name CUDA operators.
"""

from __future__ import annotations

from typing import Any

from vllm.compilation.passes.pass_manager import PostGradPassManager
from vllm.config import CompilationMode
from vllm.platforms.cpu import CpuPlatform


def use_vllm_compile() -> None:
    """Patches the platform and the passes in this process."""
    check = CpuPlatform.check_and_update_config.__func__

    def check_and_keep_mode(cls: Any, vllm_config: Any) -> None:
        check(cls, vllm_config)
        vllm_config.compilation_config.mode = CompilationMode.VLLM_COMPILE
        vllm_config.compilation_config.compile_sizes = []

    CpuPlatform.check_and_update_config = classmethod(check_and_keep_mode)
    PostGradPassManager.__call__ = lambda _self, _graph: None
