"""The ``index`` lines of a series: each patch names the blobs that the one before it left.

Three-way merges find their base by these ids, so a stale one makes the next rebase blind. What a
pin and the patches say is enough to check them: no release is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.findings import Finding
from vpatch.git import blob_id
from vpatch.patches.diff import FileChange
from vpatch.patches.patch import Patch
from vpatch.patches.pin import Pin
from vpatch.patches.place import applied_in_place
from vpatch.patches.series import Series

_NOTHING = "0"


def chain_findings(series: Series, pin: Pin | None) -> tuple[Finding, ...]:
    """The blob ids that do not fit together.

    Args:
        series: The patches, in order; findings name their files in its folder.
        pin: What is known of the base; without it the first id of each file is believed.
    """
    state = _State(series, pin)
    return tuple(
        finding
        for patch in series.patches
        for change in patch.files
        for finding in state.take(patch, change)
    )


class _State:
    """Every touched file's blob id, patch by patch, and its bytes where the series made them."""

    def __init__(self, series: Series, pin: Pin | None) -> None:
        self.folder = series.folder
        self.pinned = pin is not None
        self.blobs = dict(pin.blobs) if pin else {}
        self.gone: set[str] = set()
        self.contents: dict[str, bytes] = {}

    def take(self, patch: Patch, change: FileChange) -> Iterator[Finding]:
        message = self._before(change) or self._after(change)
        if message:
            name = str(self.folder / patch.file)
            yield Finding(name, change.line, "blob-chain", message)
        self._move(change)

    def _before(self, change: FileChange) -> str:
        path = change.path_old
        if path is None:
            there = change.path in self.blobs and change.path not in self.gone
            return f"the patch makes {change.path}, which is already there" if there else ""
        known = self.blobs.get(path)
        if path in self.gone or (known is None and self.pinned):
            return f"the patch changes {path}, which is not there"
        if known and change.blob_old and not known.startswith(change.blob_old):
            return (
                f"the index line of {path} starts from {change.blob_old[:12]}, "
                f"and the file before this patch is {known[:12]}"
            )
        return ""

    def _after(self, change: FileChange) -> str:
        data = self._made(change)
        if data is None or not change.blob_new or change.path_new is None:
            return ""
        made = blob_id(data)
        if made.startswith(change.blob_new):
            return ""
        return (
            f"the index line of {change.path} ends in {change.blob_new[:12]}, "
            f"and the lines make {made[:12]}"
        )

    def _made(self, change: FileChange) -> bytes | None:
        """The file after the change, where every byte of it comes from the series."""
        if change.binary:
            return None
        before = b"" if change.path_old is None else self.contents.get(change.path_old)
        return None if before is None else applied_in_place(before, change)

    def _move(self, change: FileChange) -> None:
        # What the patch says counts from here on: one wrong id is one finding.
        data = self._made(change)
        before = self.blobs.get(change.path_old or "", "")
        if change.path_old is not None and change.kind != "copy":
            self.blobs.pop(change.path_old, None)
            self.contents.pop(change.path_old, None)
            self.gone.add(change.path_old)
        if change.path_new is None:
            return
        self.gone.discard(change.path_new)
        blob = change.blob_new if change.blob_new.strip(_NOTHING) else before
        if blob:
            self.blobs[change.path_new] = blob
        if data is not None:
            self.contents[change.path_new] = data
