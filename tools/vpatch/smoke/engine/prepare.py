"""What comes before an engine's start, and what is told of an error; without torch and vLLM."""

from __future__ import annotations

from typing import Any

Job = dict[str, Any]


def prepare(job: Job) -> None:
    """What stands in for a GPU, where the job runs on a CPU."""
    if job.get("plugin"):
        from vpatch.smoke.engine import cpu_drafter

        cpu_drafter.register()
    if job.get("guard_scan"):
        _hide_from_scans()
    if job.get("native_rotary"):
        from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

        RotaryEmbedding.forward_cpu = RotaryEmbedding.forward_native
    if job.get("compile"):
        from vpatch.smoke.engine import cpu_compile

        cpu_compile.use_vllm_compile()


def _hide_from_scans() -> None:
    """Gives llvmlite's library no attributes of Python's own names.

    It answers any name with a function; a vLLM whose CPU worker reads `vars()` of every object of
    every module then takes that function for the object's `__dict__`.
    """
    from llvmlite.binding import ffi

    answer = ffi._lib_wrapper.__getattr__

    def answer_but_dunders(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(self, name)

    ffi._lib_wrapper.__getattr__ = answer_but_dunders


def error_of(error: BaseException) -> dict[str, str]:
    """Its type, and its message with those of its causes."""
    messages, each = [str(error)], error
    while (cause := each.__cause__ or each.__context__) is not None:
        messages.append(str(cause))
        each = cause
    return {"type": type(error).__name__, "message": "\n".join(messages)}
