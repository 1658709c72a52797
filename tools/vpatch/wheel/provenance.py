"""Where a patched wheel comes from, as the wheel carries it: ``*.dist-info/vpatch.json``.

Only facts that are the same on every machine: no paths, no times, not which kind of source the
patched tree was computed from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from vpatch.errors import FindingError
from vpatch.patches.pin import Pin
from vpatch.patches.series import Series

SCHEMA = "vpatch/wheel/1"

CHANGED = "changed"
ADDED = "added"
REMOVED = "removed"
_KINDS = (CHANGED, ADDED, REMOVED)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class SourceTrees:
    """The trees of one kind of source.

    Attributes:
        kind: ``sdist``, ``wheel`` or ``git``.
        base_tree, patched_tree: Git tree ids before and after the series.
    """

    kind: str
    base_tree: str
    patched_tree: str


@dataclass(frozen=True)
class PatchRecord:
    """One patch of the series that is in the wheel."""

    file: str
    subject: str
    topic: str
    sha256: str


@dataclass(frozen=True)
class Origin:
    """What is put into a wheel.

    Attributes:
        tool: The tool's version.
        tag: The pinned release.
        revision: N of ``+kimi.N``.
        commit: Upstream's commit as the pin has it.
        series_sha256: Over the names and bytes of all patches.
        trees: The pin's trees, for each kind of source.
        patches: The series, in order.
        paths: Every path that the series touches; not in the file.
        label: The local version label (``kimi.N``).
        base_hashes: sha256 of the wheels that the pin names; not in the file.
    """

    tool: str
    tag: str
    revision: int
    commit: str
    series_sha256: str
    trees: tuple[SourceTrees, ...]
    patches: tuple[PatchRecord, ...]
    paths: tuple[str, ...]
    label: str
    base_hashes: tuple[str, ...]


@dataclass(frozen=True)
class BaseRecord:
    """The wheel that the rest was taken from.

    Attributes:
        kind: ``wheel`` (upstream's or another published wheel) or ``source`` (upstream's build
            ran in the patched tree; there is no base file).
        file: Its name; empty for ``source``.
        sha256: Its hash; empty for ``source``.
        version: Its version.
        pinned: Whether the pin names this very file.
    """

    kind: str
    file: str
    sha256: str
    version: str
    pinned: bool


@dataclass(frozen=True)
class FileRecord:
    """One file of the wheel that is not upstream's.

    Attributes:
        change: ``changed``, ``added`` or ``removed``.
        before, after: Git blob ids; empty where there is no file.
    """

    path: str
    change: str
    before: str
    after: str


@dataclass(frozen=True)
class Provenance:
    """The contents of ``vpatch.json``.

    Attributes:
        version: The wheel's version.
        outside: Paths that the series touches and no wheel carries.
    """

    version: str
    origin: Origin
    base: BaseRecord
    files: tuple[FileRecord, ...]
    outside: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The object as ``--json`` and the file have it."""
        origin = self.origin
        return {
            "schema": SCHEMA,
            "tool": {"name": "vpatch", "version": origin.tool},
            "version": self.version,
            "base": asdict(self.base),
            "pin": {
                "tag": origin.tag,
                "revision": origin.revision,
                "label": origin.label,
                "commit": origin.commit,
                "series_sha256": origin.series_sha256,
                "trees": [asdict(tree) for tree in origin.trees],
            },
            "patches": [asdict(patch) for patch in origin.patches],
            "files": [asdict(file) for file in self.files],
            "outside": list(self.outside),
        }

    def to_json(self) -> bytes:
        """The file, in a fixed order."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False).encode("utf-8") + b"\n"


def origin_of(pin: Pin, series: Series, *, tool: str) -> Origin:
    """What a pin and its series say about themselves.

    Args:
        pin: The pin of the release.
        series: Its series.
        tool: The tool's version.
    """
    return Origin(
        tool=tool,
        tag=pin.tag,
        revision=pin.revision,
        commit=pin.commit,
        series_sha256=series.sha256,
        trees=tuple(
            SourceTrees(kind, source.base_tree, source.patched_tree)
            for kind, source in sorted(pin.sources.items())
        ),
        patches=tuple(
            PatchRecord(patch.file, patch.subject, patch.topic, patch.sha256)
            for patch in series.patches
        ),
        paths=series.paths,
        label=pin.local_version,
        base_hashes=tuple(wheel.sha256 for wheel in pin.wheels.values()),
    )


def parse_provenance(raw: bytes) -> Provenance:
    """Reads ``vpatch.json``, trusting nothing.

    Raises:
        FindingError: not JSON, another schema, a missing key or a value that cannot be one.
    """
    try:
        data = json.loads(raw)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else None
            raise _damaged(f"its schema is {found!r}, not {SCHEMA!r}")
        return _provenance(data)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _provenance(data: Mapping[str, Any]) -> Provenance:
    pin = data["pin"]
    patches = tuple(_record(PatchRecord, one) for one in data["patches"])
    files = tuple(_record(FileRecord, one) for one in data["files"])
    base = _record(BaseRecord, data["base"])
    for text, pattern in (
        *((patch.sha256, _SHA256) for patch in patches),
        *((file.before, _BLOB) for file in files if file.change != ADDED),
        *((file.after, _BLOB) for file in files if file.change != REMOVED),
        *((base.sha256, _SHA256) for _ in [0] if base.kind == "wheel"),
        (pin["series_sha256"], _SHA256),
    ):
        if not pattern.fullmatch(text):
            raise _damaged(f"{text!r} is not a hash")
    if any(file.change not in _KINDS for file in files):
        raise _damaged("a file has an unknown kind of change")
    origin = Origin(
        tool=_text(data["tool"]["version"]),
        tag=_text(pin["tag"]),
        revision=int(pin["revision"]),
        commit=_text(pin["commit"]),
        series_sha256=_text(pin["series_sha256"]),
        trees=tuple(_record(SourceTrees, one) for one in pin["trees"]),
        patches=patches,
        paths=(),
        label=_text(pin["label"]),
        base_hashes=(),
    )
    outside = tuple(_text(path) for path in data["outside"])
    return Provenance(_text(data["version"]), origin, base, files, outside)


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    names = [field.name for field in fields(kind)]
    return kind(**{name: value[name] if name == "pinned" else _text(value[name]) for name in names})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _damaged(problem: str) -> FindingError:
    return FindingError(
        f"vpatch.json in the wheel cannot be read: {problem}",
        hint="Build the wheel again, or inspect it with the vpatch that made it.",
        code="bad-provenance",
    )
