"""Which gates and which checks of the smoke speak for which topic, and why.

A gate may stand in several topics: the patches that mend it moved between them. It counts for
those that a release's series carries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FORMS = r"llama-(nested|outputs|top-level|ends|speculators|override)"


@dataclass(frozen=True)
class Topic:
    """A purpose of patches.

    Attributes:
        purpose: What it gives, as one phrase.
        gates: Name of a gate -> why it speaks for the topic.
        checks: Regular expression for whole names of the smoke's checks -> why they do.
    """

    name: str
    purpose: str
    gates: Mapping[str, str]
    checks: Mapping[str, str]

    def has_check(self, name: str) -> bool:
        """Whether a check of the smoke speaks for it."""
        return any(re.fullmatch(pattern, name) for pattern in self.checks)


TOPICS = (
    Topic(
        "eagle3-interface",
        "Kimi-K2.5 is a target of EAGLE-3 and hands over its hidden states",
        gates={
            "target": "the first of the story's errors",
            "placeholder": "the second one",
            "interface": "the third one",
            "drafter": "what the target is for",
            "embeddings": "the drafter takes them from the target",
            "states": "what is handed over",
            "drafter-fc": "as many states as are handed over; up to v0.17.1 mended here",
            "pipeline-parallel": "stages lose states; up to v0.17.1 mended here",
            "calls": "what runners ask of a target, it has to have",
        },
        checks={
            r"starts/llama-(nested|default|random)/.*": "such a start meets every error of the "
            "story",
            r"states/llama-default/.*": "the default layers need nothing of the other topics",
            r"greedy/llama-(nested|default|random)/.*": "drafts are verified, and nothing is lost",
            r"accepted/llama-(nested|default)/.*": "drafts are accepted at all",
            r"refused/llama-.*/v2/.*": "a runner that would die beside such a drafter is refused",
        },
    ),
    Topic(
        "aux-layers",
        "the layers that a drafter was trained on are the ones that it gets, or it is refused",
        gates={
            "ids-nested": "where public Kimi drafters keep their ids",
            "ids-top": "the other place",
            "ids-layer-ids": "the third place",
            "ids-numbering": "inputs or outputs of layers",
            "ids-override": "the command line instead of the config",
            "ids-refused": "ids that cannot be right",
            "ids-default": "no ids at all",
            "cache-key": "a compiled graph is made for its layers",
            "states-at-ends": "the ids 0 and `number of layers`",
            "states-pair": "ids that no layer has",
            "pipeline-parallel": "stages lose states; from v0.26.0 on mended here",
            "drafter-fc": "as many states as there are ids; from v0.26.0 on mended here",
            "dead-methods": "a getter of the layers that nobody calls",
        },
        checks={
            rf"ids/{_FORMS}/.*": "the layers that reach `fc`, by the reference's states",
            rf"states/{_FORMS}/.*": "the same rows, held against the bound",
            r"refused/ids-.*": "before weights are read",
            r"refused/pipeline/.*": "refused for its reason, before weights are read",
            r"trained/.*": "what the right layers are worth",
        },
    ),
    Topic(
        "mla-drafter",
        "drafters with MLA, of every form and with every norm",
        gates={
            "drafter-mla": "they are registered and taken",
            "drafter-mla-kv": "their KV cache is laid out as theirs",
            "drafter-deepseek-v3": "they stay drafters",
            "drafter-norm": "an option of theirs",
            "drafter-norms": "the other place of such options, of drafters without MLA too",
            "drafter-speculators": "another format of theirs",
            "decode-context-parallel": "mended beside them: drafters of the other kind are refused",
        },
        checks={
            r"(starts|ids|states|mixed-batch|guesses|greedy|accepted)/mla-.*": "they start, get "
            "their states, and guess what their definition guesses",
            r"refused-weights/without-fc/.*": "a checkpoint that lacks weights is refused",
        },
    ),
    Topic(
        "fp16",
        "float16 hands over states of bfloat16's scale",
        gates={"states-float16": "the scale in the code"},
        checks={r"(starts|ids|states)/float16/.*": "target and drafter run in float16"},
    ),
    Topic(
        "draft-logits",
        "a reduced draft vocabulary is searched as it is",
        gates={"draft-vocabulary": "the code that drafts greedily"},
        checks={
            r"guesses/(llama-(nested|random|outputs)|mla-(yarn|random))/.*": "their vocabulary is "
            "reduced: each guess goes through its table",
        },
    ),
    Topic(
        "drafter-attention",
        "a drafter without MLA attends by a schedule for its own shape",
        gates={"drafter-attention": "the shape that a schedule is made for, in the code"},
        checks={
            r"guesses/llama-.*/v2/graphs": "only where keys are split does a schedule show",
        },
    ),
    Topic(
        "drafter-mm",
        "a drafter embeds what comes next: after a part of a prompt, and images",
        gates={
            "drafter-chunks": "the token behind each part",
            "drafter-images": "images, for drafters whose config says so",
        },
        checks={
            r"inputs/llama-(nested|random)/.*": "prompts in pieces: the token behind each piece",
            r"(inputs|picture|ids|states|guesses)/picture-(embeds|pieces)/.*": "images, whole and "
            "in pieces",
        },
    ),
    Topic(
        "kimi-config",
        "a target's config.json in transformers' own schema",
        gates={"placeholder-new-schema": "the key that the new schema lacks"},
        checks={r"(starts|ids|states|guesses|greedy)/new-schema/.*": "such a target starts"},
    ),
    Topic(
        "collection",
        "hidden states are collected as training data, beside EAGLE-3 or without",
        gates={"collection": "the way of option, request, row and file, in the code"},
        # What proves it is ci/collection_gpu.py, docs/collection.md: no check of the smoke.
        checks={},
    ),
)
BY_NAME: Mapping[str, Topic] = {topic.name: topic for topic in TOPICS}


def topics_of_gate(name: str) -> tuple[str, ...]:
    """The topics that a gate speaks for."""
    return tuple(topic.name for topic in TOPICS if name in topic.gates)


def topics_of_check(name: str) -> tuple[str, ...]:
    """The topics that a check of the smoke speaks for."""
    return tuple(topic.name for topic in TOPICS if topic.has_check(name))


def in_order(names: Iterable[str]) -> list[str]:
    """Topics as the table has them; those that it does not have come last."""
    known = [topic.name for topic in TOPICS]
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else 99, name))
