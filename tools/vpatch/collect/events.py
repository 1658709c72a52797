"""What the engine's process tells, line by line, while it runs and after it was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
_PIECE = 1 << 20


class Events:
    """Reads a file that grows; a line counts when its end is there.

    Args:
        path: The file; it may be missing yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""

    def more(self) -> Iterator[Event]:
        """The events that came since the last time."""
        try:
            stream = self._path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            stream.seek(self._at)
            while piece := stream.read(_PIECE):
                self._at += len(piece)
                *whole, self._rest = (self._rest + piece).split(b"\n")
                for line in whole:
                    event = _event(line)
                    if event is not None:
                        yield event


def _event(line: bytes) -> Event | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # torn by a power cut: its prompt is run again
    return found if isinstance(found, dict) else None
