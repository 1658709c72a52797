"""A tree under test without copies: links to an unpacked wheel, changed files beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from vpatch.errors import HostError
from vpatch.git import Git, blob_id
from vpatch.upstream.archive import Limits
from vpatch.upstream.zipread import read_wheel
from vpatch.wheel.edits import FileEdit

# The compiled modules of a CPU build: v0.32.0's largest has 214 MB.
LIMITS = Limits(file_bytes=512 << 20)
_VERSION_FILE = "vllm/_version.py"

Changes = Mapping[tuple[str, ...], bytes | None]


def make_lower(lower: Path, wheel: Path, git: Git, base_tree: str) -> None:
    """Unpacks a wheel, and the release's tests/, which no wheel carries, beside it.

    Raises:
        HostError: the wheel is damaged or hostile, or git fails.
    """
    with wheel.open("rb") as stream:
        for member in read_wheel(wheel.name, stream, _is_listed, LIMITS):
            _write(lower / member.path, member.data)
    for path, data in _files_of(git, base_tree, "tests/"):
        _write(lower / path, data)


def borrow_lower(lower: Path, wheel: Path, git: Git, base_tree: str, tag: str) -> list[str]:
    """The same for a release without a CPU build: its own package on another one's modules.

    Returns:
        The compiled modules that were taken from the wheel.

    Raises:
        HostError: the wheel is damaged or hostile, or git fails.
    """
    borrowed = []
    with wheel.open("rb") as stream:
        for member in read_wheel(wheel.name, stream, _is_borrowed, LIMITS):
            _write(lower / member.path, member.data)
            borrowed.append(PurePosixPath(member.path).name)
    for folder in ("vllm/", "tests/"):
        for path, data in _files_of(git, base_tree, folder):
            _write(lower / path, data)
    version = tag.removeprefix("v")
    _write(lower / _VERSION_FILE, f'__version__ = version = "{version}"\n'.encode())
    # vLLM takes itself for a CPU build by the version of the package.
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    _write(lower / f"vllm-{version}+cpu.dist-info" / "METADATA", metadata.encode())
    return sorted(borrowed)


def make_tree(lower: Path, upper: Path, edits: Sequence[FileEdit]) -> None:
    """Makes a folder that shows another one with some files changed.

    Args:
        lower: From `make_lower`.
        upper: Made here.
        edits: From the release to the tree under test.

    Raises:
        HostError: the wheel has another file than the release where an edit was made.
    """
    for edit in edits:
        if edit.path.startswith("vllm/") and edit.old_blob is not None:
            file = lower / edit.path
            if not file.is_file() or blob_id(file.read_bytes()) != edit.old_blob:
                raise HostError(
                    f"{edit.path} in the wheel is not the release's",
                    hint="Give the wheel of the series' own release.",
                    code="other-release",
                )
    _overlay(lower, upper, {PurePosixPath(edit.path).parts: edit.data for edit in edits})


def _is_listed(path: str) -> bool:
    # RECORD cannot list its own hash.
    return not path.endswith(".dist-info/RECORD")


def _is_borrowed(path: str) -> bool:
    return path.startswith("vllm/") and path.endswith(".so")


def _overlay(lower: Path, upper: Path, changes: Changes) -> None:
    upper.mkdir()
    inner: dict[str, dict[tuple[str, ...], bytes | None]] = {}
    for (name, *rest), data in changes.items():
        inner.setdefault(name, {})[tuple(rest)] = data
    # Where all of it is new there is nothing below.
    for entry in lower.iterdir() if lower.is_dir() else ():
        # Changed modules must not leave their compiled form where unchanged ones look for theirs.
        if entry.name not in inner and entry.name != "__pycache__":
            (upper / entry.name).symlink_to(entry)
    for name, below in inner.items():
        if () not in below:
            _overlay(lower / name, upper / name, below)
        elif (data := below[()]) is not None:
            (upper / name).write_bytes(data)


def _files_of(git: Git, tree: str, folder: str) -> Iterator[tuple[str, bytes]]:
    listed = git.output("ls-tree", "-r", "-z", "--name-only", tree, folder)
    names = [name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0")[:-1]]
    blobs = git.read_blobs(f"{tree}:{name}" for name in names)
    return ((name, blobs[f"{tree}:{name}"]) for name in names)


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
