"""``vpatch pin``: write or check what exactly a series is made for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.pinning import check_pin, make_pin
from vpatch.patches.repo import existing_series
from vpatch.patches.series import Series
from vpatch.patches.swap import Replacement, replacing
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain
from vpatch.tags import parse_tag, version_of
from vpatch.upstream.mirror import Kind, Mirror, Release

if TYPE_CHECKING:
    from vpatch.upstream.index import Arch, Artifact

PROJECT = "vllm"
ARCHES: tuple[Arch, ...] = ("x86_64", "aarch64")


@dataclass(frozen=True)
class _Evidence:
    """Everything that a pin is made from."""

    series: Series
    before: Pin | None
    releases: tuple[Release, ...]
    wheels: tuple[Artifact, ...]


def run(tag: str, repo: Path, upstream: Upstream, *, check: bool) -> Report:
    """Writes ``pin.toml``, or says what is wrong with it.

    Raises:
        UsageError: there is no series, or with ``check`` no pin.
    """
    tag = parse_tag(tag)
    folder = existing_series(repo, tag)
    if check:
        return _checked(tag, Mirror.open(upstream.cache), _gather(tag, folder, upstream))
    with replacing(folder, on_wait=upstream.progress.say) as place:
        return _written(tag, place, upstream)


def _written(tag: str, place: Replacement, upstream: Upstream) -> Report:
    evidence = _gather(tag, place.folder, upstream)
    mirror = Mirror.open(upstream.cache)
    made = make_pin(
        mirror.git,
        series=evidence.series,
        releases=evidence.releases,
        wheels=evidence.wheels,
        previous=evidence.before,
    )
    path = place.folder / PIN
    changed = evidence.before is None or made.to_toml() != evidence.before.to_toml()
    if changed:
        place.write_file(PIN, made.to_toml())
    return Report(
        "pin",
        {"tag": tag, "file": str(path), "changed": changed, "revision": made.revision},
        plain(f"{tag}: {'wrote' if changed else 'kept'} {path}, revision {made.revision}"),
    )


def _checked(tag: str, mirror: Mirror, evidence: _Evidence) -> Report:
    pin = evidence.before
    if pin is None:
        raise UsageError(f"{tag} has no pin to check", hint=f"vpatch pin {tag}", code="no-pin")
    findings = check_pin(
        mirror.git,
        pin=pin,
        series=evidence.series,
        releases=evidence.releases,
        wheels=evidence.wheels,
    )
    exact = plain(f"{tag}: the pin is exact, revision {pin.revision}")
    return Report(
        "pin",
        {"tag": tag, "findings": [finding.as_dict() for finding in findings]},
        lines(*(plain(str(finding)) for finding in findings)) if findings else exact,
        exit_code=1 if findings else 0,
    )


def _gather(tag: str, folder: Path, upstream: Upstream) -> _Evidence:
    before = Pin.read(folder / PIN) if (folder / PIN).is_file() else None
    return _Evidence(
        series=Series.read(folder, tag),
        before=before,
        releases=tuple(_fetch_kind(tag, upstream, before, kind) for kind in _kinds(upstream)),
        wheels=listed_wheels(tag),
    )


def listed_wheels(tag: str) -> tuple[Artifact, ...]:
    """Upstream's wheels of a release, as the index lists them."""
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    index = Index.from_pip_config()
    wheels = (index.find(PROJECT, version_of(tag), "wheel", arch) for arch in ARCHES)
    return tuple(wheel for wheel in wheels if wheel is not None)


def every_source(tag: str, upstream: Upstream, before: Pin | None) -> tuple[Release, ...]:
    """A release in every kind of source that there is of it: some have no sdist.

    Args:
        before: Its pin, whose kinds there have to be.

    Raises:
        UsageError: there is no such release.
        HostError: network, disk, hash, hostile archive.
    """
    releases = (_fetch_or_none(tag, upstream, before, kind) for kind in _kinds(upstream))
    return tuple(release for release in releases if release is not None)


def _fetch_or_none(tag: str, upstream: Upstream, before: Pin | None, kind: Kind) -> Release | None:
    wanted = kind != "sdist" or (before is not None and kind in before.sources)
    try:
        return _fetch_kind(tag, upstream, before, kind)
    except UsageError as error:
        if wanted or error.code != "unknown-tag":
            raise
        return None


def _kinds(upstream: Upstream) -> tuple[Kind, ...]:
    if upstream.kind is not None:
        return (upstream.kind,)
    return ("sdist", "wheel", "git") if upstream.git_url is not None else ("sdist", "wheel")


def _fetch_kind(tag: str, upstream: Upstream, before: Pin | None, kind: Kind) -> Release:
    if kind == "git":
        only = Upstream(upstream.cache, upstream.git_url, None, upstream.progress)
    else:
        only = Upstream(upstream.cache, None, kind, upstream.progress)
    return pipeline.fetch(tag, only, before)[1]
