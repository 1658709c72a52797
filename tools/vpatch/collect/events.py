"""What the engine's process tells, line by line, while it runs and after it was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
_PIECE = 1 << 20
_LONGEST = 1000
# Behind what vLLM puts before the lines of its processes: who, when, which file.
_ERROR = re.compile(rb"(?:^|\] |\) )((?:\w+\.)*\w*(?:Error|Exception): .+)", re.MULTILINE)


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


def first_error(log: Path) -> str | None:
    """The first error that an engine's log has: what a process of its own ended with."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(log.stat().st_size - _PIECE, 0))
            found = _ERROR.search(stream.read(_PIECE))
    except OSError:
        return None
    return found[1].decode("utf-8", "replace").strip()[:_LONGEST] if found else None


def _event(line: bytes) -> Event | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # torn by a power cut: its prompt is run again
    return found if isinstance(found, dict) else None
