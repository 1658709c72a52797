"""Files of a set read beside each other, in processes where they are local."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import BinaryIO, Protocol, TypeVar

from vpatch.collect.content import Wanted, read_content
from vpatch.collect.file import Shape, finding
from vpatch.collect.place import Place
from vpatch.errors import FindingError, HostError
from vpatch.findings import Finding
from vpatch.smoke.engine.parent import end_with_parent

_WORTH_PROCESSES = 256 << 20  # they take a moment to start
_WAITING = 4  # answers for each that reads, while the first of them is a large file's


@dataclass(frozen=True)
class Job:
    """A file, and what it has to be.

    Attributes:
        wanted: The samples in it.
        shape, shard, norm, layers: As `content.read_content` takes them.
    """

    file: str
    size: int
    sha256: str
    wanted: tuple[Wanted, ...]
    shape: Shape | None
    shard: bool
    norm: bool
    layers: Sequence[int]


@dataclass(frozen=True)
class Told:
    """What a file was: its bytes, and what is wrong with it."""

    size: int
    findings: tuple[Finding, ...]


class Sized(Protocol):
    """What was read of a file."""

    @property
    def size(self) -> int:
        """Its bytes."""


Asked = TypeVar("Asked")
Found = TypeVar("Found", bound=Sized)


def opened(place: Place, name: str) -> tuple[BinaryIO, int] | Finding:
    """A file and its bytes, or why it cannot be read."""
    try:
        return place.open(name)
    except FileNotFoundError:
        return finding(name, "missing", "is missing")
    except FindingError as error:
        return finding(name, error.code, error.message)
    except OSError as error:
        return finding(name, "unreadable", f"cannot be read: {error}")


def check(place: Place, job: Job) -> Told:
    """Reads one file."""
    there = opened(place, job.file)
    if isinstance(there, Finding):
        return Told(0, (there,))
    stream, size = there
    with stream:
        try:
            content = read_content(
                stream,
                size,
                job.file,
                job.wanted,
                shape=job.shape,
                shard=job.shard,
                norm=job.norm,
                layers=job.layers,
            )
        except OSError as error:
            return Told(0, (finding(job.file, "unreadable", f"cannot be read: {error}"),))
    found = list(content.findings)
    if content.size != job.size:
        said = f"has {content.size} bytes, and {job.size} were written"
        found.append(finding(job.file, "size", said))
    if content.sha256 != job.sha256:
        found.append(finding(job.file, "checksum", "has other bytes than were written"))
    return Told(content.size, tuple(found))


def run_jobs(
    jobs: Iterator[Asked],
    look: Callable[[Place, Asked], Found],
    place: Place,
    at_once: int,
    size: int,
    told: Callable[[Found], None],
    advance: Callable[[int], None],
) -> None:
    """Reads files, so many at once, and tells of them in their order.

    Args:
        jobs: The files.
        look: Reads one of them: `check`, or another function of a module.
        place: Where they are.
        at_once: How many are read beside each other.
        size: Bytes of all of them, about.
        told: Gets each one's answer, in this thread.
        advance: Gets the bytes of each one.

    Raises:
        HostError: A process that read files was killed.
    """

    def ended(one: Found) -> None:
        told(one)
        advance(one.size)

    if at_once == 1 or size < _WORTH_PROCESSES:
        for job in jobs:
            ended(look(place, job))
        return
    with _pool(place, at_once) as pool:
        try:
            _all(pool, jobs, look, place, at_once, ended)
        except BrokenProcessPool as error:
            raise HostError(
                "a process that read the set was killed", hint="Run it again with --jobs 1."
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _all(
    pool: Executor,
    jobs: Iterator[Asked],
    look: Callable[[Place, Asked], Found],
    place: Place,
    at_once: int,
    ended: Callable[[Found], None],
) -> None:
    running: deque[Future[Found]] = deque()
    for job in jobs:
        running.append(pool.submit(look, place, job))
        if len(running) >= _WAITING * at_once:
            ended(running.popleft().result())
    for one in running:
        ended(one.result())


def _pool(place: Place, at_once: int) -> Executor:
    if place.folder is None:
        return ThreadPoolExecutor(at_once)  # what takes time there is the network
    return ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who waits for it ends it
    end_with_parent()


def usual_jobs() -> int:
    """How many files are read beside each other where nobody says it."""
    return min(len(os.sched_getaffinity(0)), 4)
