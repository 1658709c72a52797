"""samples.jsonl, read line by line: each file with the samples that are in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from vpatch.collect.layout import SAMPLES
from vpatch.collect.lines import LONGEST_LINE, Failed, Line, Sample, Shard, parse_line
from vpatch.errors import FindingError
from vpatch.findings import Finding

Tell = Callable[[Finding], None]


@dataclass(frozen=True)
class Block:
    """A file, and its samples.

    Attributes:
        line: Where it begins in samples.jsonl.
        shard: None for a sample's own file.
    """

    line: int
    file: str
    size: int
    sha256: str
    shard: Shard | None
    samples: tuple[Sample, ...]


def read_lines(stream: BinaryIO, tell: Tell) -> Iterator[tuple[int, Line]]:
    """The lines of samples.jsonl with their numbers; what is none is told.

    A last line without its end was being written when somebody died: it is told, and is none.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if not raw.endswith(b"\n"):
            tell(Finding(SAMPLES, number, "samples", "is no whole line"))
            if len(raw) > LONGEST_LINE:
                return  # and nothing behind it is looked at
            continue
        try:
            yield number, parse_line(raw, f"line {number}")
        except FindingError as error:
            message = error.message.removeprefix(f"line {number}").lstrip(": ")
            tell(Finding(SAMPLES, number, "samples", message))


def read_blocks(stream: BinaryIO, tell: Tell) -> Iterator[Block | tuple[int, Failed]]:
    """Files with their samples, and prompts without one, with their lines' numbers."""
    lines = read_lines(stream, tell)
    for number, one in lines:
        if isinstance(one, Failed):
            yield number, one
        elif isinstance(one, Shard):
            yield from _shard(number, one, lines, tell)
        elif one.size is None or one.sha256 is None:
            tell(Finding(SAMPLES, number, "samples", f"stands before no line of {one.file}"))
        else:
            yield Block(number, one.file, one.size, one.sha256, None, (one,))


def _shard(
    number: int, shard: Shard, lines: Iterator[tuple[int, Line]], tell: Tell
) -> Iterator[Block]:
    samples: list[Sample] = []
    while len(samples) < shard.samples:
        at, one = next(lines, (number, None))
        if not isinstance(one, Sample) or one.file != shard.file:
            sentence = f"{shard.file} has {len(samples)} samples behind its line, not "
            tell(Finding(SAMPLES, at, "samples", f"{sentence}{shard.samples}"))
            return
        samples.append(one)
    yield Block(number, shard.file, shard.size, shard.sha256, shard, tuple(samples))
