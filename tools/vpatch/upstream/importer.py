"""An archive's files as one commit: what belongs to upstream's tree, and the stream for git."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from vpatch.git import IDENTITY_EMAIL, IDENTITY_NAME
from vpatch.upstream.archive import Member

# Raise it when the same archive would give another tree or message: older imports are then redone.
FORMAT = 1
VERSION_FILE = "vllm/_version.py"
_LATEST = 2**33


@dataclass(frozen=True)
class Provenance:
    """What a commit says about where it came from."""

    tag: str
    kind: Literal["sdist", "wheel"]
    filename: str
    sha256: str
    upstream_commit: str | None

    def message(self) -> str:
        """The commit message; the same everywhere for the same archive."""
        lines = [
            f"vllm {self.tag}, imported from its {self.kind}",
            "",
            f"Source: {self.filename}",
            f"Source-Sha256: {self.sha256}",
            *([f"Upstream-Commit: {self.upstream_commit}"] if self.upstream_commit else []),
            f"Import-Format: {FORMAT}",
        ]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, tag: str, kind: Literal["sdist", "wheel"], message: str) -> Provenance | None:
        """Reads a message back; None if it was written by another format of import."""
        said = dict(line.split(": ", 1) for line in message.splitlines()[1:] if ": " in line)
        if said.get("Import-Format") != str(FORMAT):
            return None
        return cls(tag, kind, said["Source"], said["Source-Sha256"], said.get("Upstream-Commit"))


def wheel_member_wanted(path: str) -> bool:
    """Whether a wheel's member is read: its Python files, with the version file."""
    top = path.partition("/")[0]
    return path.endswith(".py") and not top.endswith((".dist-info", ".data"))


def added_by_packaging(member: Member) -> bool:
    """Whether upstream's repository does not have this file: the build put it into the archive."""
    top, slash, _ = member.path.partition("/")
    if member.path in {"PKG-INFO", VERSION_FILE} or (slash and top.endswith(".egg-info")):
        return True
    return member.path == "setup.cfg" and _only_egg_info(member.data)


def _only_egg_info(data: bytes) -> bool:
    # setuptools writes such a setup.cfg into every sdist.
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(data.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        return False
    return parser.sections() == ["egg_info"]


def commit_in_version_file(source: bytes) -> str | None:
    """Upstream's short commit id from ``vllm/_version.py``; the file is parsed, never run.

    Returns:
        The id without setuptools-scm's leading ``g``; None if the file does not tell one.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if "__commit_id__" in names:
                return _commit_id(node.value.value)
    return None


def _commit_id(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    text = value.removeprefix("g")
    is_hex = 7 <= len(text) <= 40 and set(text) <= set("0123456789abcdef")  # noqa: PLR2004 - git's
    return text if is_hex else None


def fast_import_stream(members: Iterable[Member], provenance: Provenance, ref: str) -> bytes:
    """Input for ``git fast-import`` that makes one commit without parents.

    Args:
        members: The files of the tree.
        provenance: For the message.
        ref: The ref to set.

    Returns:
        The stream. Its dates are the newest file's, in UTC, so nothing depends on the machine.
    """
    files = list(members)
    when = min(max((file.mtime for file in files), default=0), _LATEST)
    who = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}> {max(when, 0)} +0000"
    message = provenance.message().encode()
    head = f"commit {ref}\nauthor {who}\ncommitter {who}\n"
    parts = [head.encode(), _data(message)]
    parts.extend(_changes(files))
    parts.append(b"\ndone\n")
    return b"".join(parts)


def _changes(files: Iterable[Member]) -> Iterator[bytes]:
    for file in files:
        yield b"M %o inline %s\n" % (file.mode, _quoted(file.path))
        yield _data(file.data)


def _data(data: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(data), data)


def _quoted(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
