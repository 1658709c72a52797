"""Drafters of every form, right and wrong, that preflight and an engine are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERING = "eagle_aux_hidden_state_layer_numbering"


@dataclass(frozen=True)
class Case:
    """A drafter, and what it was trained for.

    Attributes:
        kind, ids, form, vocabulary, changes: As in the SPEC of vpatch.smoke.engine.models.
        trained: The layers of its states, in vLLM's numbering, where they are not `ids`.
        without: Weights that its checkpoint lacks: patterns of names.
        speculative: Laid over --speculative-config.
    """

    name: str
    kind: str
    ids: tuple[int, ...] | None
    form: str
    vocabulary: str = "reduced"
    changes: Mapping[str, Any] = field(default_factory=dict)
    trained: tuple[int, ...] | None = None
    without: str = ""
    speculative: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mla(self) -> bool:
        return self.kind.startswith("mla")

    @property
    def truth(self) -> tuple[int, ...]:
        return self.trained or self.ids or (2, 4, 5)


def _nested(*ids: int) -> Mapping[str, Any]:
    return {"eagle_config": {IDS: list(ids)}}


_137 = (1, 3, 7)
DRAFTERS = (
    Case("llama-nested", "llama-random", _137, "nested"),
    Case("llama-top-level", "llama-random", _137, "top-level"),
    Case("llama-layer-ids", "llama-random", _137, "layer-ids"),
    Case("llama-speculators", "llama-random", _137, "speculators"),
    Case("llama-no-ids", "llama-random", None, "none"),
    Case("llama-default-ids", "llama-random", (2, 4, 5), "nested"),
    Case("llama-full-vocabulary", "llama-random", None, "none", "full"),
    Case(
        "llama-outputs-stated",
        "llama-random",
        (1, 2, 6),
        "nested",
        changes={NUMBERING: "layer-output"},
        trained=(2, 3, 7),
    ),
    Case("llama-outputs-unstated", "llama-random", (1, 3, 4), "nested", trained=(2, 4, 5)),
    Case(
        "llama-outputs-option",
        "llama-random",
        (1, 3, 4),
        "nested",
        trained=(2, 4, 5),
        speculative={NUMBERING: "layer-output"},
    ),
    Case("llama-first-and-last", "llama-random", (0, 4, 8), "nested"),
    Case("llama-outside", "llama-random", _137, "nested", changes=_nested(1, 3, 99)),
    Case(
        "llama-descending",
        "llama-random",
        _137,
        "nested",
        changes=_nested(7, 3, 1),
        trained=(7, 3, 1),
    ),
    Case("llama-repeated", "llama-random", _137, "nested", changes=_nested(1, 1, 7)),
    Case("llama-two-for-three", "llama-random", _137, "nested", changes=_nested(1, 3)),
    Case("llama-five-nested", "llama-random", (1, 2, 3, 7, 8), "nested"),
    Case("llama-five-top-level", "llama-random", (1, 2, 3, 7, 8), "top-level"),
    Case("llama-norm-missing", "llama-random", _137, "nested", changes={"norm_before_fc": True}),
    Case("llama-weight-missing", "llama-random", _137, "nested", without=r".*up_proj.*"),
    Case(
        "llama-shared-tables",
        "llama-random",
        _137,
        "nested",
        "full",
        without=r"embed_tokens.*|lm_head.*",
    ),
    Case("llama-no-head", "llama-random", _137, "nested", without=r"lm_head.*"),
    Case("llama-no-d2t", "llama-random", _137, "nested", without=r"d2t|t2d"),
    Case("llama-narrow", "llama-random", _137, "nested", changes={"hidden_size": 64}),
    Case(
        "llama-other-draft-vocabulary",
        "llama-random",
        _137,
        "nested",
        changes={"draft_vocab_size": 256},
    ),
    Case(
        "llama-unknown-architecture",
        "llama-random",
        _137,
        "nested",
        changes={"architectures": ["LlamaForCausalLMEagle9"]},
    ),
    Case("mla-yarn", "mla-random", _137, "nested"),
    Case("mla-plain", "mla31", _137, "nested", "full"),
    Case("mla-norm", "mlanorm", _137, "nested", "full", changes={"model_type": "kimi_k2"}),
    Case("mla-deepseek-v3", "mla-random", _137, "nested", changes={"model_type": "deepseek_v3"}),
    Case("mla-speculators", "mla-random", _137, "speculators"),
)
