"""A prepared release as a wheel: its series spliced into a build of the release."""

from __future__ import annotations

from pathlib import Path

from vpatch import __version__
from vpatch.pipeline import Prepared, Upstream
from vpatch.upstream.index import Arch, Index
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.base import find_base
from vpatch.wheel.build import BuiltWheel, build_wheel
from vpatch.wheel.edits import edits_between
from vpatch.wheel.provenance import origin_of


def splice(
    prepared: Prepared, upstream: Upstream, *, base: str | None, arch: Arch | None, out: Path
) -> BuiltWheel:
    """Gets the base wheel and writes the patched one.

    Args:
        prepared: The release with its series applied.
        upstream: Where the base comes from.
        base, arch: As for `find_base`.
        out: The folder for the wheel.

    Raises:
        UsageError, HostError: As for `find_base`.
        FindingError: The base is not what the series is made for.
    """
    wheel = find_base(
        base,
        prepared.pin,
        arch=arch,
        index=Index.from_pip_config(),
        cache=upstream.cache,
        progress=upstream.progress,
    )
    applied = prepared.applied
    edits = edits_between(Mirror.open(upstream.cache).git, applied.base_tree, applied.tree)
    origin = origin_of(prepared.pin, prepared.series, tool=__version__)
    return build_wheel(wheel.path, edits, origin, out=out, expected_sha256=wheel.sha256)
