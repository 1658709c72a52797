"""``vpatch inspect``: is a wheel what it says, and what differs from upstream."""

from __future__ import annotations

from pathlib import Path

from rich.console import RenderableType

from vpatch.report import Report, lines, plain, table
from vpatch.wheel.given import given_wheel
from vpatch.wheel.inspect import Inspection, inspect_wheel


def run(wheel: Path, base: Path | None) -> Report:
    """Verifies RECORD and provenance; exit 1 when anything is wrong.

    Raises:
        UsageError: One of the files is not there, or no wheel of vLLM.
        FindingError: One is damaged, so that there is nothing to verify.
        HostError: One cannot be read.
    """
    for file in (wheel, base):
        if file is not None:
            given_wheel(file)
    inspection = inspect_wheel(wheel, base=base)
    return Report(
        "inspect", inspection.as_dict(), _text(inspection), exit_code=0 if inspection.ok else 1
    )


def _text(inspection: Inspection) -> RenderableType:
    files = [(file.change, file.path) for file in inspection.differences]
    count = len(inspection.findings)
    verdict = _ok(inspection) if inspection.ok else f"{count} finding{'s' if count > 1 else ''}"
    return lines(
        plain(f"{inspection.name} {inspection.version}, {inspection.platform}"),
        *_origin(inspection),
        table(("change", "file"), files) if files else None,
        *(plain(str(finding)) for finding in inspection.findings),
        plain(verdict),
    )


def _ok(inspection: Inspection) -> str:
    parts = [f"ok: all {inspection.members} files are what RECORD says"]
    if inspection.provenance:
        parts.append("the changed ones what the provenance says")
    if inspection.compared_with:
        parts.append(f"all others the bytes of {inspection.compared_with}")
    else:
        parts.append("in itself (--base compares it with upstream's bytes)")
    return ", ".join(parts)


def _origin(inspection: Inspection) -> list[RenderableType]:
    provenance = inspection.provenance
    if provenance is None:
        return [plain("no provenance: not built by vpatch")]
    origin, base = provenance.origin, provenance.base
    compared = f", compared with {inspection.compared_with}" if inspection.compared_with else ""
    return [
        plain(f"base {base.file or 'built from source'} {base.sha256}{compared}"),
        plain(
            f"series of {origin.tag}, revision {origin.revision}, {len(origin.patches)} patches, "
            f"vpatch {origin.tool}"
        ),
    ]
