"""Where the series lie: the repository's ``patches/`` folder, and what is pinned there."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from vpatch.errors import HostError, UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.series import LISTING, Series
from vpatch.tags import is_tag, parse_tag, version_of

PATCHES = "patches"
REPO_VARIABLE = "VPATCH_REPO"
_MARKS = ("pyproject.toml", ".git")
_NEAREST = 3


def find_repo(start: Path, override: Path | None = None) -> Path:
    """The folder that holds ``patches/``.

    Args:
        start: Where to look from, upwards: a folder with ``patches/`` beside a
            ``pyproject.toml`` or a ``.git``.
        override: ``--repo``; else ``VPATCH_REPO`` counts, else the search.

    Raises:
        UsageError: there is none, or the chosen one has no ``patches/``.
    """
    chosen = override or (
        Path(os.environ[REPO_VARIABLE]).expanduser() if os.environ.get(REPO_VARIABLE) else None
    )
    if chosen is not None:
        if not (chosen / PATCHES).is_dir():
            name = "--repo" if override else REPO_VARIABLE
            raise UsageError(
                f"{name} names {chosen}, which has no {PATCHES}/ folder",
                hint="Name the folder that holds patches/, not patches/ itself.",
                code="no-repo",
            )
        return chosen.absolute()
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / PATCHES).is_dir() and any((folder / mark).exists() for mark in _MARKS):
            return folder
    raise UsageError(
        f"no {PATCHES}/ folder beside a pyproject.toml or .git, in {start.absolute()} or above",
        hint=f"Go to the repository, or name it with --repo DIR or {REPO_VARIABLE}.",
        code="no-repo",
    )


def series_folder(repo: Path, tag: str) -> Path:
    """Where the series of a release lies, or would lie."""
    return repo / PATCHES / parse_tag(tag)


def existing_series(repo: Path, tag: str) -> Path:
    """The folder of a release's series.

    Raises:
        UsageError: not a tag, or there is no such folder.
    """
    folder = series_folder(repo, tag)
    if not folder.is_dir():
        raise UsageError(
            f"{folder.name} has no series: there is no folder {folder}",
            hint=f"{_nearest_pins(repo, folder.name)} {_rebase_to(folder.name)}",
            code="no-series",
        )
    return folder


def pinned_tags(repo: Path) -> list[str]:
    """The releases that have a pin, oldest first."""
    tags = [path.parent.name for path in (repo / PATCHES).glob(f"*/{PIN}")]
    return sorted((tag for tag in tags if is_tag(tag)), key=version_of)


def series_tags(repo: Path) -> list[str]:
    """The releases that have a series or a pin, oldest first."""
    files = ((repo / PATCHES).glob(f"*/{name}") for name in (LISTING, PIN, "*.patch"))
    tags = {path.parent.name for found in files for path in found}
    return sorted((tag for tag in tags if is_tag(tag)), key=version_of)


def pinned(repo: Path, tag: str, *, released: Collection[str] | None = None) -> tuple[Pin, Series]:
    """The pin and the series of a release.

    Args:
        repo: What ``find_repo`` found.
        tag: The release, as the user wrote it.
        released: The releases that exist, where the caller knows them: a tag that is not among
            them is told apart from one that has no pin.

    Raises:
        UsageError: not a tag, no such release, or no pin; the nearest pins are named.
        FindingsError: the pin or the series cannot be read, or they do not belong together.
        HostError: a file cannot be opened.
    """
    tag = parse_tag(tag)
    folder = series_folder(repo, tag)
    while True:
        if not (folder / PIN).is_file():
            raise _no_pin(repo, tag, released)
        identity = folder_identity(folder)
        try:
            return _read_pinned(folder, tag)
        except (FindingsError, HostError):
            # Half of the folder that stood here, half of the one that took its place: once more.
            if folder_identity(folder) == identity:
                raise


def pinned_in(folder: Path) -> tuple[Pin, Series]:
    """The pin and the series in a folder that need not be in a repository.

    Raises:
        UsageError: the folder has no pin.
        FindingsError: the pin or the series cannot be read, or they do not belong together.
        HostError: a file cannot be opened.
    """
    if not (folder / PIN).is_file():
        raise UsageError(
            f"{folder} has no {PIN}: it is no series of a release",
            hint="`vpatch rebase FROM TO --out DIR` writes one.",
            code="no-pin",
        )
    pin = Pin.read(folder / PIN)
    hint = "Write the folder anew: vpatch rebase FROM TO --out DIR --replace."
    return pin, _belonging(pin, Series.read(folder, pin.tag), hint)


def folder_identity(folder: Path) -> tuple[int, int]:
    """What is another one as soon as another folder stands in this place."""
    try:
        status = folder.stat()
    except OSError:
        return (0, 0)
    return status.st_ino, status.st_ctime_ns


def _read_pinned(folder: Path, tag: str) -> tuple[Pin, Series]:
    pin = Pin.read(folder / PIN)
    return pin, _belonging(pin, Series.read(folder, tag), f"vpatch pin {tag}")


def _belonging(pin: Pin, series: Series, hint: str) -> Series:
    findings = pin_findings(pin, series)
    if findings:
        raise FindingsError(findings, hint=hint)
    return series


def pin_findings(pin: Pin, series: Series) -> tuple[Finding, ...]:
    """What a pin and the series beside it disagree about."""
    file = str(series.folder / PIN)
    findings: list[Finding] = []
    if pin.tag != series.tag:
        message = f"`tag` is {pin.tag} in the folder of {series.tag}"
        findings.append(Finding(file, None, "other-tag", message))
    if pin.series_sha256 != series.sha256:
        message = (
            f"the series is not the one that revision {pin.revision} names: "
            f"its hash is {series.sha256[:12]}, the pin has {pin.series_sha256[:12]}"
        )
        findings.append(Finding(file, None, "series-changed", message))
    return tuple(findings)


def nearest(tags: Collection[str], tag: str) -> list[str]:
    """The pinned releases around one, oldest first."""
    ordered = sorted(tags, key=version_of)
    place = sum(version_of(other) < version_of(tag) for other in ordered)
    around = sorted(range(len(ordered)), key=lambda n: abs(n + 0.5 - place))[:_NEAREST]
    return [ordered[n] for n in sorted(around)]


def _nearest_pins(repo: Path, tag: str) -> str:
    pins = nearest(pinned_tags(repo), tag)
    return f"Nearest pins: {', '.join(pins)}." if pins else "No release has a pin yet."


def _rebase_to(tag: str) -> str:
    """Where a series for a release comes from."""
    return f"`vpatch rebase FROM {tag}` carries the series of another release to it."


def _no_pin(repo: Path, tag: str, released: Collection[str] | None) -> UsageError:
    hint = _nearest_pins(repo, tag)
    if released is not None and tag not in released:
        return UsageError(f"there is no vLLM release {tag}", hint=hint, code="unknown-tag")
    hint = f"{hint} {_rebase_to(tag)}"
    return UsageError(f"{tag} has no pin in {repo / PATCHES}", hint=hint, code="no-pin")
