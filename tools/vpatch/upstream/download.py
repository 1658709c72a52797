"""Verified downloads: resumed where they broke off, kept by their hash."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import requests
import urllib3.exceptions

from vpatch.errors import HostError
from vpatch.files import disk_errors, locked, sha256_file, sync_folder
from vpatch.progress import Progress
from vpatch.upstream.index import Artifact
from vpatch.upstream.session import Session, network_error
from vpatch.upstream.urls import local_path, redact

_CHUNK = 64 << 10  # what a broken connection loses at most
_MAX_SIZE = 16 << 30
_OK, _PARTIAL, _BAD_RANGE = 200, 206, 416
# requests passes most of urllib3's errors through when the raw body is read.
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError)


def download(session: Session, artifact: Artifact, folder: Path, progress: Progress) -> Path:
    """Fetches a file and verifies its sha256 while it comes in.

    Args:
        session: Where to send requests.
        artifact: What to fetch; its sha256 must be known.
        folder: The store: the file ends up at ``folder/<sha256>/<filename>``. A file that is
            already there was verified when it was put there, and is not read again.
        progress: Is told bytes.

    Returns:
        The file. For an artifact on this machine: that file itself, verified.

    Raises:
        HostError: Network, disk, or bytes that are not what the index lists.
    """
    if artifact.sha256 is None:
        raise HostError(
            f"{artifact.filename} is listed without a sha256, so it cannot be verified",
            hint="Use an index that lists sha256, or put the file into a find-links folder.",
            code="no-hash",
        )
    path = local_path(artifact.url)
    if path is not None:
        return _verified_local(path, artifact.sha256, artifact.filename)
    target = folder / artifact.sha256 / artifact.filename
    if target.is_file():
        return target
    with locked(target.parent / ".lock", on_wait=progress.say), disk_errors(target):
        if not target.is_file():
            _Download(session, artifact, target, progress).run()
    return target


def _verified_local(path: Path, expected: str, filename: str) -> Path:
    try:
        actual = sha256_file(path)
    except OSError as error:
        raise HostError(
            f"cannot read {path}: {error.strerror}",
            hint="The index names this file: check that it is there and readable.",
            code="disk",
        ) from error
    if actual != expected:
        raise _mismatch(filename, str(path), expected, actual)
    return path


@dataclass(frozen=True)
class _Broken:
    cause: Exception
    brought: bool


class _Download:
    def __init__(
        self, session: Session, artifact: Artifact, target: Path, progress: Progress
    ) -> None:
        self.session = session
        self.artifact = artifact
        self.target = target
        self.progress = progress
        self.digest = hashlib.sha256()

    def run(self) -> None:
        part = self.target.with_name(f"{self.artifact.filename}.part")
        self._check_space(part)
        resumed = self._receive(part)
        if self._wrong() and resumed:
            # What an earlier run left may be of another file: once more from the start.
            self.progress.say(f"{self.artifact.filename}: beginning again from the start")
            part.unlink()
            self._receive(part)
        if self._wrong():
            part.unlink()
            expected, actual = str(self.artifact.sha256), self.digest.hexdigest()
            raise _mismatch(self.artifact.filename, self.artifact.url, expected, actual)
        os.replace(part, self.target)  # noqa: PTH105 - named as the atomic call that it is
        sync_folder(self.target.parent)

    def _wrong(self) -> bool:
        return self.digest.hexdigest() != self.artifact.sha256

    def _receive(self, part: Path) -> bool:
        """Fills ``part`` and hashes all of it; tells whether it holds bytes of an earlier run."""
        self.digest = hashlib.sha256()
        with part.open("ab+") as stream:
            stream.seek(0)
            while chunk := stream.read(_CHUNK):
                self.digest.update(chunk)
            resumed = stream.tell() > 0
            self.progress.start(self.artifact.filename, self.artifact.size)
            self.progress.advance(stream.tell())
            try:
                self._fill(stream)
            finally:
                self.progress.done()
            stream.flush()
            os.fsync(stream.fileno())
        return resumed

    def _fill(self, stream: BinaryIO) -> None:
        failures = 0
        while (error := self._try(stream)) is not None:
            # Only tries that bring nothing count: a slow line still gets there.
            failures = 0 if error.brought else failures + 1
            if self.session.retries == 0 or failures > self.session.retries:
                raise network_error(self.artifact.url, error.cause) from None
            self.progress.say(f"{self.artifact.filename}: the connection broke off; resuming")

    def _try(self, stream: BinaryIO) -> _Broken | None:
        before = stream.tell()
        try:
            for chunk in self._chunks(stream):
                stream.write(chunk)
                self.digest.update(chunk)
                self.progress.advance(len(chunk))
        except BROKEN as error:
            return _Broken(error, brought=stream.tell() > before)
        return None

    def _chunks(self, stream: BinaryIO) -> Iterator[bytes]:
        start = stream.tell()
        if start and start == self.artifact.size:
            return
        # Not compressed on the way: some servers label a .tar.gz itself as compressed transfer.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with self.session.get(self.artifact.url, headers=headers) as response:
            if start and response.status_code == _BAD_RANGE:
                return
            if response.status_code not in {_OK, _PARTIAL} or not _starts_at(response, start):
                raise HostError(
                    f"cannot download {redact(self.artifact.url)}: HTTP {response.status_code}",
                    hint="Try again later, or check pip's index settings.",
                    code="network",
                )
            if start and response.status_code == _OK:
                # The server does not resume: it sends everything again.
                self.progress.advance(-start)
                stream.seek(0)
                stream.truncate()
                self.digest = hashlib.sha256()
            yield from self._body(response, stream)

    def _body(self, response: requests.Response, stream: BinaryIO) -> Iterator[bytes]:
        limit = self.artifact.size or _MAX_SIZE
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            if stream.tell() + len(chunk) > limit:
                raise HostError(
                    f"{redact(self.artifact.url)} sends more than the {limit} bytes that are right",
                    hint="The index or a proxy delivers another file: check pip's index settings.",
                    code="hash-mismatch",
                )
            yield chunk

    def _check_space(self, part: Path) -> None:
        there = part.stat().st_size if part.exists() else 0
        free = shutil.disk_usage(self.target.parent).free
        if self.artifact.size is not None and self.artifact.size - there > free:
            raise HostError(
                f"{self.artifact.filename} needs {self.artifact.size - there >> 20} MiB, "
                f"{self.target.parent} has {free >> 20} MiB left",
                hint="Free disk space, or point VPATCH_CACHE at a larger disk, and run it again.",
                code="disk",
            )


def _starts_at(response: requests.Response, start: int) -> bool:
    if response.status_code == _OK:
        return True
    return response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _mismatch(filename: str, url: str, expected: str, actual: str) -> HostError:
    return HostError(
        f"{filename} from {redact(url)} has sha256 {actual}, but {expected} is right",
        hint="Do not use that file: the index, a proxy or the disk changed it. Then try again.",
        code="hash-mismatch",
    )
