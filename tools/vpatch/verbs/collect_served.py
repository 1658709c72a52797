"""``vpatch collect --verify`` of a folder that a server collects into."""

from __future__ import annotations

import time
from typing import Any

from rich.console import RenderableType

from vpatch.collect.place import Place
from vpatch.collect.reading import usual_jobs
from vpatch.collect.verify_served import Engine, Found, forms, verify_served
from vpatch.progress import Progress
from vpatch.report import Report, lines, plain
from vpatch.verbs.collect_shown import finding_lines, many, size

# What no look at the files answers.
_UNKNOWN = (
    "which requests were asked for: a server keeps no list of them",
    "what came behind the last number of each engine",
    "whether bytes changed since they were written: no checksum is kept",
)


def report(place: Place, progress: Progress, jobs: int | None) -> Report:
    """Reads all files, and says what they are. Exit 1: something is wrong with them."""
    began = time.monotonic()
    found = verify_served(place, progress, jobs=jobs or usual_jobs())
    seconds = time.monotonic() - began
    code = 1 if found.by_code else 0
    return Report("collect", _data(place, found, seconds), _text(place, found, seconds), code)


def _data(place: Place, found: Found, seconds: float) -> dict[str, Any]:
    engines = found.engines
    return {
        "set": place.name,
        "kind": "served",
        "complete": None,
        "unknown": list(_UNKNOWN),
        "engines": [_engine(one) for one in engines],
        **_sums(engines),
        "repeated": found.repeated,
        "others": found.others,
        "failures": [
            {"file": file, "id": note.request, "label": note.label, "reason": note.error}
            for file, note in found.failed
        ],
        "findings": [one.as_dict() for one in found.findings],
        "findings_by_code": dict(sorted(found.by_code.items())),
        "more_findings": found.more,
        "seconds": round(seconds, 3),
    }


def _engine(one: Engine) -> dict[str, Any]:
    said = None if one.said is None else one.said[0]
    return {
        "engine": one.name,
        "numbered": one.numbered,
        "files": len(one.files),
        "failed": len(one.notes - one.files),
        "unfinished": len(one.parts),
        "untold": one.untold,
        "rows": one.rows,
        "bytes": one.bytes,
        "dtype": None if said is None else said.shape.dtype,
        "hidden": None if said is None else said.shape.hidden,
        "layers": None if said is None else list(said.layers),
        "norm": None if said is None else said.norm,
    }


def _sums(engines: tuple[Engine, ...]) -> dict[str, int]:
    return {
        "files": sum(len(one.files) for one in engines),
        "failed": sum(len(one.notes - one.files) for one in engines),
        "untold": sum(one.untold for one in engines),
        "rows": sum(one.rows for one in engines),
        "bytes": sum(one.bytes for one in engines),
    }


def _text(place: Place, found: Found, seconds: float) -> RenderableType:
    unnamed = _sums(found.engines)["failed"] - len(found.failed)
    return lines(
        *finding_lines(found.findings, found.by_code.total()),
        *(
            plain(f"{file}: request {note.request}{_labelled(note.label)} failed: {note.error}")
            for file, note in found.failed
        ),
        plain(f"and {unnamed} more failed") if unnamed > 0 else None,
        plain(_summary(place, found, seconds)),
        *(plain(one) for one in _open(found)),
    )


def _labelled(label: str) -> str:
    return f" ({label})" if label else ""


def _summary(place: Place, found: Found, seconds: float) -> str:
    sums, count = _sums(found.engines), found.by_code.total()
    ends = many(count, "finding") if count else "each file is whole"
    failed = f", {sums['failed']} failed" if sums["failed"] else ""
    of = "; ".join(map(str, forms(found.engines)))
    return (
        f"{place.name}: a server's files, no set: {ends}: {many(sums['files'], 'file')}{failed}, "
        f"{sums['rows']} rows{f' of {of}' if of else ''}, {size(sums['bytes'])} of "
        f"{many(len(found.engines), 'engine')}, {seconds:.1f} s"
    )


def _open(found: Found) -> list[str]:
    """What the files do not tell."""
    said = ["not known: which requests were asked for; a server keeps no list, and no checksums"]
    sums = _sums(found.engines)
    if sums["untold"]:
        numbered = sum(one.numbered for one in found.engines)
        said.append(
            f"of {numbered} numbered requests {sums['untold']} left nothing: they were aborted, "
            "they run yet, or they are lost"
        )
    if found.repeated:
        said.append(f"{many(found.repeated, 'file')} with label and prompt of another one")
    if found.others:
        said.append(f"not looked at: {found.others} other entries of the folder")
    return said
