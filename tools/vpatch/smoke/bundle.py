"""A smoke bundle: what a GPU host without network lacks to smoke a vLLM wheel.

That is every wheel that it does not have, and vpatch itself. The folder holds ``manifest.json``,
``gpu-smoke.sh``, ``unpack.py`` (the standard library only) and ``files/``. On the host
``gpu-smoke.sh`` has ``unpack.py`` verify and unpack it and print the environment to run with, and
runs the smoke. `bundle_pieces` cuts a bundle for hosts that take only small files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.files import disk_errors, sha256_file
from vpatch.progress import Progress
from vpatch.smoke.bundle_needs import Needs, find_needs
from vpatch.smoke.bundle_pack import pack
from vpatch.smoke.bundle_pieces import read_manifest
from vpatch.smoke.bundle_pip import Wheel
from vpatch.smoke.bundle_rules import SLIM, TORCH_FAMILY, library
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.bundle_tool import Tool, pack_tool, running_tool
from vpatch.smoke.bundle_unpack import SCHEMA
from vpatch.upstream.index import Artifact, Index
from vpatch.wheel.directory import read_archive
from vpatch.wheel.meta import Distribution, read_distribution
from vpatch.wheel.zip import bad_wheel

# What is worth packing anew: other wheels travel as they are. What zip hardly makes smaller takes
# xz longest, for a few per cent.
_LARGE = 32 << 20
_DENSE = 0.8
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # or the missing flashinfer kills the engine
}
# The order of PYTHONPATH. Group -> folder; a group is what changes together.
_FOLDERS = {
    "vllm": "vllm",
    "vllm-libs": "vllm",
    "packages": "packages",
    "torch": "torch",
    "tool": "tool",  # vpatch, behind everything that is vLLM's
    "tool-packages": "tool",
}
# Name in the bundle -> resource of this package.
_SCRIPTS = {"unpack.py": "bundle_unpack.py", "gpu-smoke.sh": "gpu-smoke.sh"}


@dataclass(frozen=True)
class Bundle:
    """A bundle on this machine."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Bytes to carry."""
        return sum(file["size"] for file in self.manifest["files"])


@dataclass(frozen=True)
class _File:
    path: Path
    name: str
    group: str
    kind: str
    of: str


def make_bundle(
    wheel: Path,
    have: Mapping[str, Version],
    folder: Path,
    *,
    target: Target,
    index: Index,
    cache: Path,
    progress: Progress,
    tool: Tool | None = None,
) -> Bundle:
    """Gathers what a host lacks.

    Args:
        wheel: A vLLM wheel, upstream's or a patched one.
        have: What the host has: `bundle_target.read_have`.
        folder: Where the bundle goes; a bundle that is there is replaced.
        target: The host.
        index: Where wheels are downloaded from, by the hash that it lists.
        cache: The user's cache: downloads and packed files are kept there.
        progress: Told about downloads and packing.
        tool: The vpatch to carry; the running one where None.

    Raises:
        UsageError: The folder holds something else than a bundle.
        FindingError: The wheel, or one that is packed, is not to be trusted.
        HostError: No set of wheels fits, the network or the disk fails.
    """
    tool = tool or running_tool()
    _check_folder(folder)
    vllm = read_distribution(read_archive(wheel))
    progress.say("asking pip which wheels fit")
    needs = find_needs(_requires(vllm), have, target, tool.requires)
    gatherer = _Gatherer(target, index, cache, progress)
    files = list(gatherer.vllm(vllm))
    for one in needs.carried:
        files += gatherer.gathered(one, "packages")
    files += gatherer.tool(tool)
    for one in needs.tool:
        files += gatherer.gathered(one, "tool-packages")
    manifest = {
        "schema": SCHEMA,
        "release": f"v{vllm.version.public}",
        "wheel": {"file": wheel.name, "version": str(vllm.version), "sha256": sha256_file(wheel)},
        "python": target.short_python,
        "glibc": f"2.{target.glibc}",
        "machine": target.machine,
        "torch": _torch(needs),
        "pythonpath": list(dict.fromkeys(_FOLDERS[g] for g in _FOLDERS if _has(files, g))),
        "library_path": sorted(gatherer.libraries),
        "environment": _ENVIRONMENT,
        "files": [_entry(file) for file in sorted(files, key=_order)],
        "carried": {one.name: str(one.version) for one in needs.carried + needs.tool},
        "from_host": needs.from_host,
        "left_out": needs.left_out,
        "slimmed": gatherer.slimmed,
    }
    with disk_errors(folder):
        _write(folder, manifest, files)
    return Bundle(folder, manifest)


def _requires(vllm: Distribution) -> Iterator[Requirement]:
    data = vllm.archive.read(f"{vllm.dist_info}/METADATA")
    metadata, _ = parse_email(data)
    try:
        yield from map(Requirement, metadata.get("requires_dist", []))
    except InvalidRequirement as error:
        raise bad_wheel(vllm.archive.path, f"requires nonsense: {error}") from error


def _torch(needs: Needs) -> dict[str, str]:
    for one in needs.carried:
        if one.name == "torch":
            return {"version": str(one.version), "from": "bundle"}
    return {"version": needs.from_host.get("torch", ""), "from": "host"}


def _has(files: list[_File], group: str) -> bool:
    return any(file.group == group for file in files)


def _order(file: _File) -> tuple[int, str]:
    return list(_FOLDERS).index(file.group), file.name


def _entry(file: _File) -> dict[str, Any]:
    return {
        "name": file.name,
        "of": file.of,
        "group": file.group,
        "folder": _FOLDERS[file.group],
        "kind": file.kind,
        "size": file.path.stat().st_size,
        "sha256": sha256_file(file.path),
    }


class _Gatherer:
    def __init__(self, target: Target, index: Index, cache: Path, progress: Progress) -> None:
        self.target = target
        self.index = index
        self.cache = cache
        self.progress = progress
        self.libraries: set[str] = set()
        self.slimmed: dict[str, dict[str, str]] = {}

    def vllm(self, wheel: Distribution) -> Iterator[_File]:
        """vLLM's own files: what a patch can change apart from what it cannot."""
        return self._packed(wheel, "vllm")

    def tool(self, tool: Tool) -> Iterator[_File]:
        """vpatch's own files."""
        packed = pack_tool(tool, self.cache / "packed")
        yield _File(packed.path, packed.name, "tool", "tar.xz", f"vpatch {tool.version}")

    def gathered(self, wheel: Wheel, group: str) -> Iterator[_File]:
        """A dependency's files, downloaded and verified; torch's have a group of their own."""
        artifact = Artifact(wheel.filename, wheel.url, wheel.sha256, None, "wheel", wheel.version)
        path = self.index.download(artifact, self.cache / "artifacts", progress=self.progress)
        cuda = library(wheel.name, wheel.version) is not None
        group = "torch" if cuda or wheel.name in TORCH_FAMILY else group
        if wheel.name in SLIM or path.stat().st_size >= _LARGE:
            distribution = read_distribution(read_archive(path))
            if wheel.name in SLIM or _density(distribution) < _DENSE:
                yield from self._packed(distribution, group)
                return
        if cuda:
            self._note_libraries(read_distribution(read_archive(path)), group)
        yield _File(path, wheel.filename, group, "wheel", f"{wheel.name} {wheel.version}")

    def _packed(self, wheel: Distribution, group: str) -> Iterator[_File]:
        name = canonicalize_name(wheel.name)
        slim = pack(wheel, self.target, self.cache / "packed", self.progress)
        if slim.left_out:
            self.slimmed[name] = _by_reason(slim.left_out)
        if library(name, wheel.version) is not None:
            self._note_libraries(wheel, group)
        for file in slim.files:
            own = f"{group}-libs" if file.compiled and f"{group}-libs" in _FOLDERS else group
            yield _File(file.path, file.name, own, "tar.xz", f"{name} {wheel.version}")

    def _note_libraries(self, wheel: Distribution, group: str) -> None:
        for member in wheel.archive.by_name:
            path = PurePosixPath(member)
            if ".so" in path.suffixes:
                self.libraries.add(f"{_FOLDERS[group]}/{path.parent}")


def _density(wheel: Distribution) -> float:
    return wheel.archive.size / max(sum(member.size for member in wheel.archive.members), 1)


def _by_reason(left_out: Mapping[str, str]) -> dict[str, str]:
    """The first file that a reason is given for, and how many more there are: for the reader."""
    reasons: dict[str, list[str]] = {}
    for path, reason in left_out.items():
        reasons.setdefault(reason, []).append(path)
    return {
        paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""): reason
        for reason, paths in reasons.items()
    }


def _check_folder(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        read_manifest(folder)
    except UsageError as error:
        raise UsageError(
            f"{folder} holds something else than a smoke bundle",
            hint="Name a new folder.",
            code="not-empty",
        ) from error


def _write(folder: Path, manifest: Mapping[str, Any], files: list[_File]) -> None:
    """Writes the bundle beside its place, then swaps it in."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        fresh, old = Path(scratch, "new"), Path(scratch, "old")
        (fresh / "files").mkdir(parents=True)
        for file in files:
            _link(file.path, fresh / "files" / file.name)
        for name, resource in _SCRIPTS.items():
            script = resources("vpatch.smoke").joinpath(resource).read_bytes()
            (fresh / name).write_bytes(script)
        (fresh / "gpu-smoke.sh").chmod(0o755)
        (fresh / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)


def _link(source: Path, place: Path) -> None:
    """The file without its bytes again where the disk allows it."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copyfile(source, place)
