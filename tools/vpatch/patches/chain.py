"""Which files a series finds and makes, patch by patch, and which blobs it says that they are.

What a pin and the patches say is enough: no release is needed. Each ``index`` line starts from the
blob that the pin, or the patch before it, has of the file: ``git am -3`` finds its merge base by
these ids. Where it ends is known of a file that a patch makes, whose every byte it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    there = dict(pin.blobs) if pin else {}
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
    change: FileChange, there: Mapping[str, str], gone: set[str], *, pinned: bool
) -> Iterator[str]:
    path = change.path_old
    if path is None:
        if change.path in there:
            yield f"the patch makes {change.path}, which is already there"
        yield from _made(change)
    elif path in gone or (pinned and path not in there):
        yield f"the patch changes {path}, which is not there"
    elif _differ(there.get(path, ""), change.blob_old):
        yield (
            f"the index line of {path} starts from {change.blob_old[:12]}, "
            f"and the file before this patch is {there[path][:12]}"
        )


def _differ(one: str, other: str) -> bool:
    """Whether two blob ids are known and not the same; either may be cut short."""
    return not (one.startswith(other) or other.startswith(one))


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


def _move(change: FileChange, there: dict[str, str], gone: set[str]) -> None:
    before = there.get(change.path_old or "", "")
    if change.path_old is not None and change.kind != "copy":
        there.pop(change.path_old, None)
        gone.add(change.path_old)
    if change.path_new is not None:
        # What the patch says counts from here on: one wrong id is one finding. No index line: the
        # bytes are as they were (a rename, a mode), unless there are lines that say otherwise.
        there[change.path_new] = change.blob_new or ("" if change.hunks else before)
        gone.discard(change.path_new)
