"""A pin: what exactly a series is made for, down to the last hash.

``patches/TAG/pin.toml`` is read strictly: an unknown key, a missing key, a wrong type or a value
that cannot be one is a finding that names the key. It is written in one order, so that equal pins
are equal bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from vpatch.errors import HostError
from vpatch.findings import Finding, FindingsError
from vpatch.patches.diffpath import is_inside, read_spelled, spelled
from vpatch.patches.origin import Origin, origin_table, read_origin
from vpatch.patches.tomltable import Table
from vpatch.tags import is_tag

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PIN = "pin.toml"
SCHEMA = 1
KINDS = ("sdist", "wheel", "git")
ARCHES = ("x86_64", "aarch64", "any")

_HEADING = b"# Written by `vpatch pin`; checked by `vpatch pin --check`.\n"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")  # a release's own _version.py has a short one
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Source:
    """One kind of source of a release, and what the series makes of it.

    Attributes:
        file: The archive's name; empty for git.
        sha256: The archive's hash; empty for git.
        commit: The commit that stands for it in the mirror.
        base_tree, patched_tree: Trees before and after the series.
        upstream_commit: Upstream's commit, where it is not the pin's; else empty.
    """

    file: str
    sha256: str
    commit: str
    base_tree: str
    patched_tree: str
    upstream_commit: str = ""


@dataclass(frozen=True)
class PinnedWheel:
    """Upstream's wheel for one architecture."""

    file: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Pin:
    """A release and the series for it.

    Attributes:
        revision: N of the wheels' local version ``kimi.N``.
        series_sha256: ``Series.sha256`` of the series that this revision names.
        commit: Upstream's commit, as far as the release says it: that of the wheel, which is what
            runs, where the sources are of different ones (v0.26.0).
        sources: kind (``sdist``, ``wheel``, ``git``) -> Source.
        blobs: path -> blob id at the base, for every existing file that the series touches.
        wheels: architecture -> upstream's wheel.
        origin: Where `vpatch rebase` took the series from; None where it was made by hand.
    """

    schema: int
    tag: str
    revision: int
    series_sha256: str
    commit: str
    sources: Mapping[str, Source]
    blobs: Mapping[str, str]
    wheels: Mapping[str, PinnedWheel]
    origin: Origin | None = None

    @property
    def local_version(self) -> str:
        """What a patched wheel's version carries behind its ``+``."""
        return f"kimi.{self.revision}"

    @classmethod
    def read(cls, path: Path) -> Pin:
        """Reads ``pin.toml``.

        Raises:
            FindingsError: the file is not a pin; the finding names the key.
            HostError: the file cannot be opened.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise HostError(f"{path} cannot be read: {error.strerror}", code="pin") from error
        try:
            return cls.parse(data, str(path))
        except FindingsError as error:
            hint = "Settle what a merge left in it, or bring back the committed one: git restore."
            raise FindingsError(error.findings, hint=hint) from error

    @classmethod
    def parse(cls, data: bytes, name: str) -> Pin:
        """The pin in a file's bytes; ``name`` is the file's name for findings.

        Raises:
            FindingsError: they are not a pin; the finding names the key.
        """
        try:
            table = tomllib.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            message = f"the file is not TOML: {error}"
            raise FindingsError([Finding(name, None, "bad-pin", message)]) from error
        return _read_pin(Table(table, name))

    def to_toml(self) -> bytes:
        """The file's bytes: one order, one spelling."""
        table: dict[str, Any] = {
            "schema": self.schema,
            "tag": self.tag,
            "revision": self.revision,
            "series_sha256": self.series_sha256,
            "commit": self.commit,
            "sources": {
                kind: _source_table(self.sources[kind]) for kind in KINDS if kind in self.sources
            },
            "wheels": {
                arch: {"file": wheel.file, "sha256": wheel.sha256, "size": wheel.size}
                for arch, wheel in sorted(self.wheels.items())
            },
            "blobs": {spelled(path): blob for path, blob in sorted(self.blobs.items())},
            **({"origin": origin_table(self.origin)} if self.origin else {}),
        }
        return _HEADING + tomli_w.dumps(table).encode("utf-8")


def _source_table(source: Source) -> dict[str, str]:
    archive = {"file": source.file, "sha256": source.sha256} if source.file else {}
    trees = {"base_tree": source.base_tree, "patched_tree": source.patched_tree}
    other = {"upstream_commit": source.upstream_commit} if source.upstream_commit else {}
    return {**archive, "commit": source.commit, **other, **trees}


def _read_pin(table: Table) -> Pin:
    schema = table.number("schema", 1)
    if schema != SCHEMA:
        raise table.refused("schema", f"is {schema}; this vpatch knows {SCHEMA}")
    pin = Pin(
        schema=schema,
        tag=table.text("tag", is_tag),
        revision=table.number("revision", 1),
        series_sha256=table.text("series_sha256", _SHA256.fullmatch),
        commit=table.text("commit", _COMMIT.fullmatch),
        sources=_read_sources(table.inner("sources")),
        wheels=_read_wheels(table.inner("wheels")),
        blobs=_read_blobs(table.inner("blobs")),
        origin=read_origin(table.inner("origin")) if "origin" in table.table else None,
    )
    table.end()
    return pin


def _read_sources(table: Table) -> dict[str, Source]:
    kinds = table.keys(KINDS.__contains__, f"a kind of source: {', '.join(KINDS)}")
    if not kinds:
        raise table.refused(KINDS[0], "is missing, and so is every other kind of source")
    return {kind: _read_source(table.inner(kind), kind) for kind in kinds}


def _read_source(table: Table, kind: str) -> Source:
    archive = kind != "git"
    source = Source(
        file=table.text("file", _FILE_NAME.fullmatch) if archive else "",
        sha256=table.text("sha256", _SHA256.fullmatch) if archive else "",
        commit=table.text("commit", _OBJECT_ID.fullmatch),
        base_tree=table.text("base_tree", _OBJECT_ID.fullmatch),
        patched_tree=table.text("patched_tree", _OBJECT_ID.fullmatch),
        upstream_commit=table.optional("upstream_commit", _COMMIT.fullmatch),
    )
    table.end()
    return source


def _read_wheels(table: Table) -> dict[str, PinnedWheel]:
    arches = table.keys(ARCHES.__contains__, f"an architecture: {', '.join(ARCHES)}")
    return {arch: _read_wheel(table.inner(arch)) for arch in arches}


def _read_wheel(table: Table) -> PinnedWheel:
    wheel = PinnedWheel(
        file=table.text("file", lambda name: _FILE_NAME.fullmatch(name) and name.endswith(".whl")),
        sha256=table.text("sha256", _SHA256.fullmatch),
        size=table.number("size", 1),
    )
    table.end()
    return wheel


def _read_blobs(table: Table) -> dict[str, str]:
    names = table.keys(lambda name: is_inside(read_spelled(name)), "a path inside the tree")
    return {read_spelled(name): table.text(name, _OBJECT_ID.fullmatch) for name in names}
