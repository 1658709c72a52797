"""A verdict on what drafters embed."""

from __future__ import annotations

from collections.abc import Callable

from vpatch.smoke.judge import Judged, Outcomes, compared_requests


def right_inputs(
    name: str, *, at_ends: bool = False, of_picture: bool = False
) -> Callable[[Outcomes], Judged]:
    """Beside each position's states the drafter embeds the token after it.

    Args:
        name: The start.
        at_ends: Some of these rows have to be the last ones of a part of a prompt.
        of_picture: Some have to embed a part of a picture, or the placeholder where the drafter is
            not for pictures.
    """

    def judge(outcomes: Outcomes) -> Judged:
        requests = compared_requests(outcomes[name])
        rows = sum(one["embeds"] for one in requests)
        wrong = [position for one in requests for position in one["embeds_wrong"]]
        ends = sum(one["embeds_at_ends"] for one in requests)
        picture = sum(one["embeds_of_picture"] for one in requests)
        told = f"{ends} at the end of a part of a prompt, {picture} at a picture"
        if not rows or (at_ends and not ends) or (of_picture and not picture):
            return Judged("fail", f"{rows} rows, {told}: this run proves nothing")
        if wrong:
            return Judged(
                "fail",
                f"{len(wrong)} of {rows} rows embed something else, the first at position "
                f"{wrong[0]} ({told})",
            )
        return Judged("pass", f"{rows} rows embed the token after theirs, {told}")

    return judge
