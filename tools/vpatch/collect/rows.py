"""NaN, Inf and rows of nothing, found in raw bytes as fast as they can be copied.

A number is not finite where all bits of its exponent are set. Those bits are in its last one or two
bytes (little endian): they are taken out of a chunk with a stride and looked at by table, so that
nothing here loops over numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_BYTE = 256
_NOTHING = bytes(64)


@dataclass(frozen=True)
class _Number:
    """A kind of number: its bytes, and of some of them the bits that are set where it is no one."""

    size: int
    bits: Sequence[tuple[int, int]]


NUMBERS: Mapping[str, _Number] = {
    "BF16": _Number(2, ((1, 0x7F), (0, 0x80))),
    "F16": _Number(2, ((1, 0x7C),)),
    "F32": _Number(4, ((3, 0x7F), (2, 0x80))),
    "F8_E4M3": _Number(1, ((0, 0x7F),)),
    "F8_E5M2": _Number(1, ((0, 0x7C),)),
}
"""By safetensors' word for them; states have one of these."""


@dataclass
class Rows:
    """Looks at the rows of one tensor, chunk by chunk.

    Args:
        dtype: A key of NUMBERS.
        width: Bytes of a row.
        zero_is_data: Whether a row of zeros is one like others.

    Attributes:
        wrong: Rows with a number that is none.
        first: The first of them.
        empty: Rows of zeros.
        first_empty: The first of them.
    """

    dtype: str
    width: int
    zero_is_data: bool = False
    wrong: int = 0
    first: int | None = None
    empty: int = 0
    first_empty: int | None = None
    _rows: int = field(default=0, repr=False)

    def feed(self, chunk: bytes) -> None:
        """The next rows, whole ones."""
        for row in _not_finite(NUMBERS[self.dtype], chunk, self.width):
            self.wrong += 1
            self.first = self._rows + row if self.first is None else self.first
        if not self.zero_is_data:
            for row in _empty(chunk, self.width):
                self.empty += 1
                self.first_empty = (
                    self._rows + row if self.first_empty is None else self.first_empty
                )
        self._rows += len(chunk) // self.width


def _not_finite(number: _Number, chunk: bytes, width: int) -> Iterator[int]:
    """Rows of a chunk with a number that is not finite, ascending, each once."""
    place, mask = number.bits[0]
    last = chunk[place :: number.size]
    if mask == 0x7F and last.find(0x7F) < 0 and last.find(0xFF) < 0:  # noqa: PLR2004
        return  # nearly always
    marked = last.translate(_table(mask))
    for place, mask in number.bits[1:]:
        more = chunk[place :: number.size].translate(_table(mask))
        both = int.from_bytes(marked, "little") & int.from_bytes(more, "little")
        marked = both.to_bytes(len(marked), "little")
    numbers = width // number.size
    at = marked.find(1)
    while at >= 0:
        row = at // numbers
        yield row
        at = marked.find(1, (row + 1) * numbers)


def _table(mask: int) -> bytes:
    return bytes(value & mask == mask for value in range(_BYTE))


def _empty(chunk: bytes, width: int) -> Iterator[int]:
    view = memoryview(chunk)
    start = _NOTHING[:width]
    for row, at in enumerate(range(0, len(chunk), width)):
        if view[at : at + len(start)] == start and not any(view[at : at + width]):
            yield row
