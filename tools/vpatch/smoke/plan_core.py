"""The core of a smoke: every drafter kind drafts, from the states that it asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vpatch.smoke import judge
from vpatch.smoke.cases import DRAFTERS, LAYER_OUTPUTS, Drafter, Mode, nested_ids
from vpatch.smoke.judge_inputs import right_inputs
from vpatch.smoke.plan import Builder
from vpatch.smoke.releases import Runner

CONFIG_ERROR_S = 60.0
"""A wrong config is refused within so many seconds of the start, imports not counted."""

# Wrong ids for a drafter whose `fc` takes three states -> what its refusal has to say.
WRONG_IDS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "ids-outside": ((1, 3, 99), r"\[99\].*8 layers"),
    "ids-descending": ((7, 3, 1), r"\[7, 3, 1\].*ascending"),
    "ids-repeated": ((1, 1, 7), r"\[1, 1, 7\].*twice"),
    "ids-not-as-wide-as-fc": ((1, 3), r"\[1, 3\].*\bfc\b"),
}
# Both numberings are named: the config's own, and vLLM's.
_OUTPUTS_OUTSIDE = (
    r"\[0, 2, 8\] in layer-output numbering \(in layer-input numbering \[1, 3, 9\]\), "
    r"hold \[8\].*8 layers.*-1 to 7"
)


def add_core(builder: Builder, runner: Runner, mode: Mode) -> None:
    """Each drafter of the tier beside its target, and the targets alone."""
    for drafter in _drafters(builder, mode):
        base = target_alone(builder, drafter.target, runner, mode)
        add_drafter(builder, drafter, runner, mode, base)


def _drafters(builder: Builder, mode: Mode) -> Iterator[Drafter]:
    no_mla = builder.wish.device == "cpu" and builder.facts.cpu_mla != "expanded"
    if no_mla and mode == "eager":
        builder.notes.append(
            f"MLA drafters are not tried: v{builder.facts.version} has no MLA kernel on a CPU for "
            "them beside this target"
        )
    for drafter in DRAFTERS:
        if drafter.mla and no_mla:
            continue
        if mode in drafter.modes and (drafter.tier == "core" or builder.wish.tier == "full"):
            yield drafter


def start_name(what: str, runner: Runner, mode: Mode) -> str:
    """``llama-nested/v1/eager``."""
    return f"{what}/{runner}/{mode}"


def target_alone(builder: Builder, target: str, runner: Runner, mode: Mode) -> str:
    """The target without a drafter: what greedy answers have to be. Returns the start's name."""
    name = start_name("target" if target == "kimi" else f"target-{target}", runner, mode)
    if name not in builder.started:
        builder.start(name, None, runner, mode, target=target)
        builder.check_start(f"starts/{name}", name, judge.did_start)
    return name


def add_drafter(builder: Builder, drafter: Drafter, runner: Runner, mode: Mode, base: str) -> None:
    """One drafter and all that is asked of it."""
    start = start_name(drafter.name, runner, mode)
    reason = builder.facts.refuses(drafter.mla, runner, builder.wish.device)
    options = {"max_num_batched_tokens": builder.scale.piece} if drafter.pieces else {}
    hears = drafter.pieces and mode == "eager"  # no graph tells what is embedded in it
    more = {"guesses": True, **({"embeds": True} if hears else {})}
    builder.start(start, drafter, runner, mode, options=options, more=more)
    if reason is not None:
        builder.check_start(f"refused/{start}", start, judge.refused(reason, CONFIG_ERROR_S))
        return
    ask(builder, start, drafter.asked, base)
    builder.check(f"mixed-batch/{start}", [start], judge.mixed_steps(start, "mixed"))
    if drafter.pieces:
        builder.check(f"chunked-prefill/{start}", [start], judge.took_pieces(start, "batch"))
    if hears:
        builder.check(f"inputs/{start}", [start], right_inputs(start, at_ends=True))
    if drafter.guesses_some:
        builder.check(f"accepted/{start}", [start], judge.some_accepted(start))
    builder.check(f"guesses/{start}", [start], judge.right_guesses(start))


def ask(builder: Builder, start: str, ids: tuple[int, ...], base: str) -> None:
    """It starts, takes these ids, gets their states, and answers as the target alone."""
    builder.check_start(f"starts/{start}", start, judge.did_start)
    builder.check(f"ids/{start}", [start], judge.took_ids(start, ids))
    builder.check(f"states/{start}", [start], judge.right_states(start))
    builder.check(f"greedy/{start}", [start, base], judge.same_tokens(start, base))


def add_refusals(builder: Builder, runner: Runner) -> None:
    """Wrong configs, beside a target whose weights cannot be read."""
    wrong = [(name, nested_ids(ids), said) for name, (ids, said) in WRONG_IDS.items()]
    if builder.wish.tier == "full":
        wrong.append(
            ("ids-outputs-outside", nested_ids((0, 2, 8)) | LAYER_OUTPUTS, _OUTPUTS_OUTSIDE)
        )
    for name, changes, pattern in wrong:
        drafter = Drafter(name, "llama", (1, 3, 7), "nested", changes=changes)
        start = start_name(name, runner, "eager")
        builder.start(start, drafter, runner, target="unreadable")
        builder.check_start(f"refused/{start}", start, judge.refused(pattern, CONFIG_ERROR_S))
