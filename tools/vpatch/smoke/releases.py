"""What each release of vLLM needs to run the smoke's tiny Kimi-K2.5.

Tables, each line with its reason; a line holds from its release on, until a later one.
Read from the sources of v0.16.0, v0.17.1, v0.26.0, v0.32.0 and v0.33.0, and of the CPU builds
between them where a line says so. v0.16.0, v0.17.1 and v0.32.0 also ran on a CPU; v0.17.1, v0.26.0
and v0.33.0 on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.smoke.env_host import Device

Runner = Literal["v1", "v2"]
Schema = Literal["old", "new"]
CpuMla = Literal["expanded", "none", "kernel"]
Value = TypeVar("Value")

OLDEST, NEWEST = Version("0.16.0"), Version("0.33.0")

_RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


class _Refusal(NamedTuple):
    """Why a runner takes no drafter of a kind: a pattern that its message matches."""

    drafters: tuple[bool, ...]  # whether they have MLA
    message: str


Table = Sequence[tuple[str, Value]]

_DEFAULT_CUDA: Table[Runner] = (
    ("0.16", "v1"),  # MRV2 is opt-in; from v0.22 on for some architectures, never for an MoE Kimi
    ("0.29", "v2"),  # for every model
)
_CUDA_RUNNERS: Table[tuple[Runner, ...]] = (
    ("0.16", ("v1",)),  # MRV2 never asks the target for aux states
    ("0.17", ("v1", "v2")),
)
_CPU_RUNNERS: Table[tuple[Runner, ...]] = (
    ("0.16", ("v1",)),
    ("0.20", ()),  # drafts by itself, but never asks the target for aux states
    # MRV2 exists from v0.23 on and needs Triton's CPU backend, which no CPU build brings.
    ("0.22", ("v1",)),
)
_NOT_ON_CPU = "its CPU runner drafts, but never asks the target for aux hidden states"

_CPU_PLUGIN: Table[bool] = (
    ("0.16", True),  # the CPU runner asserts that there is no speculative config
    ("0.20", False),
)
_MODULE_SCAN: Table[bool] = (
    ("0.16", False),
    # On a CPU the worker reads `vars()` of every object of every module, and llvmlite's `ffi.lib`,
    # imported by the image processor in the same process, answers `__dict__` with a function. In
    # v0.32.0 and v0.33.0, not in v0.29.0; the guard harms none between.
    ("0.30", True),
)
_NATIVE_ROTARY: Table[bool] = (
    # The CPU's rotary kernel reads [tokens, heads, size] as [tokens x heads, size]: with plain
    # rotary frequencies a drafter with MLA guesses otherwise than its definition. Seen in v0.17.1
    # and v0.32.0, gone with PyTorch's own operations.
    ("0.16", True),
)
_CPU_MLA: Table[CpuMla] = (
    ("0.16", "expanded"),  # the series' drafter obeys VLLM_MLA_DISABLE
    ("0.18", "none"),  # upstream's does not, and finds no kernel
    ("0.28", "kernel"),  # of one head size, and of no block size that a Llama drafter shares
)
_SCHEMAS: Table[tuple[Schema, ...]] = (
    ("0.16", ("old",)),  # vLLM's own KimiK25Config
    # transformers' Kimi_K25Config: also takes the hub's files, which have the old schema. In V1 a
    # config of the new schema alone fails beside a drafter (no `media_placeholder_token_id`).
    ("0.32", ("old", "new")),
)
# What no series before v0.26.0's does.
_PICTURES: Table[bool] = (
    ("0.16", False),  # drafters embed a picture's placeholder, whatever their config says
    ("0.26", True),
)
_WHOLE: Table[bool] = (
    ("0.16", False),  # weights that a drafter's checkpoint lacks are what memory held
    ("0.26", True),
)
_REFUSALS: Table[_Refusal | None] = (
    ("0.16", _Refusal((False, True), "does not hand the target's aux hidden states")),
    # One KV-cache layout: MLA's and a Llama drafter's are two.
    ("0.17", _Refusal((False,), "takes one KV-cache layout")),
    ("0.18", None),  # v0.26.0 and v0.33.0 run a Llama drafter beside MLA
)
_CPU_VARIABLES: Table[Mapping[str, str]] = (
    ("0.16", {"TRITON_INTERPRET": "1"}),  # the kernels that verify drafts are Triton's
    # Looks for the names only, and stops without them. Not run.
    ("0.18", {"TRITON_INTERPRET": "1", "LD_PRELOAD": "libtcmalloc:libiomp"}),
    ("0.19", {"TRITON_INTERPRET": "1"}),  # warns
    ("0.20", {}),  # the kernels are in C++ where Triton has no CPU backend
)
_CPU_ALWAYS: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "",
    "TORCHINDUCTOR_VEC_ISA_OK": "0",  # finding out what the CPU has takes longer than it saves
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # two engines at once would share a core
    "VLLM_MLA_DISABLE": "1",  # attention on expanded heads
}
# What a CPU's kernel for MLA takes is a latent of 512 and 64 rotated values; the rest follows from
# how engine/drafters.py makes a drafter with MLA.
_KERNEL_SHAPE: Mapping[str, int] = {
    "hidden": 512,
    "q_rank": 512,
    "kv_rank": 512,
    "nope": 128,
    "rope": 64,
    "value": 128,
    "draft_heads": 8,
}
_CUDA_ALWAYS: Mapping[str, str] = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # or a missing flashinfer kills the engine
}


@dataclass(frozen=True)
class ReleaseFacts:
    """What a release needs.

    Attributes:
        version: The release.
        read: Whether its sources, or those of a later release, were read for these tables; if not,
            the facts are those of the newest release that was.
        needs_cpu_drafter: On a CPU, engine/cpu_drafter.py has to stand in.
        scans_modules: On a CPU, llvmlite has to be kept from the worker's look at all modules.
        native_rotary: On a CPU, rotary embeddings have to be computed by PyTorch's operations.
        cpu_mla: How MLA runs on a CPU: on expanded heads; not at all in a drafter; by a kernel.
        schemas: Of the target's config.json, those that the release reads; the usual one first.
        drafts_from_pictures: Patched, it hands a picture's embeddings to drafters that ask.
        wants_whole_drafters: Patched, it refuses a drafter's checkpoint that lacks weights.
        structured_output: The argument of SamplingParams for structured output.
    """

    version: Version
    read: bool
    needs_cpu_drafter: bool
    scans_modules: bool
    native_rotary: bool
    cpu_mla: CpuMla
    schemas: tuple[Schema, ...]
    drafts_from_pictures: bool
    wants_whole_drafters: bool
    structured_output: str = "structured_outputs"  # `guided_decoding` until v0.11

    @property
    def schema(self) -> Schema:
        """The schema in which the hub has Kimi-K2.5's config.json: every release reads it."""
        return self.schemas[0]

    def runners(self, device: Device) -> tuple[Runner, ...]:
        """The model runners that take an EAGLE-3 drafter; none where `not_on` says why."""
        return _at(self.version, _CUDA_RUNNERS if device == "cuda" else _CPU_RUNNERS)

    def not_on(self, device: Device) -> str | None:
        """Why no runner takes an EAGLE-3 drafter on this device."""
        return None if self.runners(device) else _NOT_ON_CPU

    def default_runner(self, device: Device) -> Runner:
        """What the release takes for a Kimi-K2.5 where no variable chooses."""
        return "v1" if device == "cpu" else _at(self.version, _DEFAULT_CUDA)

    def variables(self, device: Device, runner: Runner, *, mla: bool = False) -> Mapping[str, str]:
        """Environment variables that choose the runner and fit the device.

        Args:
            device: Where the engine runs.
            runner: The model runner.
            mla: Whether the drafter attends with MLA. What is compared with such a start, as one
                without a drafter, needs the same variables.
        """
        chosen = {_RUNNER_VARIABLE: "1" if runner == "v2" else "0"}
        if device == "cuda":
            return {**_CUDA_ALWAYS, **chosen}
        if mla and self.cpu_mla == "kernel":
            chosen["VLLM_MLA_DISABLE"] = "0"
        return {**_CPU_ALWAYS, **_at(self.version, _CPU_VARIABLES), **chosen}

    def lacks(self, mla: bool, device: Device) -> str | None:
        """Why a drafter of this kind cannot run on this device; None where it can."""
        if device == "cpu" and mla and self.cpu_mla == "none":
            return "its drafters with MLA need a kernel that it has on no CPU"
        return self.not_on(device)

    def shape_changes(self, mla: bool, device: Device) -> Mapping[str, int]:
        """What has to be laid over the device's Shape (engine/shapes.py) beside such a drafter."""
        return _KERNEL_SHAPE if device == "cpu" and mla and self.cpu_mla == "kernel" else {}

    def options(self, device: Device, *, images: bool = False) -> Mapping[str, Any]:  # noqa: ARG002
        """Arguments of ``LLM(...)``, by one name in all these releases.

        Args:
            device: Where the engine runs; so far no option depends on it.
            images: Whether prompts have images; else the vision tower is left out.
        """
        options: dict[str, Any] = {
            "trust_remote_code": True,  # the image processor of the checkpoint
            "disable_log_stats": False,  # or there are no counts of accepted tokens
        }
        if not images:
            # `language_model_only` is not in v0.16.
            options["limit_mm_per_prompt"] = {"vision_chunk": 0}
        return options

    def refuses(self, mla: bool, runner: Runner, device: Device) -> str | None:
        """Whether the patched release has to refuse a drafter that plain vLLM cannot run.

        Args:
            mla: Whether the drafter attends with MLA, as the target does.
            runner: The model runner.
            device: Where; MRV2 runs on no CPU.

        Returns:
            A pattern that the refusal's message matches, or None.
        """
        refusal = _at(self.version, _REFUSALS)
        if refusal is None or runner == "v1" or device == "cpu" or mla not in refusal.drafters:
            return None
        return refusal.message


def facts_of(version: Version) -> ReleaseFacts:
    """The facts of a release.

    Args:
        version: Of vLLM; a local part (``+kimi.1``) and a pre-release's part are of no account.

    Raises:
        UsageError: The release is older than the oldest one that the smoke runs on.
    """
    plain = Version(".".join(map(str, version.release)))
    if plain < OLDEST:
        raise UsageError(
            f"The smoke runs on vLLM {OLDEST} and newer, and this is {version}.",
            hint="Take a newer release; `vpatch releases` lists them.",
            code="release-too-old",
        )
    return ReleaseFacts(
        version=plain,
        read=plain.release[:2] <= NEWEST.release[:2],
        needs_cpu_drafter=_at(plain, _CPU_PLUGIN),
        scans_modules=_at(plain, _MODULE_SCAN),
        native_rotary=_at(plain, _NATIVE_ROTARY),
        cpu_mla=_at(plain, _CPU_MLA),
        schemas=_at(plain, _SCHEMAS),
        drafts_from_pictures=_at(plain, _PICTURES),
        wants_whole_drafters=_at(plain, _WHOLE),
    )


def _at(version: Version, table: Table[Value]) -> Value:
    return [value for since, value in table if Version(since) <= version][-1]
