"""What a drafter embeds and guesses, against its definition; a part of compare.py."""

from __future__ import annotations

from typing import Any

import torch

from vpatch.smoke.engine.steps import Request, Rows, Steps

TIE_BOUNDS = 2
"""Two logits are tied where they are nearer than so many bounds, in standard deviations of the
logits: two engines' sums in another order choose differently there. One for each of the two."""
_NO_GUESS = -1
# A guess that wins by less is never counted. In float32 the bound is smaller.
_CLOSE = 1e-3


def compare_guesses(
    rows: Rows, steps: Steps, request: Request, drafter: Any, limit: float
) -> dict[str, Any]:
    """How many guesses of the engine's drafter are not the reference drafter's.

    Without the last step's: the answer was cut there, and with it what the drafter had seen. After
    a part of a prompt only the first one: none is ever tried there, but the first one shows what
    the drafter's last row was, which stays in its cache. Where a release does not guess there at
    all (v0.33.0's MRV2, in steps of which no request can use a guess), later guesses have to show
    that. In bfloat16, with each operation rounded
    (Reference's `rounding`), other guesses than the reference's won there by half a bound at most,
    in standard deviations of the logits: two bounds leave 6 to 8 of 10 guesses.
    """
    mine = rows["guesses_request"] == request.number
    embeds = _embeds_of(request, drafter)
    states: dict[int, torch.Tensor] = {}
    wrong, certain = 0, 0
    numbers = rows["guesses_step"][mine].tolist()[:-1]
    for step, guesses in zip(numbers, rows["guesses"][mine].tolist(), strict=False):
        states |= steps.kept.get(step, {})
        length = max(states, default=-1) + 1
        if not length or len(states) < length:
            continue  # a missing row is compare_states' to tell
        past = torch.stack([states[position] for position in range(length)])
        in_prompt = length < len(request.prompt)
        if in_prompt and guesses[0] == _NO_GUESS:
            continue
        count = 1 if in_prompt else len(guesses)
        wanted = drafter.guess(past, embeds[:length], count)
        compared = zip(guesses[:count], wanted.tokens, wanted.margins, wanted.spreads, strict=True)
        for guess, token, margin, spread in compared:
            if margin < max(_CLOSE, TIE_BOUNDS * limit * spread):
                break  # rounding may choose here, and all further guesses follow from it
            certain += 1
            wrong += guess != token
    return {"certain_guesses": certain, "wrong_guesses": wrong}


def compare_embeds(rows: Rows, request: Request, drafter: Any, limit: float) -> dict[str, Any]:
    """Whether each row embeds the token after its position.

    Returns:
        "embeds": how many rows there are, "embeds_wrong": positions of those that do not;
        "embeds_at_ends": how many are the last one of a part of the prompt; "embeds_of_picture":
        how many embed a part of a picture, or its placeholder.
    """
    wanted = _embeds_of(request, drafter)
    wrong: list[int] = []
    count, ends, picture = 0, 0, 0
    for heard in Steps.of_values(rows, request, "embeds").kept.values():
        last = max(heard)
        ends += last < len(request.prompt) - 1
        for position, row in heard.items():
            count += 1
            picture += position + 1 in request.picture
            deviation = (row - wanted[position]).norm() / wanted[position].norm()
            if not deviation <= limit:  # NaN compares as false with everything
                wrong.append(position)
    return {
        "embeds": count,
        "embeds_wrong": wrong,
        "embeds_at_ends": ends,
        "embeds_of_picture": picture,
    }


def _embeds_of(request: Request, drafter: Any) -> torch.Tensor:
    """[inputs, hidden]: for each row, what its drafter has to embed there."""
    embeds: torch.Tensor = drafter.embed(request.tokens[1:])
    if drafter.takes_pictures:
        for position, embedding in request.picture.items():
            if position:
                embeds[position - 1] = embedding
    return embeds
