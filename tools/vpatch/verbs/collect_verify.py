"""``vpatch collect --verify``: is a set of hidden states complete, is a server's file whole?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from vpatch.collect.lines import Failed
from vpatch.collect.place import Place, place_of
from vpatch.collect.reading import usual_jobs
from vpatch.collect.verify import Verified, verify
from vpatch.collect.verify_served import is_served
from vpatch.progress import Progress
from vpatch.report import Report, lines, plain
from vpatch.verbs import collect_served
from vpatch.verbs.collect_shown import finding_lines, size


def run(text: str, progress: Progress, jobs: int | None) -> Report:
    """Proves the set complete, or a server's files whole. Exit 1: something is wrong."""
    place = place_of(text)
    if is_served(place):
        return collect_served.report(place, progress, jobs)
    return report(place, progress, jobs, {})


def report(place: Place, progress: Progress, jobs: int | None, more: Mapping[str, Any]) -> Report:
    """Verifies, and says so."""
    began = time.monotonic()
    found = verify(place, progress, jobs=jobs or usual_jobs())
    seconds = time.monotonic() - began
    data = {**_data(place, found, seconds), **more}
    code = 1 if found.by_code else 0
    return Report("collect", data, _text(place, found, seconds), code)


def _data(place: Place, found: Verified, seconds: float) -> dict[str, Any]:
    shape = found.manifest.shape
    return {
        "set": place.name,
        "kind": "set",
        "complete": not found.by_code,
        **asdict(found.counts),
        "target": found.about.target,
        "vllm": found.about.vllm,
        "series": found.about.series,
        "layers": list(found.about.layers),
        "norm": found.about.norm,
        "layout": found.about.layout,
        "shape": None if shape is None else asdict(shape),
        "failures": [_failure(one) for one in found.failed],
        "findings": [one.as_dict() for one in found.findings],
        "findings_by_code": dict(sorted(found.by_code.items())),
        "more_findings": found.more,
        "read_bytes": found.read,
        "seconds": round(seconds, 3),
    }


def _failure(one: Failed) -> dict[str, Any]:
    return {"sample": one.number, "id": one.id, "reason": one.reason}


def _text(place: Place, found: Verified, seconds: float) -> RenderableType:
    failed = [
        plain(f"sample {one.number}{_called(one)} failed: {one.reason}") for one in found.failed
    ]
    unnamed = found.counts.failed - len(failed)
    return lines(
        *finding_lines(found.findings, found.by_code.total()),
        *failed,
        plain(f"and {unnamed} more failed") if unnamed > 0 else None,
        plain(_summary(place, found, seconds)),
    )


def _called(one: Failed) -> str:
    return "" if one.id is None else f" ({one.id})"


def _summary(place: Place, found: Verified, seconds: float) -> str:
    counts, shape = found.counts, found.manifest.shape
    count = found.by_code.total()
    ends = "complete" if not count else f"{count} finding{'s' if count > 1 else ''}"
    of = "" if shape is None else f" of {shape.dtype} [{shape.layers}, {shape.hidden}]"
    failed = f", {counts.failed} failed" if counts.failed else ""
    norm = " and the normed last state" if found.about.norm else ""
    return (
        f"{place.name}: {ends}: {counts.samples} of {counts.prompts} samples{failed}, "
        f"{counts.rows} rows{of}, layers {', '.join(map(str, found.about.layers))}{norm}, "
        f"{size(counts.bytes)} in {counts.files} files, {seconds:.1f} s"
    )
