"""Makes a bundle for a GPU host, cuts it, and says what to carry and what to run there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vpatch.progress import Progress
from vpatch.smoke.bundle import Bundle, make_bundle
from vpatch.smoke.bundle_pieces import PIECES_FILE, Cut, check_size, pieces
from vpatch.smoke.bundle_target import Target, read_have
from vpatch.smoke.bundle_tool import Tool
from vpatch.upstream.index import Index

# Where the pieces of all bundles that lie side by side go: what they share is there once.
PIECES_FOLDER = "pieces"
_TABLES = ("manifest.json", "unpack.py", "gpu-smoke.sh")


@dataclass(frozen=True)
class Group:
    """Files of a bundle that change together.

    Attributes:
        name: ``vllm``: what a patch can change; ``vllm-libs``; ``packages``; ``torch``: with its
            CUDA libraries; ``tool``: vpatch; ``tool-packages``.
        files: How many.
        size: Their bytes.
    """

    name: str
    files: int
    size: int


@dataclass(frozen=True)
class BundleReport:
    """A bundle that is ready to be carried.

    Attributes:
        folder: The bundle.
        release: ``v0.17.1``.
        wheel: The vLLM wheel's file name.
        python: The host's, as ``3.12``.
        torch: Its version, and whether it comes from the host or the bundle.
        size: Bytes of all files.
        groups: Those files by group.
        carried: Packages that are in the bundle: name -> version.
        from_host: Packages of the host that are used: name -> what it has.
        left_out: Packages that are required but not needed: name -> reason.
        slimmed: Files of packages that are left out: package -> {file: reason}.
        pieces: Where the pieces are; None where the bundle was not cut.
        loads: Names of pieces to carry at a time.
        files: What has to lie in one folder on the host, besides the pieces: paths below `folder`.
        command: What to run there.
    """

    folder: Path
    release: str
    wheel: str
    python: str
    torch: Mapping[str, str]
    size: int
    groups: tuple[Group, ...]
    carried: Mapping[str, str]
    from_host: Mapping[str, str]
    left_out: Mapping[str, str]
    slimmed: Mapping[str, Mapping[str, str]]
    pieces: Path | None
    loads: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]
    command: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        table = {**asdict(self), "folder": str(self.folder)}
        return {**table, "pieces": None if self.pieces is None else str(self.pieces)}

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.folder}  {_megabytes(self.size)}"
        yield f"  wheel      {self.wheel}"
        yield f"  torch      {self.torch['version']}, from the {self.torch['from']}"
        for group in self.groups:
            files = f"{group.files} file" + ("s" if group.files > 1 else "")
            yield f"  {group.name:<15}{files:>10}  {_megabytes(group.size):>10}"
        yield _named("from the host", self.from_host)
        yield _named("left out", self.left_out)
        if self.pieces is not None:
            count = sum(map(len, self.loads))
            yield f"  pieces     {count} in {len(self.loads)} loads, in {self.pieces}"
        yield f"Carry {', '.join(self.files)}" + (
            " and the pieces (those of an earlier bundle need not be carried again)."
            if self.pieces is not None
            else "."
        )
        yield f"There:  {self.command}"


def bundle_for(
    wheel: Path,
    have_file: Path,
    folder: Path,
    *,
    target: Target,
    piece_size: int | None,
    index: Index,
    cache: Path,
    progress: Progress,
    tool: Tool | None = None,
) -> BundleReport:
    """Makes a bundle, and cuts it where pieces are asked for.

    Args:
        wheel: A vLLM wheel, upstream's or a patched one.
        have_file: What ``pip list --format json`` printed on the host.
        folder: Where the bundle goes; the pieces go into a folder ``pieces`` beside it.
        target: The host.
        piece_size: The most bytes of a piece; None: the bundle is carried as it is.
        index: Where wheels are downloaded from.
        cache: The user's cache.
        progress: Told about downloads and packing.
        tool: The vpatch to carry; the running one where None.

    Raises:
        UsageError: The file or the piece size is not one, or the folder holds something else.
        FindingError: A wheel is not to be trusted.
        HostError: No set of wheels fits, the network or the disk fails.
    """
    have = read_have(have_file)
    if piece_size is not None:
        check_size(piece_size)
    bundle = make_bundle(
        wheel,
        have,
        folder,
        target=target,
        index=index,
        cache=cache,
        progress=progress,
        tool=tool,
    )
    cut = None
    if piece_size is not None:
        cut = pieces(folder, piece_size, folder.absolute().parent / PIECES_FOLDER)
    return _report(bundle, cut)


def _report(bundle: Bundle, cut: Cut | None) -> BundleReport:
    manifest = bundle.manifest
    whole = ("files",) if cut is None else (PIECES_FILE,)
    return BundleReport(
        folder=bundle.folder,
        release=manifest["release"],
        wheel=manifest["wheel"]["file"],
        python=manifest["python"],
        torch=manifest["torch"],
        size=bundle.size,
        groups=tuple(_groups(manifest["files"])),
        carried=manifest["carried"],
        from_host=manifest["from_host"],
        left_out=manifest["left_out"],
        slimmed=manifest["slimmed"],
        pieces=None if cut is None else cut.folder,
        loads=() if cut is None else cut.loads,
        files=(*_TABLES, *whole),
        command=f"bash {shlex.quote(f'{bundle.folder.name}/gpu-smoke.sh')}",
    )


def _groups(files: list[dict[str, Any]]) -> Iterator[Group]:
    for name in dict.fromkeys(file["group"] for file in files):
        sizes = [file["size"] for file in files if file["group"] == name]
        yield Group(name, len(sizes), sum(sizes))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _named(label: str, packages: Mapping[str, str]) -> str:
    return f"  {label}: " + (", ".join(packages) or "nothing")
