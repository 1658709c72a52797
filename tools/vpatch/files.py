"""Files of our own: the cache, whole writes, locks, hashes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from vpatch.errors import HostError

_CHUNK = 1 << 20
_SPACE = "Free disk space, or {elsewhere} with more of it, and run it again."
_WRITABLE = "Make the folder writable, or {elsewhere} that is."
_NO_FOLDER = "A file stands where a folder has to be: move it, or {elsewhere}."
_NEXT_STEP = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "A folder stands where a file has to be: move it, or {elsewhere}.",
    errno.ELOOP: "A link stands where a file has to be: move it, or {elsewhere}.",
}


def cache_dir() -> Path:
    """The user's cache: ``VPATCH_CACHE``, else the platform's place. Not created here."""
    chosen = os.environ.get("VPATCH_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise HostError(
                f"VPATCH_CACHE names {chosen!r}, whose home folder nobody knows: {error}",
                hint="Name the folder with its full path.",
                code="disk",
            ) from error
    return user_cache_path("vpatch", appauthor=False)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a full, read-only or forbidden disk into a failure with a next step.

    Args:
        path: What was being written, for the message.

    Raises:
        HostError: The disk refused. Any other OSError goes through as it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NEXT_STEP:
            raise
        in_cache = path.absolute().is_relative_to(cache_dir())
        elsewhere = "point VPATCH_CACHE at another place" if in_cache else "name another place"
        raise HostError(
            f"cannot write {path}: {error.strerror}",
            hint=_NEXT_STEP[error.errno].format(elsewhere=elsewhere),
            code="disk",
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a whole file or nothing: a temporary file beside it, synced, then renamed.

    Args:
        path: The file; its folder is made where it is missing. An existing file keeps its mode.
        data: The new content.

    Raises:
        HostError: The disk is full, read-only or forbidden.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            os.replace(name, path)  # noqa: PTH105 - `name` is a str from mkstemp
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds a lock that other processes respect; it goes with the process, however that ends.

    Args:
        path: The lock file, made where it is missing. It stays behind, empty.
        on_wait: Called once with a sentence if somebody else holds the lock now.

    Raises:
        HostError: The lock file cannot be made.
    """
    with _lock(path, on_wait, keep=True):
        yield


@contextmanager
def locked_for_now(path: Path, *, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds a lock, as ``locked``, whose file goes when the block ends: nobody's place keeps it.

    Args:
        path: The lock file. One that a killed process left is taken over.
        on_wait: Called once with a sentence if somebody else holds the lock now.

    Raises:
        HostError: The lock file cannot be made or removed.
    """
    with _lock(path, on_wait, keep=False):
        yield


@contextmanager
def _lock(path: Path, on_wait: Callable[[str], None] | None, *, keep: bool) -> Iterator[None]:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _held(path, on_wait)
    try:
        yield
    finally:
        try:
            if not keep:
                with disk_errors(path):
                    path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _held(path: Path, on_wait: Callable[[str], None] | None) -> int:
    """The open file at a path, locked. Who waited for one that is gone meanwhile tries again."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            on_wait = _wait_for(handle, path, on_wait)
            if _stands_at(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait_for(
    handle: int, path: Path, on_wait: Callable[[str], None] | None
) -> Callable[[str], None] | None:
    """Locks an open file; returns what is called the next time that there is a wait."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if on_wait is not None:
            on_wait(f"waiting for another vpatch that holds {path}")
        fcntl.flock(handle, fcntl.LOCK_EX)
        return None
    return on_wait


def _stands_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def umask() -> int:
    """The process's umask."""
    # There is no way to read the umask without setting it; vpatch writes from one thread.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
