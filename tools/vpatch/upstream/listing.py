"""What one place lists for a project: an index (JSON or HTML), a page of links, or a folder."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timezone
from email.message import Message
from pathlib import Path
from typing import Literal

import pypi_simple
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from vpatch.errors import HostError
from vpatch.upstream.index import Arch, Artifact, ArtifactKind
from vpatch.upstream.session import Session, network_error
from vpatch.upstream.urls import last_part, local_path, redact, split_login

_MAX_PAGE = 64 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,250}")
_JSON_TYPE = "application/vnd.pypi.simple.v1+json"
_HTML_TYPES = frozenset({"application/vnd.pypi.simple.v1+html", "text/html"})


def read_index(session: Session, index_url: str, project: str) -> list[Artifact] | None:
    """What an index lists for a project.

    Args:
        session: Where to send requests.
        index_url: The index's base URL, or a local folder of the same form.
        project: The project's name in any spelling.

    Returns:
        The project's sdists and wheels in the index's order; None where it lacks the project.

    Raises:
        HostError: The index cannot be reached, refuses us, or its answer makes no sense.
    """
    name = canonicalize_name(project)
    folder = _folder_of(index_url)
    if folder is not None:
        page = folder / name / "index.html"
        return _local_page(page, project) if page.is_file() else None
    return _remote_page(session, f"{session.learn(index_url).rstrip('/')}/{name}/", project)


def read_find_links(session: Session, place: str, project: str) -> list[Artifact] | None:
    """The same for one of pip's find-links places: a folder, a local page or a remote page."""
    path = _folder_of(place)
    if path is None:
        return _remote_page(session, session.learn(place), project)
    if path.is_dir():
        return _from_folder(path, project)
    if path.suffix in {".html", ".htm"} and path.is_file():
        return _local_page(path, project)
    return None


def _folder_of(place: str) -> Path | None:
    if "://" in place or place.startswith("file:"):
        return local_path(place)
    return Path(place).expanduser().absolute()


def _from_folder(folder: Path, project: str) -> list[Artifact]:
    found = []
    for path in sorted(folder.iterdir()):
        artifact = _artifact(path.name, path.absolute().as_uri(), project)
        if artifact is not None and path.is_file():
            found.append(artifact)
    return found


def _local_page(path: Path, project: str) -> list[Artifact]:
    return _parse_html(path.read_bytes(), path.absolute().as_uri(), project, None, local=True)


def _remote_page(session: Session, url: str, project: str) -> list[Artifact] | None:
    with session.get(url, headers={"Accept": pypi_simple.ACCEPT_JSON_PREFERRED}) as response:
        if response.status_code in {404, 410}:
            return None
        if response.status_code != 200:  # noqa: PLR2004
            raise _bad_index(url, f"HTTP {response.status_code}")
        try:
            body = b"".join(_at_most(response.iter_content(1 << 16), url))
        except (OSError, ValueError) as error:
            raise network_error(url, error) from None
        media, charset = _content_type(response.headers.get("Content-Type", "text/html"))
        base = split_login(response.url)[0]
    if media == _JSON_TYPE:
        found = _parse_json(body, base, project)
    elif media in _HTML_TYPES:
        found = _parse_html(body, base, project, charset, local=False)
    else:
        raise _bad_index(url, f"it answers with {media}")
    return [_without_login(session, artifact) for artifact in found]


def _parse_json(body: bytes, base: str, project: str) -> list[Artifact]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pypi_simple.UnexpectedRepoVersionWarning)
            page = pypi_simple.ProjectPage.from_json_data(json.loads(body), base)
    except (ValueError, RecursionError, pypi_simple.UnsupportedRepoVersionError) as error:
        raise _bad_index(base, _first_line(error)) from None
    return list(_listed(page.packages, base, project, local=False, html=False))


def _parse_html(
    body: bytes, base: str, project: str, charset: str | None, *, local: bool
) -> list[Artifact]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pypi_simple.UnexpectedRepoVersionWarning)
            page = pypi_simple.ProjectPage.from_html(project, body, base, charset)
    except (ValueError, RecursionError, pypi_simple.UnsupportedRepoVersionError) as error:
        raise _bad_index(base, _first_line(error)) from None
    return list(_listed(page.packages, base, project, local=local, html=True))


def _listed(
    packages: Iterable[pypi_simple.DistributionPackage],
    base: str,
    project: str,
    *,
    local: bool,
    html: bool,
) -> Iterator[Artifact]:
    for package in packages:
        # pip takes a link's name from its URL: servers shorten the text of long names.
        filename = last_part(package.url) if html else package.filename
        artifact = _artifact(filename, package.url, project, package)
        if artifact is None:
            continue
        if not local and not package.url.startswith(("http://", "https://")):
            raise _bad_index(base, f"it points out of the network: {redact(package.url)}")
        yield artifact


def _artifact(
    filename: str,
    url: str,
    project: str,
    package: pypi_simple.DistributionPackage | None = None,
) -> Artifact | None:
    """None for anything that is not an sdist or wheel of this project."""
    parsed = _parse_filename(filename)
    if parsed is None or parsed[0] != canonicalize_name(project):
        return None
    _, version, kind, arch = parsed
    if package is None:
        return Artifact(filename, url, None, None, kind, version, arch)
    sha256 = package.digests.get("sha256", "").lower()
    uploaded = package.upload_time
    return Artifact(
        filename=filename,
        url=url,
        sha256=sha256 if _SHA256.fullmatch(sha256) else None,
        size=package.size,
        kind=kind,
        version=version,
        arch=arch,
        yanked=package.is_yanked,
        upload_time=uploaded.astimezone(timezone.utc).isoformat() if uploaded else None,
    )


def _parse_filename(
    filename: str,
) -> tuple[str, Version, ArtifactKind, Arch | None] | None:
    if not _SAFE_NAME.fullmatch(filename):
        return None
    try:
        if filename.endswith(".whl"):
            name, version, _, tags = parse_wheel_filename(filename)
            return name, version, "wheel", _arch({tag.platform for tag in tags})
        if filename.endswith(".tar.gz"):
            name, version = parse_sdist_filename(filename)
            return name, version, "sdist", None
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return None


def _arch(platforms: set[str]) -> Arch | None:
    known: tuple[Literal["x86_64", "aarch64"], ...] = ("x86_64", "aarch64")
    for arch in known:
        if any("linux" in name and name.endswith(f"_{arch}") for name in platforms):
            return arch
    return "any" if "any" in platforms else None


def _without_login(session: Session, artifact: Artifact) -> Artifact:
    clean = session.learn(artifact.url)
    if clean == artifact.url:
        return artifact
    return replace(artifact, url=clean)


def _at_most(chunks: Iterable[bytes], url: str) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > _MAX_PAGE:
            raise _bad_index(url, f"its listing is larger than {_MAX_PAGE >> 20} MiB")
        yield chunk


def _content_type(header: str) -> tuple[str, str | None]:
    message = Message()
    message["Content-Type"] = header
    return message.get_content_type(), message.get_content_charset()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _bad_index(url: str, reason: str) -> HostError:
    return HostError(
        f"the package index at {redact(url)} cannot be used: {redact(reason)}",
        hint="Check pip's index settings (python -m pip config list), or try again later.",
        code="bad-index",
    )
