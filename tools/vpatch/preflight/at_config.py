"""What is refused at the config, in the order in which an engine start meets it."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight import aux_layers, config_class
from vpatch.preflight.case import Case
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.target import KNOWN_TEXT_MODELS, heads_of
from vpatch.preflight.verdict import Problem, Remedy, When

_PATCH = Remedy("release", "the patched release")
_QUANTISED = (
    *("awq", "awq_marlin", "fp8", "fbgemm_fp8", "modelopt", "modelopt_fp4", "modelopt_mxfp8"),
    *("modelopt_mixed", "gguf", "gptq", "gptq_marlin", "bitsandbytes", "compressed-tensors"),
    *("experts_int8", "quark", "moe_wna16", "mxfp4", "mxfp8", "torchao", "auto-round"),
    *("auto_round", "inc", "petit_nvfp4", "cpu_awq", "fp_quant"),
)


def problems(case: Case) -> Iterator[Problem]:
    """Every refusal that applies; a user meets the first."""
    yield from _options(case)
    yield from config_class.problems(case)
    yield from _quantisation(case)
    yield from _ranks(case, "its", heads_of(case.drafter.config))
    yield from _pipeline(case)
    if not _accepts(case):
        yield Problem(
            "target-accepted",
            "error",
            "config",
            f"this release has a list of targets for EAGLE-3 that {case.target.model_type} is "
            "not on; behind it wait an AttributeError and a model without the interface",
            text=("is only supported for", f"model_type='{case.target.model_type}'"),
            remedy=_PATCH,
            topic="eagle3-interface",
        )
    if case.release.checks:
        yield from aux_layers.problems(case)
    yield from _context(case)
    yield from _ranks(case, "the target's", case.target.heads)


def _accepts(case: Case) -> bool:
    release = case.release
    if case.target.model_type not in KNOWN_TEXT_MODELS:
        return True  # not this repository's to say
    return release.accepts_kimi


def _options(case: Case) -> Iterator[Problem]:
    given = next((name for name in (NUMBERING, IDS) if case.options.get(name)), None)
    if given is not None and not case.release.options:
        yield Problem(
            "options",
            "error",
            "config",
            f"--speculative-config has no {given} in this release",
            text=("Unexpected keyword argument",),
            remedy=_PATCH,
            topic="aux-layers",
        )


def _quantisation(case: Case) -> Iterator[Problem]:
    method = case.drafter.quantization
    if method is not None and method not in _QUANTISED:
        yield Problem(
            "quantisation",
            "error",
            "config",
            f"vLLM has no quantisation {method}",
            text=(f"Unknown quantization method: {method}",),
        )


def _ranks(case: Case, whose: str, heads: int) -> Iterator[Problem]:
    ranks = case.parallel.tensor
    if heads % ranks == 0:
        return
    fewer = next(number for number in range(ranks, 0, -1) if heads % number == 0)
    yield Problem(
        "tensor-parallel",
        "error",
        "config",
        f"{whose} {heads} attention heads cannot be shared out among {ranks} ranks",
        text=(
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel size "
            f"({ranks})",
        ),
        remedy=Remedy("option", f"--tensor-parallel-size {fewer}"),
    )


def _pipeline(case: Case) -> Iterator[Problem]:
    stages = case.parallel.pipeline
    if stages == 1 or not case.drafter.uses_aux:
        return
    if case.release.pipeline == "lost":
        yield Problem(
            "pipeline-parallel",
            "error",
            "first-step",
            "only the last stage's layers give states, and the others are lost without a word",
            text=("shapes cannot be multiplied",),
            remedy=Remedy("option", "--pipeline-parallel-size 1"),
            topic="aux-layers",
        )
        return
    refused: tuple[str, ...] = ("Pipeline parallelism is not supported for this model.",)
    when: When = "config"
    if case.release.patched:
        refused = (f"EAGLE-3 does not work with pipeline_parallel_size={stages}",)
    elif case.release.version.release >= (0, 30):
        refused, when = ("does not support eagle3 with pipeline parallelism",), "load"
    yield Problem(
        "pipeline-parallel",
        "error",
        when,
        "the drafter reads states of layers that earlier stages hold and do not pass on",
        text=refused,
        remedy=Remedy("option", "--pipeline-parallel-size 1"),
        topic="aux-layers",
    )


def _context(case: Case) -> Iterator[Problem]:
    ranks, drafter = case.parallel.context, case.drafter
    kept = drafter.config.get("num_key_value_heads")
    if ranks == 1 or drafter.kind != "llama" or type(kept) is not int or kept < 1:
        return
    copies = max(case.parallel.tensor // kept, 1)
    if copies % ranks == 0:
        return
    refused = case.release.patched
    yield Problem(
        "context-parallel",
        "error" if refused else "wrong-result",
        "config" if refused else "never",
        f"its {kept} KV heads are on {copies} of {case.parallel.tensor} ranks each: {ranks} ranks "
        "that share tokens would mix up different heads",
        text=("would mix up different heads",) if refused else (),
        remedy=Remedy("option", "--decode-context-parallel-size 1"),
        topic="mla-drafter",
    )
