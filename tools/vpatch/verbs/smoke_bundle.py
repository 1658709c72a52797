"""``vpatch smoke --bundle``: what a GPU host without network lacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import UsageError
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain
from vpatch.scratch import scratch_folder
from vpatch.smoke.bundle_report import bundle_for
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.wheels import find_subject
from vpatch.upstream.index import Index


@dataclass(frozen=True)
class BundleOrder:
    """What a GPU host without network is to get.

    Attributes:
        name: A tag or a wheel.
        folder: Where the bundle goes.
        have: What pip listed on the host.
        pieces: The most bytes of a file; None for no limit.
        python, glibc: The host's, as ``3.12`` and ``2.35``.
        unpatched: The release as it is.
    """

    name: str
    folder: Path
    have: Path
    pieces: int | None
    python: str
    glibc: str
    unpatched: bool


def run(order: BundleOrder, repo: Path | None, upstream: Upstream) -> Report:
    """Gathers what a GPU host lacks.

    Raises:
        UsageError: The host's Python or C library is not one, or as for `find_subject`.
    """
    libc = re.fullmatch(r"2\.(\d{1,3})", order.glibc)
    if libc is None:
        raise UsageError(
            f"{order.glibc[:40]!r} is not a version of glibc",
            hint="Write it as 2.35: what `ldd --version` says on the GPU host.",
            code="bad-glibc",
        )
    target = Target(python=order.python, glibc=int(libc[1]))
    with scratch_folder("bundle") as scratch:
        wheel, _ = find_subject(
            order.name, "cuda", repo, upstream, scratch, unpatched=order.unpatched
        )
        made = bundle_for(
            wheel,
            order.have,
            order.folder,
            target=target,
            piece_size=order.pieces,
            index=Index.from_pip_config(),
            cache=upstream.cache,
            progress=upstream.progress,
        )
    return Report("smoke", {"bundle": made.as_dict()}, lines(*map(plain, made.lines())))
