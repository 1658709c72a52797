"""The shape of the rows of a set, read off one of its files."""

from __future__ import annotations

from vpatch.collect.blocks import Block
from vpatch.collect.file import Shape
from vpatch.collect.layout import STATES, tensor_name
from vpatch.collect.place import Place
from vpatch.collect.rows import NUMBERS
from vpatch.errors import FindingError
from vpatch.preflight.headers import read_whole_header

_DIMENSIONS = 3


def shape_of(place: Place, block: Block) -> Shape:
    """What the header of a file that is in the set says.

    Raises:
        FindingError: It is no file of a set any more.
    """
    stream, size = place.open(block.file)
    with stream:

        def piece(start: int, count: int) -> bytes:  # noqa: ARG001 - from the beginning, once
            return stream.read(count)

        header = read_whole_header(piece, size, block.file)
    number = None if block.shard is None else block.samples[0].number
    tensor = header.tensors.get(tensor_name(STATES, number))
    if tensor is None or len(tensor.shape) != _DIMENSIONS or tensor.dtype not in NUMBERS:
        raise FindingError(
            f"{block.file} is no file of a set any more",
            hint="Remove it, and run it again with --resume.",
            code="shape",
        )
    return Shape(tensor.dtype, *tensor.shape[1:])
