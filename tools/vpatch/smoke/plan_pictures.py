"""A picture in a prompt, for drafters with and without embeddings of it; a part of plan_full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vpatch.smoke import judge, judge_full
from vpatch.smoke.cases import LLAMA_NESTED, MEDIA, Drafter, Job, nested_ids, prompts
from vpatch.smoke.judge_inputs import right_inputs
from vpatch.smoke.plan import Builder
from vpatch.smoke.plan_core import ask, start_name
from vpatch.smoke.releases import Runner

_TOKENS = 4  # of a picture
_PIECE = 7
# Tokens before and after the picture. In pieces of 7, the first one ends where the picture begins,
# and in the second prompt inside of it. Of one length: start.py makes the picture of that.
_AROUND = {"picture": (7, 9), "cut": (5, 11)}
_IN_PIECES: Mapping[str, Any] = {"max_num_batched_tokens": _PIECE, "max_num_seqs": 4}
_DRAFTER = Drafter(
    "llama-pictures",
    "llama-random",
    (1, 3, 7),
    "nested",
    changes=nested_ids((1, 3, 7), use_multimodal_embeddings=True),
)


def add_pictures(builder: Builder, runner: Runner) -> None:
    """Prompts with one image, without a drafter and with drafters of both kinds."""
    base = start_name("target-picture", runner, "eager")
    builder.start(base, None, runner, phases=_phases(builder), images=True)
    _add(builder, runner, "picture", LLAMA_NESTED, base)
    if not builder.facts.drafts_from_pictures:
        return
    _add(builder, runner, "picture-embeds", _DRAFTER, base)
    _add(builder, runner, "picture-pieces", _DRAFTER, base, _IN_PIECES)
    if builder.wish.device == "cuda":
        _add_graphs(builder, runner)


def _phases(builder: Builder) -> list[Job]:
    phases = []
    for name, lengths in _AROUND.items():
        before, after = prompts(lengths)
        prompt = [*before, MEDIA, *after]
        phases.append({"name": name, "prompts": [prompt], "tokens": builder.scale.tokens})
    return phases


def _add(
    builder: Builder,
    runner: Runner,
    name: str,
    drafter: Drafter,
    base: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    start = start_name(name, runner, "eager")
    builder.start(
        start,
        drafter,
        runner,
        phases=_phases(builder),
        options=options,
        images=True,
        more={"guesses": True, "embeds": True},
    )
    ask(builder, start, drafter.asked, base)
    whole = sum(_AROUND["picture"]) + _TOKENS
    builder.check(f"picture/{start}", [start], judge_full.saw_picture(start, whole))
    inputs = right_inputs(start, at_ends=options is not None, of_picture=True)
    builder.check(f"inputs/{start}", [start], inputs)
    builder.check(f"guesses/{start}", [start], judge.right_guesses(start))


def _add_graphs(builder: Builder, runner: Runner) -> None:
    """What a graph was captured with is no picture's embeddings."""
    start = start_name("picture-embeds", runner, "graphs")
    phases, more = _phases(builder), {"guesses": True}
    builder.start(start, _DRAFTER, runner, "graphs", phases=phases, images=True, more=more)
    builder.check_start(f"starts/{start}", start, judge.did_start)
    builder.check(f"guesses/{start}", [start], judge.right_guesses(start))
