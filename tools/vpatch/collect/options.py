"""What a user says of a collection, read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from vpatch.errors import UsageError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MOST_LAYERS = 1024
_OURS = ("model", "hidden_states_collection", "disable_log_stats")
_OURS_OF_SAMPLING = ("max_tokens", "n", "extra_args", "detokenize", "output_kind")


def read_layers(text: str) -> tuple[int, ...]:
    """``2,30,58``: vLLM's ids, ascending.

    Raises:
        UsageError: They are none.
    """
    words = [word.strip() for word in text.split(",")]
    ids = [int(word) for word in words if re.fullmatch(r"[0-9]{1,6}", word)]
    if len(ids) != len(words) or not ids or len(ids) > _MOST_LAYERS:
        raise UsageError(
            f"--layers {text!r} is no list of layer ids",
            hint="For example: --layers 2,30,58",
            code="bad-layers",
        )
    if ids != sorted(set(ids)):
        raise UsageError(
            f"--layers {text} is not ascending: states are handed over in that order",
            hint=f"--layers {','.join(map(str, sorted(set(ids))))}",
            code="bad-layers",
        )
    return tuple(ids)


def read_size(option: str, text: str) -> int:
    """``2GiB``, ``500MB``, ``4G`` as bytes.

    Raises:
        UsageError: It is no size.
    """
    found = re.fullmatch(r"([0-9]{1,6})\s*([KMGT]?)(iB|B)?", _upper(text.strip()))
    if found is None or int(found[1]) == 0 or (found[3] == "iB" and not found[2]):
        raise UsageError(
            f"{option} {text!r} is no size", hint=f"For example: {option} 4GiB", code="bad-size"
        )
    return int(found[1]) * (_BINARY if found[3] == "iB" else _UNITS)[found[2]]


def read_words(option: str, given: Sequence[str], ours: Sequence[str]) -> dict[str, Any]:
    """``NAME=JSON`` words; what is no JSON is a string.

    Raises:
        UsageError: A word without ``=``, a name that is no identifier, or one that is set here.
    """
    words: dict[str, Any] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{option} {word!r} is not NAME=VALUE", code="bad-option")
        if name in ours:
            raise UsageError(
                f"{option} {name} is not to be set: vpatch sets it",
                hint=f"Not to be set: {', '.join(ours)}.",
                code="bad-option",
            )
        words[name] = _value(value)
    return words


def read_engine_options(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of ``LLM(...)``."""
    return read_words("--option", given, _OURS)


def read_sampling(given: Sequence[str], max_tokens: int) -> dict[str, Any]:
    """Arguments of ``SamplingParams(...)``; greedy where nothing else is said."""
    words = read_words("--sampling", given, _OURS_OF_SAMPLING)
    return {"temperature": 0.0, **words, "max_tokens": max_tokens}


def _upper(text: str) -> str:
    return text.upper().replace("IB", "iB")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
