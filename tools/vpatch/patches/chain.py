"""Which files a series finds and makes, patch by patch.

What a pin and the patches say is enough: no release is needed. The ids of an ``index`` line count
only where a patch makes a file, whose every byte it holds. Those of changed files may be of an
earlier series: a patch keeps its bytes when another one before it changes, and a rebase takes the
trees of the pinned base, not these ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.findings import Finding
from vpatch.git import blob_id
from vpatch.patches.diff import FileChange
from vpatch.patches.pin import Pin
from vpatch.patches.place import applied_in_place
from vpatch.patches.series import Series


def chain_findings(series: Series, pin: Pin | None) -> tuple[Finding, ...]:
    """The changes that find no file, or one that is already there.

    Args:
        series: The patches, in order; findings name their files in its folder.
        pin: What is known of the base; without it a file that no patch names is believed.
    """
    there = set(pin.blobs) if pin else set()
    gone: set[str] = set()
    found: list[Finding] = []
    for patch in series.patches:
        name = str(series.folder / patch.file)
        for change in patch.files:
            found += (
                Finding(name, change.line, "blob-chain", message)
                for message in _complaints(change, there, gone, pinned=pin is not None)
            )
            _move(change, there, gone)
    return tuple(found)


def _complaints(
    change: FileChange, there: set[str], gone: set[str], *, pinned: bool
) -> Iterator[str]:
    path = change.path_old
    if path is None:
        if change.path in there:
            yield f"the patch makes {change.path}, which is already there"
        yield from _made(change)
    elif path in gone or (pinned and path not in there):
        yield f"the patch changes {path}, which is not there"


def _made(change: FileChange) -> Iterator[str]:
    data = None if change.binary else applied_in_place(b"", change)
    if data is None or not change.blob_new:
        return
    made = blob_id(data)
    if not made.startswith(change.blob_new):
        yield (
            f"the index line of {change.path} ends in {change.blob_new[:12]}, "
            f"and the lines make {made[:12]}"
        )


def _move(change: FileChange, there: set[str], gone: set[str]) -> None:
    if change.path_old is not None and change.kind != "copy":
        there.discard(change.path_old)
        gone.add(change.path_old)
    if change.path_new is not None:
        there.add(change.path_new)
        gone.discard(change.path_new)
