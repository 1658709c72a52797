"""The samples of a set that is being made: a line is on its disk before its file has its name.

So a killed run leaves lines without files, which are dropped, and never a file without its line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vpatch.collect.blocks import Block, read_blocks
from vpatch.collect.lines import Line, line_of
from vpatch.collect.place import Place
from vpatch.collect.table import Seen
from vpatch.files import disk_errors, sync_folder


class Journal:
    """samples.jsonl in the work folder, which only grows.

    Args:
        path: The file; made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._stream = path.open("ab", buffering=0)

    def add(self, lines: Iterable[Line]) -> None:
        """Lines that are on the disk when this returns."""
        data = b"".join(map(line_of, lines))
        with disk_errors(self.path):
            view = memoryview(data)
            while view:
                view = view[self._stream.write(view) :]
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Nothing more comes."""
        self._stream.close()


def recover(path: Path, place: Place, count: int) -> Seen:
    """Reads the journal of an earlier run, and leaves in it what is there: files under their names.

    Lines that were being written, samples whose file did not get its name, and prompts that failed
    (they are tried again) are dropped.

    Args:
        path: The journal; it may be missing.
        place: Where the files are.
        count: How many prompts there are.

    Returns:
        Which samples are there.
    """
    seen = Seen(count)
    if not path.exists():
        return seen
    with disk_errors(path):
        scratch = path.with_name(f".{path.name}.tmp")
        with path.open("rb") as old, scratch.open("wb") as new:
            for one in read_blocks(old, lambda _finding: None):
                if isinstance(one, Block) and _is_there(one, place, seen):
                    for line in _lines(one):
                        new.write(line_of(line))
                    for sample in one.samples:
                        seen.put(sample.number, Seen.SAMPLE)
            new.flush()
            os.fsync(new.fileno())
        scratch.replace(path)
        sync_folder(path.parent)
    return seen


def _is_there(block: Block, place: Place, seen: Seen) -> bool:
    new = all(one.number < len(seen) and not seen[one.number] for one in block.samples)
    return new and place.size(block.file) == block.size


def _lines(block: Block) -> list[Line]:
    first: list[Line] = [] if block.shard is None else [block.shard]
    return [*first, *block.samples]
