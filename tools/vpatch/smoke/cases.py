"""The cases of a smoke: drafters, and how large models and prompts are on a device."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vpatch.smoke.env_host import Device

Tier = Literal["core", "full"]
Mode = Literal["eager", "compile", "graphs"]
Job = dict[str, Any]

DRAFTS = 3
MEDIA = 500
"""The token that stands for a picture in a prompt."""
ECHO = 300
"""The token that follows itself for certain (engine/kimi.py's)."""


@dataclass(frozen=True)
class Drafter:
    """A drafter of the smoke.

    Attributes:
        kind, ids, form, vocabulary, changes: As in the SPEC of engine/models.py.
        guesses_some: It is made to guess some of the target's tokens.
        target: The target whose embeddings and head it has.
        layers: Of that target.
        modes: In which it runs.
        takes: The ids that vLLM has to use, where they are not those of the config.
        speculative: Laid over the speculative config.
        pieces: Its prompts come in pieces.
        lacks: Weights that its checkpoint leaves out.
    """

    name: str
    kind: str
    ids: tuple[int, ...] | None
    form: str
    vocabulary: str = "reduced"
    changes: Mapping[str, Any] = field(default_factory=dict)
    guesses_some: bool = False
    tier: Tier = "core"
    target: str = "kimi"
    layers: int = 8
    modes: tuple[Mode, ...] = ("eager", "graphs")
    takes: tuple[int, ...] | None = None
    speculative: Mapping[str, Any] = field(default_factory=dict)
    pieces: bool = False
    lacks: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[int, ...]:
        """The ids that vLLM has to use; for a config that names none its default."""
        return self.takes or self.ids or (2, self.layers // 2, self.layers - 3)

    @property
    def mla(self) -> bool:
        """Whether it has MLA, as the target has."""
        return self.kind.startswith("mla")


_IDS = "eagle_aux_hidden_state_layer_ids"
LAYER_OUTPUTS = {"eagle_aux_hidden_state_layer_numbering": "layer-output"}
"""Says that ids count as in SGLang and SpecForge."""
_EAGER: Mapping[str, Any] = {"tier": "full", "modes": ("eager",)}
_COMPILED: Mapping[str, Any] = {"target": "short", "layers": 2, "modes": ("compile",)}

LLAMA_NESTED = Drafter("llama-nested", "llama", (1, 3, 7), "nested", guesses_some=True, pieces=True)
DRAFTERS = (
    LLAMA_NESTED,
    Drafter("llama-default", "llama", None, "none", "full", guesses_some=True),
    Drafter("mla-yarn", "mla", (1, 3, 7), "nested", guesses_some=True),
    # What it guesses shows each earlier row: those at the ends of pieces too.
    Drafter("llama-random", "llama-random", (1, 3, 7), "nested", pieces=True),
    Drafter("mla-random", "mla-random", (1, 3, 7), "nested"),
    Drafter("mla-plain", "mla31", (0, 1, 2, 7, 8), "nested", "full"),
    # As SGLang and SpecForge count: id i is the output of layer i.
    Drafter(
        "llama-outputs",
        "llama-random",
        (1, 2, 6),
        "nested",
        changes=LAYER_OUTPUTS,
        takes=(2, 3, 7),
        modes=("eager",),
    ),
    Drafter("llama-top-level", "llama", (2, 3, 5), "top-level", guesses_some=True, tier="full"),
    Drafter("llama-ends", "llama", (0, 4, 8), "nested", guesses_some=True, tier="full"),
    Drafter("llama-speculators", "llama-random", (1, 3, 7), "speculators", tier="full"),
    Drafter("mla-norm", "mlanorm", None, "none", "full", tier="full"),
    Drafter(
        "llama-override",
        "llama-random",
        (2, 4, 6),
        "nested",
        takes=(1, 3, 8),
        speculative={_IDS: [1, 3, 8]},
        **_EAGER,
    ),
    Drafter(
        "mla-v3", "mla-random", (1, 3, 7), "nested", changes={"model_type": "deepseek_v3"}, **_EAGER
    ),
    Drafter("mla-speculators", "mla-random", (1, 3, 7), "speculators", **_EAGER),
    Drafter(
        "mla-norm-nested",
        "mlanorm",
        (1, 3, 7),
        "nested",
        "full",
        changes={"eagle_config": {_IDS: [1, 3, 7], "norm_before_fc": True}, "norm_before_fc": None},
        **_EAGER,
    ),
    # Eight layers of eight experts take a CPU a minute to compile.
    Drafter("llama-short", "llama", (1, 2), "nested", guesses_some=True, tier="full", **_COMPILED),
    Drafter("mla-short", "mla31", (0, 2), "nested", "full", tier="full", **_COMPILED),
)


@dataclass(frozen=True)
class Scale:
    """How large the models and the prompts are on a device.

    Attributes:
        shape: A preset of engine/shapes.py.
        prompts: Lengths of the prompts that come at once.
        tokens: How many are generated for each.
        piece: The most tokens of a step where prompts have to come in pieces.
    """

    shape: str
    dtype: str
    prompts: tuple[int, ...]
    tokens: int
    piece: int
    length: int


SCALES: Mapping[Device, Scale] = {
    "cpu": Scale("cpu", "float32", (5, 17, 40), 24, 16, 128),
    "cuda": Scale("cuda", "bfloat16", (3, 8, 17, 33, 64, 90), 32, 48, 256),
}


def nested_ids(ids: Sequence[int], **more: Any) -> dict[str, Any]:
    """Where public Kimi drafters keep their ids, as a part of a config; more keys beside them."""
    return {"eagle_config": {_IDS: list(ids), **more}}


def prompts(lengths: Sequence[int], seed: int = 7) -> list[list[int]]:
    """Token ids; the same each time."""
    stream = random.Random(seed)  # noqa: S311 - prompts, not secrets
    return [[stream.randrange(4, MEDIA - 1) for _ in range(count)] for count in lengths]


def with_echo(whole: list[list[int]]) -> list[list[int]]:
    """These prompts, and one of six tokens that ECHO follows for ever.

    So that there are drafts that are right in all places.
    """
    (start,) = prompts((5,), seed=17)
    return [*whole, [*start, ECHO]]
