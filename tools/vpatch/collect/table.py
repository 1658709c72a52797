"""What is kept in memory of each prompt and sample of a set: some bytes, whatever their size."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator

from vpatch.collect.prompts import Prompt, digest_of

_DIGEST, _KEY = 32, 8


class Prompts:
    """The prompts of a set, in their order: 44 bytes each."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._lengths = array("q")
        self._ids = bytearray()

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, prompt: Prompt) -> None:
        """The next one."""
        tokens = prompt.tokens
        self._digests += bytes(_DIGEST) if tokens is None else bytes.fromhex(digest_of(tokens))
        self._lengths.append(-1 if tokens is None else len(tokens))
        self._ids += _key(prompt.id)

    def digest(self, number: int) -> str | None:
        """Of its token ids, where it is said by them."""
        if self._lengths[number] < 0:
            return None
        return self._digests[number * _DIGEST : (number + 1) * _DIGEST].hex()

    def length(self, number: int) -> int | None:
        """How many token ids, where it is said by them."""
        length = self._lengths[number]
        return None if length < 0 else length

    def is_called(self, number: int, one: str | None) -> bool:
        """Whether its line has this id."""
        return self._ids[number * _KEY : (number + 1) * _KEY] == _key(one)


class Seen:
    """Which samples are there, and which have a reason in their place: one byte each."""

    MISSING, SAMPLE, FAILED = 0, 1, 2

    def __init__(self, count: int) -> None:
        self._states = bytearray(count)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, number: int) -> int:
        return self._states[number]

    def put(self, number: int, state: int) -> None:
        """Notes one."""
        self._states[number] = state

    def count(self, state: int) -> int:
        """How many are so."""
        return self._states.count(state)

    def runs(self, state: int) -> Iterator[tuple[int, int]]:
        """First and last number of each run of those that are so."""
        at, byte = 0, bytes((state,))
        while (first := self._states.find(byte, at)) >= 0:
            rest = self._states[first:]
            at = first + len(rest) - len(rest.lstrip(byte))
            yield first, at - 1


def spans(runs: Iterator[tuple[int, int]], most: int = 5) -> str:
    """Runs as people read them: ``0-4, 7, ...``."""
    words: list[str] = []
    for first, last in runs:
        if len(words) == most:
            words.append("...")
            break
        words.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(words)


def _key(one: str | None) -> bytes:
    if one is None:
        return bytes(_KEY)
    return hashlib.blake2b(one.encode("utf-8", "replace"), digest_size=_KEY).digest()
