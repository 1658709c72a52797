"""``vpatch build``: a patched wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from vpatch import __version__, pipeline
from vpatch.patched_wheel import splice
from vpatch.pipeline import Prepared, Upstream
from vpatch.report import Report, lines, plain
from vpatch.upstream.index import Arch
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.build import BuiltWheel
from vpatch.wheel.container import write_containerfile
from vpatch.wheel.edits import edits_between
from vpatch.wheel.provenance import ADDED, CHANGED, REMOVED, origin_of
from vpatch.wheel.source_build import build_from_source


@dataclass(frozen=True)
class Wish:
    """Which wheel is wanted.

    Attributes:
        arch: Architecture; this machine's when None.
        base: Another wheel than the pinned one: a package of the index, a file or a URL.
        from_source: Run upstream's own build instead of splicing.
        isolated: With ``from_source``: let pip install the build's requirements.
        container: Also write a Containerfile.
        image: The image for it, instead of upstream's.
        out: The folder.
    """

    arch: Arch | None
    base: str | None
    from_source: bool
    isolated: bool
    container: bool
    image: str | None
    out: Path


def run(tag: str, repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Builds the wheel; on request a Containerfile beside it."""
    prepared = pipeline.prepare(tag, repo, upstream)
    built = _build(prepared, upstream, wish)
    containerfile = (
        write_containerfile(built, image=wish.image) if wish.container or wish.image else None
    )
    data = {"tag": prepared.pin.tag, **built.as_dict()}
    if containerfile is not None:
        data["containerfile"] = str(containerfile)
    return Report("build", data, _text(prepared, built, containerfile))


def _build(prepared: Prepared, upstream: Upstream, wish: Wish) -> BuiltWheel:
    if not wish.from_source:
        return splice(prepared, upstream, base=wish.base, arch=wish.arch, out=wish.out)
    git = Mirror.open(upstream.cache).git
    applied = prepared.applied
    return build_from_source(
        git,
        applied.tree,
        edits_between(git, applied.base_tree, applied.tree),
        origin_of(prepared.pin, prepared.series, tool=__version__),
        out=wish.out,
        isolated=wish.isolated,
        on_line=upstream.progress.say,
    )


def _text(prepared: Prepared, built: BuiltWheel, containerfile: Path | None) -> RenderableType:
    files = built.provenance.files
    counts = ", ".join(
        f"{sum(file.change == kind for file in files)} {kind}" for kind in (CHANGED, ADDED, REMOVED)
    )
    base = built.provenance.base
    source = base.file or f"a build of {prepared.pin.tag} from source"
    pinned = " (pinned)" if base.pinned else ""
    return lines(
        plain(f"{built.path}  {built.size / 1e6:.1f} MB"),
        plain(f"  version  {built.version}"),
        plain(f"  base     {source}{pinned}"),
        plain(f"  files    {counts} ({len(built.provenance.outside)} tests are not in a wheel)"),
        plain(f"  sha256   {built.sha256}"),
        plain(f"Over an installed {built.name}: pip install --no-deps {built.path}"),
        plain(f"Containerfile: {containerfile}") if containerfile else None,
    )
