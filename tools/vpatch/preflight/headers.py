"""The headers of safetensors files: names, types and shapes of weights; never a weight."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vpatch.preflight.strictjson import bad, read_object

LENGTH_BYTES = 8
LARGEST_HEADER = 32 << 20
MOST_FILES = 1024
_MOST_DIMENSIONS = 8
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")
_DTYPE = re.compile(r"[A-Z][A-Z0-9_]{0,15}")
_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}

_PACKED = ("F4", "F6_E2M3", "F6_E3M2")
INTEGERS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64")


@dataclass(frozen=True)
class Tensor:
    """A weight, as its file's header describes it.

    Attributes:
        name: As in the checkpoint.
        dtype: Safetensors' word: ``BF16``.
        shape: Its dimensions.
        size: Its bytes.
        start: Where they begin, behind the header.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    start: int = 0


class Piece(Protocol):
    """Reads bytes [start, start + count) of one file; fewer where it ends."""

    def __call__(self, start: int, count: int) -> bytes: ...


@dataclass(frozen=True)
class Header:
    """The header of one file.

    Attributes:
        tensors: By name, in the order in which they lie in the file.
        metadata: What its ``__metadata__`` is; an empty mapping where it has none.
        end: Where the tensors' bytes begin.
    """

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    end: int


def read_header(read: Piece, size: int | None, what: str) -> Mapping[str, Tensor]:
    """The weights of one file, by name: `read_whole_header`'s tensors."""
    return read_whole_header(read, size, what).tensors


def read_whole_header(read: Piece, size: int | None, what: str) -> Header:
    """The header of one file. Reads from its beginning on, once.

    Args:
        read: Reads a part of it.
        size: Its bytes, where known.
        what: Names it in errors.

    Raises:
        FindingError: It is no safetensors file.
    """
    first = read(0, LENGTH_BYTES)
    if len(first) != LENGTH_BYTES:
        raise bad(what, "is no safetensors file: it ends before its header")
    (length,) = struct.unpack("<Q", first)
    if length > LARGEST_HEADER:
        raise bad(what, f"is no safetensors file: its header would have {length} bytes")
    raw = read(LENGTH_BYTES, length)
    if len(raw) != length:
        raise bad(what, f"ends within its header of {length} bytes")
    header = read_object(raw, f"the header of {what}")
    body = None if size is None else size - LENGTH_BYTES - length
    _check_metadata(header.get("__metadata__", {}), what)
    found = [_tensor(*one, body, what) for one in header.items() if one[0] != "__metadata__"]
    # In the order in which they lie in the file, which is that of loading.
    ordered = sorted(found, key=lambda one: (one.start, one.size))
    _check_places(ordered, body, what)
    tensors = {tensor.name: tensor for tensor in ordered}
    return Header(tensors, header.get("__metadata__", {}), LENGTH_BYTES + length)


def _check_metadata(metadata: object, what: str) -> None:
    texts = metadata.values() if isinstance(metadata, dict) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise bad(what, "has a __metadata__ that is no object of texts")


def _check_places(ordered: Sequence[Tensor], body: int | None, what: str) -> None:
    """Weights lie one behind the other, from the first byte to the last, as loaders demand."""
    end = 0
    for tensor in ordered:
        if tensor.start != end:
            how = "overlaps another one" if tensor.start < end else "lies behind a hole"
            raise bad(f"{what}: the header's {tensor.name[:80]!r}", how)
        end += tensor.size
    if body is not None and body > end:
        raise bad(what, f"ends with {body - end} bytes that no weight has")


def files_of(index: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """The files that ``model.safetensors.index.json`` names; plain names only.

    Raises:
        FindingError: It names none, too many, or one outside of the checkpoint.
    """
    named = index.get("weight_map")
    if not isinstance(named, dict) or not named:
        raise bad(what, "has no weight_map")
    files = sorted({str(name) for name in named.values()})
    wrong = [name for name in files if not _FILE_NAME.fullmatch(name)]
    if wrong:
        raise bad(what, f"names {wrong[0][:80]!r}, which is no safetensors file beside it")
    if len(files) > MOST_FILES:
        raise bad(what, f"names {len(files)} files, more than {MOST_FILES}")
    return tuple(files)


def _tensor(name: str, entry: object, body: int | None, what: str) -> Tensor:
    where = f"{what}: the header's {name[:80]!r}"
    if not isinstance(entry, dict):
        raise bad(where, "is no object")
    dtype: Any
    shape: Any
    span: Any
    dtype, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise bad(where, "has no dtype")
    if not _counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise bad(where, "has no shape")
    if not _counts(span) or len(span) != len(("start", "end")) or span[0] > span[1]:
        raise bad(where, "has no data_offsets")
    size = span[1] - span[0]
    if dtype not in _BYTES and dtype not in _PACKED:
        raise bad(where, f"has the dtype {dtype}, which safetensors does not have")
    if dtype in _BYTES and size != math.prod(shape) * _BYTES[dtype]:
        raise bad(where, f"has {size} bytes, not those of {dtype} {list(shape)}")
    if body is not None and span[1] > body:
        raise bad(where, "lies behind the file's end")
    return Tensor(name, dtype, tuple(shape), size, span[0])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 48 for one in value)
