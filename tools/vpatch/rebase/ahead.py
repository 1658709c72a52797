"""Files that the guard is going to ask for, read in one go: what a series' files import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vpatch.rebase.model import Carried, Entry
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import Step

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]|import[ \t]+([\w.]+))", re.MULTILINE
)
_NAMES = re.compile(rb"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+\(?([^)\n#]+)", re.MULTILINE)


def read_imported(
    old: Snapshot, new: Snapshot, steps: Sequence[Step], made: Sequence[Carried]
) -> None:
    """Reads what the files of a series import, before the series and behind it, from both trees."""
    files = {path: entry for step in steps for path, entry in step.after.items()}
    files.update({path: entry for one in made for path, entry in one.files.items()})
    wanted = set(_modules(files.items()))
    for snapshot in (old, new):
        snapshot.read_ahead(wanted)


def _modules(files: Iterable[tuple[str, Entry | None]]) -> Iterator[str]:
    for path, entry in files:
        if entry is None or not path.endswith(".py"):
            continue
        for match in _IMPORT.finditer(entry.data):
            yield from _paths(path, (match[1] or match[2] or b"").decode("utf-8", "replace"))
        for match in _NAMES.finditer(entry.data):
            module = match[1].decode("utf-8", "replace")
            for name in match[2].decode("utf-8", "replace").split(","):
                word = name.split()[:1]
                joined = f"{module}{'' if module.endswith('.') else '.'}{(word or [''])[0]}"
                yield from _paths(path, joined)


def _paths(path: str, dotted: str) -> Iterator[str]:
    """Where a module would be that a file imports."""
    up = len(dotted) - len(dotted.lstrip("."))
    stem = dotted[up:].replace(".", "/")
    if up:
        folder = "/".join(path.split("/")[:-up])
        stem = f"{folder}/{stem}".strip("/") if stem else folder
    yield f"{stem}.py"
    yield f"{stem}/__init__.py"
