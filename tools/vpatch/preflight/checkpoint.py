"""A checkpoint as preflight knows it: config.json and the headers of its safetensors files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from vpatch.errors import FindingError, UsageError
from vpatch.files import disk_errors
from vpatch.preflight.headers import Tensor, files_of, read_header
from vpatch.preflight.strictjson import bad, read_object

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_JSON = 16 << 20
_LARGEST_TOKENIZER = 64 << 20
_TOKENIZERS = ("tokenizer.json", "tiktoken.model", "tokenizer.model")
FC = ("fc.weight", "model.fc.weight")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class Beside:
    """A safetensors file beside a checkpoint's own: no loader reads it.

    Attributes:
        name: Of the file.
        readable: Whether it is a safetensors file.
        fc: Its `fc`, where it has one.
    """

    name: str
    readable: bool
    fc: Tensor | None


@dataclass(frozen=True)
class Checkpoint:
    """What was read of a checkpoint.

    Attributes:
        name: As the user gave it.
        local: Whether it is a folder; of those vLLM reads more before it loads them.
        config: Its config.json.
        tensors: By name; empty where the headers were not asked for, or where there are none.
        weighed: Whether it has safetensors files; True where they were not asked for.
        tokenizer: sha256 of its tokenizer files by name; of a local folder only.
        read: How many bytes were read.
        beside: Of a local folder, in order: safetensors files that its index does not name, up to
            the first file that has `fc`.
    """

    name: str
    local: bool
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: Mapping[str, str]
    read: int
    beside: tuple[Beside, ...] = ()
    weighed: bool = True


class Source(Protocol):
    """Where a checkpoint's files are."""

    def read(self, name: str, start: int, count: int) -> bytes | None:
        """Bytes [start, start + count) of a file, fewer where it ends; None: no such file."""

    def size(self, name: str) -> int | None:
        """A file's bytes, where that is known."""

    def names(self) -> tuple[str, ...] | None:
        """Its safetensors files, where they can be listed."""


class Folder:
    """A local checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, start: int, count: int) -> bytes | None:
        """See Source."""
        path = self._folder / name
        if not path.is_file():  # a pipe would wait for ever
            return None
        with disk_errors(path), path.open("rb") as file:
            file.seek(start)
            return file.read(count)

    def size(self, name: str) -> int | None:
        """See Source."""
        with disk_errors(self._folder / name):
            return (self._folder / name).stat().st_size

    def names(self) -> tuple[str, ...] | None:
        """See Source."""
        found = (path.name for path in self._folder.glob("*.safetensors") if path.is_file())
        return tuple(sorted(found))


class _Counted:
    """A source, and how much was read of it."""

    def __init__(self, source: Source, name: str) -> None:
        self.source = source
        self.name = name
        self.bytes = 0

    def read(self, name: str, start: int, count: int) -> bytes | None:
        data = self.source.read(name, start, count)
        self.bytes += len(data or b"")
        return data

    def json(self, name: str) -> dict[str, Any] | None:
        raw = self.read(name, 0, LARGEST_JSON + 1)
        if raw is None:
            return None
        if len(raw) > LARGEST_JSON:
            raise bad(f"{self.name}/{name}", f"has more than {LARGEST_JSON >> 20} MiB")
        return read_object(raw, f"{self.name}/{name}")


def read_checkpoint(name: str, *, weights: bool) -> Checkpoint:
    """Reads a local folder, or a repository of the hub.

    Args:
        name: A folder, or ``owner/name``.
        weights: Also read the headers of its safetensors files.

    Raises:
        UsageError: It is neither, or has no config.json.
        FindingError: A file is not what it has to be.
        HostError: Network or disk.
    """
    folder = Path(name)
    local = folder.is_dir()
    if not local and (folder.exists() or not _HUB_ID.fullmatch(name)):
        raise UsageError(
            f"{name} is no folder, and no OWNER/NAME of a hub",
            hint=f"Name its folder: {folder.parent}"
            if folder.is_file()
            else "Name a checkpoint's folder, or a repository as moonshotai/Kimi-K2.5.",
            code="no-checkpoint",
        )
    if not local:
        from vpatch.preflight.hub import Hub  # noqa: PLC0415 - an extra

        return _read(name, Hub(name), local=False, weights=weights)
    found = _read(name, Folder(folder), local=True, weights=weights)
    return replace(found, tokenizer=_tokenizer(folder))


def _read(name: str, source: Source, *, local: bool, weights: bool) -> Checkpoint:
    counted = _Counted(source, name)
    config = counted.json(CONFIG)
    if config is None:
        raise UsageError(
            f"{name} is no checkpoint: it has no {CONFIG}",
            hint="Name a folder or a repository with config.json and safetensors files.",
            code="no-checkpoint",
        )
    if not weights:
        return Checkpoint(name, local, config, {}, {}, counted.bytes)
    headers = {file: _header(counted, file) for file in _files(counted)}
    if not headers:
        return Checkpoint(name, local, config, {}, {}, counted.bytes, weighed=False)
    tensors = _tensors(counted, headers)
    beside = tuple(_beside(counted, headers)) if local else ()
    return Checkpoint(name, local, config, tensors, {}, counted.bytes, beside)


def _header(counted: _Counted, file: str) -> Mapping[str, Tensor]:
    what = f"{counted.name}/{file}"

    def piece(start: int, count: int) -> bytes:
        data = counted.read(file, start, count)
        if data is None:
            raise bad(what, "is not there, but the checkpoint's index names it")
        return data

    return read_header(piece, _size(counted, file), what)


def _tensors(
    counted: _Counted, headers: Mapping[str, Mapping[str, Tensor]]
) -> Mapping[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file, header in headers.items():
        if twice := sorted(found.keys() & header.keys()):
            what = f"{counted.name}/{file}"
            raise bad(what, f"has {twice[0]!r}, which another of its files has too")
        found |= header
    if not found:
        raise bad(counted.name, "holds no weights: its safetensors files' headers are empty")
    return found


def _beside(counted: _Counted, headers: Mapping[str, Mapping[str, Tensor]]) -> Iterator[Beside]:
    for name in counted.source.names() or ():
        own = headers.get(name)
        try:
            header = _header(counted, name) if own is None else own
        except FindingError:
            yield Beside(name, readable=False, fc=None)
            continue
        fc = next((header[each] for each in FC if each in header), None)
        if own is None:
            yield Beside(name, readable=True, fc=fc)
        if fc is not None:
            return


def _size(counted: _Counted, file: str) -> int | None:
    if counted.read(file, 0, 1) is None:
        return None  # told where its header is read
    return counted.source.size(file)


def _files(counted: _Counted) -> tuple[str, ...]:
    """Its safetensors files; none where it has a config alone, or weights of another format."""
    index = counted.json(INDEX)
    if index is not None:
        return files_of(index, f"{counted.name}/{INDEX}")
    listed = counted.source.names()
    if listed is None:
        listed = (SINGLE,) if counted.read(SINGLE, 0, 1) is not None else ()
    return listed


def _tokenizer(folder: Path) -> dict[str, str]:
    found = {}
    for name in _TOKENIZERS:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _LARGEST_TOKENIZER:
            with disk_errors(path):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
