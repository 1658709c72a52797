"""Many samples in one safetensors file: tensors of each under its number."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from vpatch.collect.layout import TOKENS, tensor_name
from vpatch.collect.lines import Sample, Shard
from vpatch.files import disk_errors
from vpatch.preflight.headers import Header, Tensor, read_whole_header

MOST_SAMPLES = 4096
_ALIGNED = 8
_CHUNK = 1 << 20


def write_shard(
    path: Path, name: str, files: Mapping[Path, Sample], layers: Sequence[int], kinds: Sequence[str]
) -> Shard:
    """Writes samples' own files into one; its bytes are on the disk when this returns.

    Args:
        path: The file.
        name: What it will be called in the set.
        files: Each sample's own file, whole and checked.
        layers: The ids of the set's layers.
        kinds: The tensors of a sample.

    Returns:
        The shard's line.
    """
    headers = {file: _header_of(file) for file in files}
    # Token ids first: what has wide numbers has to begin where such numbers may.
    order = sorted(kinds, key=lambda kind: kind != TOKENS)
    digest = hashlib.sha256()
    with disk_errors(path), path.open("wb") as out:
        first = _head(headers, files, layers, order)
        digest.update(first)
        out.write(first)
        for kind in order:
            for file in files:
                with file.open("rb") as source:
                    _copy(source, headers[file], kind, out, digest)
        out.flush()
        os.fsync(out.fileno())
        size = out.tell()
    return Shard(name, size, digest.hexdigest(), len(files))


def _header_of(file: Path) -> Header:
    with file.open("rb") as stream:

        def piece(start: int, count: int) -> bytes:
            stream.seek(start)
            return stream.read(count)

        return read_whole_header(piece, file.stat().st_size, file.name)


def _head(
    headers: Mapping[Path, Header],
    files: Mapping[Path, Sample],
    layers: Sequence[int],
    order: Sequence[str],
) -> bytes:
    metadata = {"format": "vpatch-shard/1", "layers": json.dumps(list(layers))}
    described: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for kind in order:
        for file, sample in files.items():
            tensor: Tensor = headers[file].tensors[kind]
            described[tensor_name(kind, sample.number)] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [at, at + tensor.size],
            }
            at += tensor.size
    raw = json.dumps(described, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % _ALIGNED)
    return struct.pack("<Q", len(raw)) + raw


def _copy(
    source: BinaryIO, header: Header, kind: str, out: BinaryIO, digest: hashlib._Hash
) -> None:
    tensor = header.tensors[kind]
    source.seek(header.end + tensor.start)
    left = tensor.size
    while left and (chunk := source.read(min(left, _CHUNK))):
        digest.update(chunk)
        out.write(chunk)
        left -= len(chunk)
