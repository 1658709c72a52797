"""What lies where in a set, and under which names. Names are made here, from numbers alone."""

from __future__ import annotations

import re
from typing import Literal

Layout = Literal["files", "shards"]

MANIFEST = "manifest.json"
ABOUT = "set.json"
PROMPTS = "prompts.jsonl"
SAMPLES = "samples.jsonl"
WORK = ".collect"
TOP = frozenset({MANIFEST, ABOUT, PROMPTS, SAMPLES})
STATES, TOKENS = "hidden_states", "token_ids"
LAST = "last_hidden_states"  # normed, where it is asked for

MOST_SAMPLES = 100_000_000
_FILE = re.compile(r"hs_(0|[1-9][0-9]{0,8})\.safetensors")
_SHARD = re.compile(r"shard-([0-9]{6})\.safetensors")


def file_name(number: int) -> str:
    """The file of one sample, as speculators' trainer looks for it."""
    return f"hs_{number}.safetensors"


def shard_name(number: int) -> str:
    """The file of many samples."""
    return f"shard-{number:06}.safetensors"


def number_of_file(name: str) -> int | None:
    """Whose file this is; None where the name is no file's of a sample."""
    found = _FILE.fullmatch(name)
    return int(found[1]) if found else None


def number_of_shard(name: str) -> int | None:
    """Which shard this is; None where the name is no shard's."""
    found = _SHARD.fullmatch(name)
    return int(found[1]) if found else None


def tensor_name(kind: str, number: int | None) -> str:
    """A tensor's name: plain in a sample's own file, with its number in a shard."""
    return kind if number is None else f"{kind}.{number}"
