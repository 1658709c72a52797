"""vpatch itself as a file of a bundle: on the GPU host there is no index to install it from."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import vpatch
from vpatch.errors import HostError
from vpatch.files import disk_errors, locked
from vpatch.smoke.bundle_pack import Packed, new_tar

_FORMAT = "tool-1"
_SUFFIXES = frozenset({".py", ".sh"})
_NAMES = frozenset({"py.typed"})


@dataclass(frozen=True)
class Tool:
    """A vpatch.

    Attributes:
        version: What it calls itself.
        requires: What it needs to run, without extras; markers of any environment.
        package: The folder with its modules.
    """

    version: str
    requires: tuple[Requirement, ...]
    package: Path


def running_tool() -> Tool:
    """The vpatch that runs, installed or editable.

    Raises:
        HostError: It was never installed, so that nobody knows what it requires.
    """
    try:
        found = metadata.distribution("vpatch")
    except metadata.PackageNotFoundError as error:
        raise HostError(
            "vpatch cannot be put into a bundle: it runs from files that were never installed",
            hint="Install it: python -m pip install --editable .",
            code="not-installed",
        ) from error
    requires = map(Requirement, found.requires or ())
    own = tuple(one for one in requires if "extra ==" not in str(one.marker or ""))
    return Tool(found.version, own, Path(vpatch.__path__[0]))


def pack_tool(tool: Tool, store: Path) -> Packed:
    """Packs a vpatch: its modules, its scripts, and the metadata that says which version it is.

    The same files give the same bytes, whenever and from wherever they were installed.

    Args:
        store: The folder of the user's cache that packed files are kept in.

    Raises:
        HostError: There is no vpatch in the folder, or the disk refuses.
    """
    files = _files(tool)
    rows = [[name, hashlib.sha256(data).hexdigest()] for name, data in files.items()]
    key = hashlib.sha256(json.dumps([_FORMAT, rows]).encode()).hexdigest()
    path = store / f"{key}.tar.xz"
    with locked(store / f"{key}.lock"), disk_errors(path):
        if not path.is_file():
            with new_tar(path) as archive:
                for name, data in files.items():
                    info = tarfile.TarInfo(name)
                    info.size, info.mode, info.mtime = len(data), 0o644, 0
                    archive.addfile(info, io.BytesIO(data))
    return Packed(path, "tool", f"vpatch-{tool.version}-{key[:8]}.tar.xz")


def _files(tool: Tool) -> dict[str, bytes]:
    """Path below a site folder -> contents, sorted."""
    if not (tool.package / "__main__.py").is_file():
        raise HostError(
            f"vpatch cannot be put into a bundle: {tool.package} holds no modules",
            hint="Install it as files: python -m pip install .",
            code="not-installed",
        )
    files = {
        f"vpatch/{path.relative_to(tool.package).as_posix()}": path.read_bytes()
        for path in tool.package.rglob("*")
        if _belongs(path)
    }
    lines = [
        "Metadata-Version: 2.1",
        "Name: vpatch",
        f"Version: {tool.version}",
        *(f"Requires-Dist: {one}" for one in tool.requires),
    ]
    files[f"vpatch-{tool.version}.dist-info/METADATA"] = "\n".join([*lines, ""]).encode()
    return dict(sorted(files.items()))


def _belongs(path: Path) -> bool:
    # A hidden file is an editor's; what has no known ending is nothing that vpatch ships.
    named = path.suffix in _SUFFIXES or path.name in _NAMES
    return named and not path.name.startswith(".") and path.is_file()
