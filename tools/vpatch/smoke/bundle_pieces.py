"""Cuts a bundle into pieces, for hosts that take files only in small portions."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from vpatch.errors import UsageError
from vpatch.files import disk_errors, write_atomically
from vpatch.smoke.bundle_unpack import PIECES_SCHEMA, SCHEMA

_CHUNK = 1 << 20
PIECES_FILE = "pieces.json"


@dataclass(frozen=True)
class Piece:
    """A file to carry. Its name comes from its bytes: bundles share the pieces that are the same.

    Attributes:
        group: The group of the bundle's files that it is a part of.
    """

    name: str
    size: int
    sha256: str
    group: str


@dataclass(frozen=True)
class Cut:
    """A bundle in pieces.

    Attributes:
        loads: Names of pieces that together are not larger than one piece may be: what to carry
            at a time.
    """

    folder: Path
    pieces: tuple[Piece, ...]
    loads: tuple[tuple[str, ...], ...]


def pieces(bundle: Path, size: int, folder: Path) -> Cut:
    """Cuts a bundle; the table of the pieces is written into the bundle, as ``pieces.json``.

    No piece holds parts of two groups: after a new vLLM wheel only its own pieces are new.

    Args:
        bundle: The folder that `make_bundle` wrote.
        size: The most bytes of a piece.
        folder: Where the pieces go; pieces of other bundles may lie there.

    Raises:
        UsageError: The folder is not a bundle, or the size is not positive.
        HostError: The disk refuses.
    """
    check_size(size)
    files = read_manifest(bundle)["files"]
    groups = list(dict.fromkeys(file["group"] for file in files))
    made: list[Piece] = []
    spans: dict[str, list[list[Any]]] = {}
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for group in groups:
            members = [file for file in files if file["group"] == group]
            cut = list(_cut(bundle / "files", group, members, size, folder))
            made += cut
            spans.update(_spans(members, cut))
    loads = _loads(made, size)
    table = {
        "schema": PIECES_SCHEMA,
        "size": size,
        "pieces": [asdict(piece) for piece in made],
        "loads": loads,
        "files": spans,
    }
    write_atomically(bundle / PIECES_FILE, (json.dumps(table, indent=1) + "\n").encode())
    return Cut(folder, tuple(made), tuple(map(tuple, loads)))


def check_size(size: int) -> None:
    """Refuses a size that no piece can have.

    Raises:
        UsageError: It is not positive.
    """
    if size <= 0:
        raise UsageError(f"a piece of {size} bytes is none", hint="Give a size above 0.")


def read_manifest(bundle: Path) -> dict[str, Any]:
    """A bundle's manifest.

    Raises:
        UsageError: The folder has none.
    """
    try:
        manifest = json.loads((bundle / "manifest.json").read_bytes())
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise UsageError(
            f"{bundle} is not a smoke bundle: it has no manifest.json of one",
            hint="Make one: vpatch smoke TAG --bundle DIR --have pip-list.json",
            code="no-bundle",
        )
    return manifest


def _cut(
    store: Path, group: str, members: Sequence[dict[str, Any]], size: int, folder: Path
) -> Iterator[Piece]:
    stream = _through(store / member["name"] for member in members)
    pending = b""
    number = 0
    while pending := pending or next(stream, b""):
        digest = hashlib.sha256()
        written = 0
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cutting.", delete=False) as out:
            scratch = Path(out.name)
            while pending and written < size:
                part, pending = pending[: size - written], pending[size - written :]
                digest.update(part)
                out.write(part)
                written += len(part)
                pending = pending or next(stream, b"")
        name = f"{group}-{number:03}-{digest.hexdigest()[:12]}"
        scratch.chmod(0o644)
        scratch.replace(folder / name)
        yield Piece(name, written, digest.hexdigest(), group)
        number += 1


def _through(paths: Iterator[Path]) -> Iterator[bytes]:
    for path in paths:
        stream: IO[bytes]
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk


def _spans(
    members: Sequence[dict[str, Any]], cut: Sequence[Piece]
) -> Iterator[tuple[str, list[list[Any]]]]:
    """For each file: the piece, the offset in it, the length; in order."""
    rest = [(piece.name, 0, piece.size) for piece in cut]
    for member in members:
        left = member["size"]
        parts: list[list[Any]] = []
        while left:
            name, offset, length = rest.pop(0)
            taken = min(left, length)
            parts.append([name, offset, taken])
            left -= taken
            if taken < length:
                rest.insert(0, (name, offset + taken, length - taken))
        yield member["name"], parts


def _loads(made: Sequence[Piece], size: int) -> list[list[str]]:
    loads: list[tuple[int, list[str]]] = []
    for piece in sorted(made, key=lambda piece: -piece.size):
        for index, (total, names) in enumerate(loads):
            if total + piece.size <= size:
                loads[index] = (total + piece.size, [*names, piece.name])
                break
        else:
            loads.append((piece.size, [piece.name]))
    return [names for _, names in loads]
