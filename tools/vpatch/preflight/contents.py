"""Weights and tables that load without an error, and are not what a drafter was trained with."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight.case import Case
from vpatch.preflight.headers import INTEGERS
from vpatch.preflight.verdict import Problem
from vpatch.preflight.weights import layout

# Kimi has 163840 tokens: their differences are no numbers of these types.
_TOO_NARROW = ("BF16", "F16", "F8_E4M3", "F8_E5M2", "I8", "U8", "I16", "BOOL")


def mistyped(case: Case) -> Iterator[Problem]:
    """Weights whose values are others once they are copied into their parameters."""
    for own in case.drafter.tensors.values():
        name = layout(own.name)
        table = name == "d2t" and own.dtype in _TOO_NARROW
        if table or (name.endswith((".weight", ".bias")) and own.dtype in INTEGERS):
            why = f"{name} is {own.dtype} in its checkpoint, which does not hold its values"
            yield Problem("weights", "wrong-result", "never", why)


def vocabularies(case: Case) -> Iterator[Problem]:
    """Tokens that the target does not have, or the drafter."""
    drafter, target = case.drafter, case.target
    why = ""
    if drafter.draft_vocab > target.vocab and drafter.draft_vocab != drafter.vocab:
        why = f"it drafts from {drafter.draft_vocab} tokens, and the target has {target.vocab}"
    elif drafter.vocab < target.vocab and drafter.own_embeddings:
        why = f"it has no embeddings of the target's tokens from {drafter.vocab} on"
    if why:
        yield Problem("vocabularies", "wrong-result", "never", f"{why}: it is another's drafter")
