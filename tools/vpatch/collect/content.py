"""One file of a set: is it whole, and what it has to be. Read once, from its beginning on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

from vpatch.collect.file import File, Shape
from vpatch.collect.layout import LAST, STATES, TOKENS, tensor_name
from vpatch.collect.lines import Sample
from vpatch.collect.stream import Stream
from vpatch.errors import FindingError
from vpatch.findings import Finding
from vpatch.preflight.headers import Header, Tensor


@dataclass(frozen=True)
class Wanted:
    """A sample that has to be in a file.

    Attributes:
        sample: What samples.jsonl says of it.
        prompt_digest: `prompts.digest_of` of the prompt, where that is token ids.
    """

    sample: Sample
    prompt_digest: str | None = None


@dataclass(frozen=True)
class Content:
    """What a file is.

    Attributes:
        shape: Of its states; None where that cannot be said.
        metadata: Its header's.
        findings: What is wrong with it.
    """

    size: int
    sha256: str
    shape: Shape | None
    metadata: Mapping[str, Any]
    findings: tuple[Finding, ...]


def read_content(
    stream: BinaryIO,
    size: int,
    name: str,
    wanted: Sequence[Wanted],
    *,
    shape: Shape | None,
    shard: bool,
    norm: bool,
    layers: Sequence[int],
) -> Content:
    """Reads a file of a set and says what it is.

    Args:
        stream: The file.
        size: Its bytes.
        name: Names it in findings.
        wanted: The samples that it has to have.
        shape: The rows' shape; where None, the file says it.
        shard: Whether its tensors have their samples' numbers in their names.
        norm: Whether normed last states are there too.
        layers: The ids of the set's layers.
    """
    with closing(Stream(stream)) as reader:
        file = File(reader, size, name, shape)
        header = file.header()
        if header is not None and file.tensors(header, _expected(wanted, shard=shard, norm=norm)):
            if file.shape is not None and file.shape.layers != len(layers):
                file.found("shape", f"has {file.shape.layers} layers, not {len(layers)}")
            _check_layers(file, layers)
            if not shard:
                _check_metadata(file, wanted[0].sample, norm=norm)
            _bodies(file, header, wanted, zero_is_data=list(layers) == [0])
        file.rest()
        if reader.read_bytes != size:
            file.found("size", f"has {reader.read_bytes} bytes, not {size}")
        return Content(
            reader.read_bytes, reader.sha256(), file.shape, file.metadata, tuple(file.findings)
        )


def _expected(
    wanted: Sequence[Wanted], *, shard: bool, norm: bool
) -> Mapping[str, tuple[str, int]]:
    kinds = (STATES, TOKENS, LAST) if norm else (STATES, TOKENS)
    return {
        tensor_name(kind, one.sample.number if shard else None): (kind, one.sample.rows)
        for one in wanted
        for kind in kinds
    }


def _bodies(file: File, header: Header, wanted: Sequence[Wanted], *, zero_is_data: bool) -> None:
    by_number = {str(one.sample.number): one for one in wanted}
    try:
        for tensor in header.tensors.values():
            kind, _, number = tensor.name.partition(".")
            if kind == TOKENS:
                _check_tokens(file, tensor, by_number[number] if number else wanted[0])
            else:
                file.states(tensor, zero_is_data)
    except FindingError as error:  # it became shorter while it was read
        file.found(error.code, error.message)


def _check_tokens(file: File, tensor: Tensor, wanted: Wanted) -> None:
    """What the engine answered and was asked."""
    sample = wanted.sample
    raw = file.tokens(tensor)
    if raw is None:
        return
    if hashlib.sha256(raw).hexdigest() != sample.tokens:
        file.found("tokens", f"{tensor.name} has other token ids than the engine answered")
    first = raw[: sample.prompt * 8]
    if wanted.prompt_digest not in {None, hashlib.sha256(first).hexdigest()}:
        file.found("prompt", f"{tensor.name} does not begin with its prompt's token ids")


def _check_layers(file: File, layers: Sequence[int]) -> None:
    said = file.metadata.get("layers")
    try:
        wrong = said is not None and json.loads(said) != list(layers)
    except (ValueError, RecursionError):
        wrong = True
    if wrong:
        file.found("layers", f"says that its layers are {said!r:.80}, not {list(layers)}")


def _check_metadata(file: File, sample: Sample, *, norm: bool) -> None:
    """What the engine wrote into the header, where it did."""
    right = {
        "label": str(sample.number),
        "prompt_tokens": str(sample.prompt),
        "generated_tokens": str(sample.generated),
    }
    if norm:
        right["last"] = "normed"
    for name, value in right.items():
        said = file.metadata.get(name, value)
        if said != value:
            file.found("metadata", f"says that its {name} is {said!r:.40}, not {value}")
