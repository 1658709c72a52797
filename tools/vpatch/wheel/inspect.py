"""Looks into a wheel: is every byte what RECORD and the provenance say, what differs from upstream.

Every member is decompressed and hashed, in constant memory, a few members at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from vpatch.errors import FindingError, HostError
from vpatch.files import sha256_file
from vpatch.findings import Finding
from vpatch.wheel.build import rewritten_texts
from vpatch.wheel.directory import read_archive
from vpatch.wheel.meta import (
    PROVENANCE_FILE,
    UNHASHED,
    VERSION_FILE,
    Distribution,
    read_distribution,
    record_digest,
    source_version,
    with_label,
)
from vpatch.wheel.provenance import REMOVED, FileRecord, Provenance, parse_provenance
from vpatch.wheel.zip import Archive, Member

_MOST_THREADS = 4


@dataclass(frozen=True)
class Inspection:
    """What a wheel is, and what is wrong with it.

    Attributes:
        wheel: The file.
        members: How many files it has.
        provenance: What ``vpatch.json`` says; None where there is none or it cannot be read.
        compared_with: The base wheel that it was compared with, if any.
        findings: What is wrong; empty for a wheel that is what it says.
    """

    wheel: Path
    sha256: str
    size: int
    name: str
    version: str
    platform: str
    members: int
    provenance: Provenance | None
    compared_with: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def differences(self) -> tuple[FileRecord, ...]:
        """The files that are not upstream's, as the provenance lists them."""
        return self.provenance.files if self.provenance else ()

    def as_dict(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "wheel": str(self.wheel),
            "sha256": self.sha256,
            "size": self.size,
            "name": self.name,
            "version": self.version,
            "platform": self.platform,
            "members": self.members,
            "provenance": self.provenance.as_dict() if self.provenance else None,
            "compared_with": self.compared_with,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def inspect_wheel(path: Path, *, base: Path | None = None) -> Inspection:
    """Verifies a wheel against its own RECORD and provenance.

    Args:
        path: The wheel.
        base: The wheel that it was made from: then every other member is compared with it.

    Returns:
        What it is, with a finding for everything that does not fit.

    Raises:
        FindingError: the file is no wheel at all, so that there is nothing to verify.
        HostError: a file cannot be read.
    """
    wheel = read_distribution(read_archive(path))
    sha256 = sha256_file(path)
    findings = [*_checksum_findings(path, sha256), *_record_findings(wheel)]
    provenance, problems = _read_provenance(wheel)
    findings += problems
    if provenance is not None:
        findings += _provenance_findings(wheel, provenance)
        if base is not None:
            findings += _base_findings(wheel, provenance, base)
    return Inspection(
        wheel=path,
        sha256=sha256,
        size=wheel.archive.size,
        name=wheel.name,
        version=str(wheel.version),
        platform=wheel.platform,
        members=len(wheel.record),
        provenance=provenance,
        compared_with=base.name if base else "",
        findings=tuple(findings),
    )


def _checksum_findings(path: Path, sha256: str) -> Iterator[Finding]:
    """``NAME.whl.sha256`` beside the wheel, where there is one."""
    beside = path.with_name(path.name + ".sha256")
    try:
        text = beside.read_text("utf-8", "replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise HostError(f"{beside} cannot be read: {error.strerror}", code="unreadable") from error
    if text.split() != [sha256, path.name]:
        yield Finding(beside.name, 1, "checksum", f"the wheel's sha256 is {sha256}, not this")


# RECORD


def _record_findings(wheel: Distribution) -> Iterator[Finding]:
    unhashed = {f"{wheel.dist_info}/{name}" for name in UNHASHED}
    files = [m for m in wheel.archive.members if not m.is_folder and m.name not in unhashed]
    for name in sorted(set(wheel.record) - {member.name for member in files} - unhashed):
        yield Finding(name, None, "record-extra", "RECORD lists a file that the wheel lacks")
    # The largest first: they take longest, and the small ones fill the other threads.
    files.sort(key=lambda member: -member.size)
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda member: _member_finding(wheel, member), files)
        yield from sorted((f for f in results if f is not None), key=lambda found: found.file)


def _member_finding(wheel: Distribution, member: Member) -> Finding | None:
    line = wheel.record.get(member.name)
    if line is None:
        return Finding(member.name, None, "record-missing", "RECORD does not list this file")
    if not line.digest.startswith("sha256="):
        message = f"RECORD has no sha256 for this file, but {line.digest or 'nothing'}"
        return Finding(member.name, None, "record-hash", message)
    digest = hashlib.sha256()
    try:
        for chunk in wheel.archive.chunks(member):
            digest.update(chunk)
    except FindingError as error:
        return Finding(member.name, None, "damaged", error.message)
    actual = record_digest(digest.digest())
    if (line.digest, line.size) != (actual, str(member.size)):
        message = f"RECORD says {line.digest}, {line.size} bytes; it is {actual}, {member.size}"
        return Finding(member.name, None, "record-hash", message)
    return None


# provenance


def _read_provenance(wheel: Distribution) -> tuple[Provenance | None, list[Finding]]:
    name = f"{wheel.dist_info}/{PROVENANCE_FILE}"
    if name not in wheel.archive.by_name:
        message = f"the wheel has no {PROVENANCE_FILE}: vpatch did not make it"
        return None, [Finding(name, None, "no-provenance", message)]
    try:
        return parse_provenance(wheel.archive.read(name)), []
    except FindingError as error:
        return None, [Finding(name, None, error.code, error.message)]


def _provenance_findings(wheel: Distribution, provenance: Provenance) -> Iterator[Finding]:
    name = f"{wheel.dist_info}/{PROVENANCE_FILE}"
    if provenance.version != str(wheel.version):
        message = f"it says version {provenance.version}, and the wheel is {wheel.version}"
        yield Finding(name, None, "version", message)
    if not _labelled(wheel, provenance):
        message = (
            f"version {wheel.version} is not {provenance.base.version or provenance.origin.tag} "
            f"with the label {provenance.origin.label}"
        )
        yield Finding(name, None, "version", message)
    yield from _source_version_findings(wheel, provenance)
    for record in provenance.files:
        yield from _file_findings(wheel.archive, record)


def _labelled(wheel: Distribution, provenance: Provenance) -> bool:
    base, label = provenance.base, provenance.origin.label
    if base.kind == "source":
        return _has_label(wheel.version, label)
    try:
        return with_label(Version(base.version), label) == wheel.version
    except InvalidVersion:
        return False


def _has_label(version: Version, label: str) -> bool:
    """Whether a build's version has our label; upstream's setup.py adds its own behind it."""
    return f"{version.local}.".startswith(f"{label}.")


def _source_version_findings(wheel: Distribution, provenance: Provenance) -> Iterator[Finding]:
    try:
        said = source_version(wheel.archive.path, wheel.archive.read(VERSION_FILE))
        found = Version(said)
    except FindingError as error:
        yield Finding(VERSION_FILE, None, "version", error.message)
        return
    except InvalidVersion:
        yield Finding(VERSION_FILE, None, "version", f"{said!r} is not a version")
        return
    built = provenance.base.kind == "source" and _has_label(found, provenance.origin.label)
    if found != wheel.version and not (built and found.public == wheel.version.public):
        message = f"vllm.__version__ would be {said}, and the wheel is {wheel.version}"
        yield Finding(VERSION_FILE, None, "version", message)


def _file_findings(archive: Archive, record: FileRecord) -> Iterator[Finding]:
    member = archive.by_name.get(record.path)
    if record.change == REMOVED:
        if member is not None:
            yield Finding(record.path, None, "not-removed", "the series removes this file")
        return
    if member is None:
        yield Finding(
            record.path, None, "not-there", "the series has this file, the wheel lacks it"
        )
        return
    try:
        actual = _blob_of(archive, member)
    except FindingError:
        return  # damaged: the RECORD check says so
    if actual != record.after:
        message = f"it is blob {actual[:12]}, and the series makes {record.after[:12]} of it"
        yield Finding(record.path, None, "wrong-blob", message)


def _blob_of(archive: Archive, member: Member) -> str:
    digest = hashlib.sha1(b"blob %d\0" % member.size, usedforsecurity=False)
    for chunk in archive.chunks(member):
        digest.update(chunk)
    return digest.hexdigest()


# the base


def _base_findings(wheel: Distribution, provenance: Provenance, path: Path) -> Iterator[Finding]:
    """Every member that the provenance does not name has to be the base's."""
    sha256 = sha256_file(path)
    if sha256 != provenance.base.sha256:
        message = f"the wheel was made from another file: {provenance.base.sha256}, not {sha256}"
        yield Finding(path.name, None, "wrong-base", message)
        return
    base = read_distribution(read_archive(path))
    known = {record.path for record in provenance.files} | {VERSION_FILE}
    ours, theirs = _contents(wheel), _contents(base)
    for name in sorted(set(ours) | set(theirs)):
        if name not in known and ours.get(name) != theirs.get(name):
            yield Finding(name, None, "unnamed-change", "it is not the base's, and nothing says so")
    for name, wanted in rewritten_texts(base, wheel.version).items():
        ours_name = name.replace(base.dist_info, wheel.dist_info)
        if wheel.archive.read(ours_name) != wanted:
            message = "more than its version is not the base's"
            yield Finding(ours_name, None, "unnamed-change", message)


def _contents(wheel: Distribution) -> Mapping[str, str]:
    """RECORD's hashes, without the files that carry the version."""
    folder = f"{wheel.dist_info}/"
    own = {"METADATA", PROVENANCE_FILE, *UNHASHED}
    lines = {}
    for name, line in wheel.record.items():
        inner = name.removeprefix(folder)
        if inner == name:
            lines[name] = line.digest
        elif inner not in own:
            lines[f"*.dist-info/{inner}"] = line.digest
    return lines
