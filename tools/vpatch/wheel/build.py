"""Upstream's wheel and a patched tree to one patched wheel.

The wheel is spliced: members that no patch touches keep their compressed bytes, so the compiled
libraries are the ones that upstream built and the result is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.version import Version

from vpatch.errors import FindingError
from vpatch.files import sha256_file, write_atomically
from vpatch.tags import version_of
from vpatch.wheel.directory import read_archive
from vpatch.wheel.edits import PACKAGE, FileEdit, WheelEdits, sort_edits
from vpatch.wheel.given import is_vllm
from vpatch.wheel.meta import (
    PROVENANCE_FILE,
    VERSION_FILE,
    Distribution,
    read_distribution,
    with_label,
    with_metadata_version,
    with_source_version,
)
from vpatch.wheel.parts import Plan, check_record, complete_parts
from vpatch.wheel.provenance import (
    ADDED,
    CHANGED,
    REMOVED,
    BaseRecord,
    FileRecord,
    Origin,
    Provenance,
)
from vpatch.wheel.splice import splice


@dataclass(frozen=True)
class BuiltWheel:
    """A finished wheel.

    Attributes:
        path: The wheel; its checksum file lies beside it.
        checksum: ``NAME.whl.sha256``, as ``sha256sum --check`` reads it.
        provenance: What the wheel carries about itself, with the changed files.
    """

    path: Path
    checksum: Path
    sha256: str
    size: int
    name: str
    version: str
    provenance: Provenance

    def as_dict(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        files = self.provenance.files
        return {
            "wheel": str(self.path),
            "sha256": self.sha256,
            "size": self.size,
            "name": self.name,
            "version": self.version,
            "base": asdict(self.provenance.base),
            **{
                kind: [file.path for file in files if file.change == kind]
                for kind in (CHANGED, ADDED, REMOVED)
            },
            "outside": list(self.provenance.outside),
        }


def build_wheel(
    base_wheel: Path,
    edits: Iterable[FileEdit],
    origin: Origin,
    *,
    out: Path,
    expected_sha256: str | None = None,
) -> BuiltWheel:
    """Splices a patched wheel out of a built one.

    Args:
        base_wheel: Upstream's wheel, or another build of the same release.
        edits: What the patched tree changes (``wheeledits.edits_between``).
        origin: The pin and the series, for the version and the provenance.
        out: The folder for the wheel and its checksum.
        expected_sha256: What the base has to be; None where nobody has said.

    Raises:
        FindingError: the base is not a wheel of this vLLM release, is not made from the source
            that the patches are for, or a patch needs a compiler.
        HostError: the base has another sha256, or the disk refuses.
    """
    base = read_distribution(read_archive(base_wheel))
    check_release(base, origin.tag)
    check_record(base)
    wheel_edits = sort_edits(base.archive, edits, origin.paths)
    # vpatch.json names the base's hash, so it has to be known before the pass that proves it.
    sha256 = expected_sha256 or sha256_file(base_wheel)
    pinned = sha256 in origin.base_hashes
    version = with_label(base.version, origin.label)
    stem = f"{base.stem.partition('-')[0]}-{version}"
    provenance = Provenance(
        version=str(version),
        origin=origin,
        base=BaseRecord("wheel", base_wheel.name, sha256, str(base.version), pinned),
        files=tuple(_file_records(wheel_edits)),
        outside=wheel_edits.outside,
    )
    renamed = replace(base, version=version, stem=stem)
    plan = Plan(base, renamed, wheel_edits, rewritten_texts(base, version))
    return _write(plan, provenance, out)


def seal_wheel(built: Path, edits: Iterable[FileEdit], origin: Origin, *, out: Path) -> BuiltWheel:
    """Puts the provenance into a wheel that upstream's own build made of the patched tree.

    Args:
        built: The wheel as the build left it; its version has the label already.
        edits: What the patched tree changed.
        origin: The pin and the series.
        out: The folder for the wheel and its checksum.

    Raises:
        FindingError: the build made a wheel of something else.
        HostError: the disk refuses.
    """
    base = read_distribution(read_archive(built))
    check_release(base, origin.tag)
    check_record(base)
    files, outside = _built_records(base, edits)
    provenance = Provenance(
        version=str(base.version),
        origin=origin,
        base=BaseRecord("source", "", "", str(base.version), pinned=False),
        files=files,
        outside=outside,
    )
    return _write(Plan(base, base, WheelEdits((), (), (), ()), {}), provenance, out)


def _built_records(
    built: Distribution, edits: Iterable[FileEdit]
) -> tuple[tuple[FileRecord, ...], tuple[str, ...]]:
    files, outside = [], []
    for edit in sorted(edits, key=lambda edit: edit.path):
        present = edit.path in built.archive.by_name
        if edit.path.startswith(PACKAGE) and present == (edit.data is not None):
            files.append(_file_record(edit))
        else:
            outside.append(edit.path)
    return tuple(files), tuple(outside)


def _file_records(edits: WheelEdits) -> Iterator[FileRecord]:
    return (_file_record(edit) for edit in edits.inside)


def _file_record(edit: FileEdit) -> FileRecord:
    change = REMOVED if edit.data is None else CHANGED if edit.old_blob else ADDED
    return FileRecord(edit.path, change, edit.old_blob or "", edit.new_blob or "")


def rewritten_texts(base: Distribution, version: Version) -> dict[str, bytes]:
    """The members that carry the version, by the name that they have in the base."""
    archive = base.archive
    metadata = f"{base.dist_info}/METADATA"
    source = archive.read(VERSION_FILE)
    return {
        VERSION_FILE: with_source_version(archive.path, source, base.version, version),
        metadata: with_metadata_version(archive.read(metadata), version),
    }


def _write(plan: Plan, provenance: Provenance, out: Path) -> BuiltWheel:
    target = plan.target
    parts = complete_parts(plan, provenance.to_json())
    path = out / f"{target.stem}-{target.rest}.whl"
    spliced = splice(plan.base.archive, parts, path, expected_sha256=provenance.base.sha256 or None)
    checksum = path.with_name(path.name + ".sha256")
    write_atomically(checksum, f"{spliced.sha256}  {path.name}\n".encode())
    return BuiltWheel(
        path=path,
        checksum=checksum,
        sha256=spliced.sha256,
        size=spliced.size,
        name=target.name,
        version=str(target.version),
        provenance=provenance,
    )


def check_release(base: Distribution, tag: str) -> None:
    """Refuses a wheel that is not an unpatched vLLM of this release.

    Raises:
        FindingError: another project, another release, or a wheel that vpatch made.
    """
    name = base.archive.path.name
    if not is_vllm(base) or VERSION_FILE not in base.archive.by_name:
        raise FindingError(
            f"{name} is not a wheel of vLLM: it is {base.name} {base.version}",
            hint=f"Give --base a build of vLLM {tag}, or leave it out for upstream's wheel.",
            code="wrong-base",
        )
    if f"{base.dist_info}/{PROVENANCE_FILE}" in base.archive.by_name:
        raise FindingError(
            f"{name} is patched already: it carries {PROVENANCE_FILE}",
            hint=f"Give --base an unpatched build of vLLM {tag}.",
            code="wrong-base",
        )
    if Version(base.version.public) != version_of(tag):
        raise FindingError(
            f"{name} is vLLM {base.version}, and the series is for {tag}",
            hint=f"Give --base a build of vLLM {tag}.",
            code="wrong-base",
        )
