"""What carrying asks of stored resolutions: what somebody made of a patch that conflicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vpatch.patches.patch import Patch
    from vpatch.rebase.model import Conflicted, Entry, Files

    Recall = Callable[
        [Patch, Sequence[Conflicted], Files, Callable[[str], Entry | None]], "Recalled | None"
    ]
    """The patch, its conflicts, its files as far as they merge, a reader of the new tree so far."""


@dataclass(frozen=True)
class Recalled:
    """A stored resolution of exactly these conflicts.

    Attributes:
        source: The file that it stands in.
        files: All files of the patch in the new tree.
        refused: Why it is not used all the same; empty where it is.
        lines: path -> the line of ``source`` that tells of it.
    """

    source: str
    files: Files
    refused: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
