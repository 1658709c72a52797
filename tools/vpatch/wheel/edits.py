"""What a patched tree changes, and which of it a wheel can take up without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from vpatch.errors import FindingError
from vpatch.git import Git, blob_id
from vpatch.wheel.meta import VERSION_FILE
from vpatch.wheel.zip import Archive, safe_name

PACKAGE = "vllm/"

# Folders of upstream's tree that no wheel is made from, whatever lies in them.
_NEVER_BUILT = (".buildkite/", ".github/", "benchmarks/", "docs/", "examples/", "tests/")
_BUILD_FOLDERS = ("cmake/", "csrc/", "requirements/", "rust/")
_BUILD_FILES = frozenset(
    {
        "CMakeLists.txt",
        "Cargo.lock",
        "Cargo.toml",
        "MANIFEST.in",
        "build.rs",
        "pyproject.toml",
        "rust-toolchain.toml",
        "setup.cfg",
        "setup.py",
        "use_existing_torch.py",
    }
)
# .proto: upstream's build makes Python modules of it that only exist in the wheel.
_BUILD_SUFFIXES = frozenset(
    {
        ".c", ".cc", ".cmake", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp",
        ".proto", ".pyx", ".rs",
    }
)  # fmt: skip
_RAW_ENTRY = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [A-Z]\d*")
_FILE_MODES = frozenset({0o100644, 0o100755})


@dataclass(frozen=True)
class FileEdit:
    """One file's change between the base tree and the patched tree.

    Attributes:
        path: In the tree, and in the wheel if it is in the package.
        old_blob: Git blob id at the base; None for a new file.
        data: The patched contents; None for a deleted file.
        old_mode: Git's mode at the base; 0 for a new file.
        mode: Git's mode afterwards; 0 for a deleted file.
    """

    path: str
    old_blob: str | None
    data: bytes | None
    old_mode: int
    mode: int

    @property
    def new_blob(self) -> str | None:
        """Git blob id of the patched contents."""
        return None if self.data is None else blob_id(self.data)


@dataclass(frozen=True)
class WheelEdits:
    """Edits sorted by what a wheel does with them.

    Attributes:
        changed, added, removed: Files of the wheel, by path.
        outside: Paths that no wheel carries (tests, documentation).
    """

    changed: tuple[FileEdit, ...]
    added: tuple[FileEdit, ...]
    removed: tuple[FileEdit, ...]
    outside: tuple[str, ...]

    @property
    def inside(self) -> tuple[FileEdit, ...]:
        """All edits of files in the wheel, by path."""
        return tuple(
            sorted((*self.changed, *self.added, *self.removed), key=lambda edit: edit.path)
        )


def edits_between(git: Git, base_tree: str, patched_tree: str) -> tuple[FileEdit, ...]:
    """The files that differ between two trees, by path; a rename is a deletion and an addition.

    Args:
        git: The repository that holds both trees.
        base_tree, patched_tree: Object ids.

    Raises:
        FindingError: a link or a submodule differs: a wheel holds plain files only.
        HostError: git fails.
    """
    raw = git.output(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev",
        "--end-of-options", base_tree, patched_tree,
    )  # fmt: skip
    entries = tuple(_raw_entries(raw))
    blobs = git.read_blobs(new for _, _, _, new in entries if new)
    return tuple(_edit(entry, blobs) for entry in entries)


_RawEntry = tuple[str, tuple[int, int], str, str]


def _raw_entries(raw: bytes) -> Iterator[_RawEntry]:
    parts = iter(raw.split(b"\0")[:-1])
    for head, path in zip(parts, parts, strict=True):
        match = _RAW_ENTRY.fullmatch(head)
        if match is None:
            raise ValueError(f"git diff-tree printed {head!r}")
        old, new = (name.strip(b"0") and name for name in match.groups()[2:])
        modes = (int(match[1], 8), int(match[2], 8))
        yield path.decode("utf-8", "surrogateescape"), modes, old.decode(), new.decode()


def _edit(entry: _RawEntry, blobs: dict[str, bytes]) -> FileEdit:
    path, (old_mode, mode), old, new = entry
    if not {old_mode, mode} <= _FILE_MODES | {0}:
        raise FindingError(
            f"the series changes {path} from or to a link or submodule (mode {old_mode:o} to "
            f"{mode:o}): a wheel holds plain files only",
            hint="Make it a plain file in the patch.",
            code="not-a-file",
        )
    return FileEdit(
        path=path,
        old_blob=old or None,
        data=blobs[new] if new else None,
        old_mode=old_mode,
        mode=mode,
    )


def needs_build(path: str) -> bool:
    """Whether a change to this file of upstream's tree changes what a compiler or a build makes."""
    if path.startswith(_NEVER_BUILT):
        return False
    pure = PurePosixPath(path)
    return (
        path.startswith(_BUILD_FOLDERS)
        or pure.name in _BUILD_FILES
        or pure.suffix.lower() in _BUILD_SUFFIXES
    )


def check_no_build(paths: Iterable[str]) -> None:
    """Refuses a series that only a build from source can take up.

    Raises:
        FindingError: with the files, and the way out.
    """
    compiled = sorted({path for path in paths if needs_build(path)})
    if compiled:
        more = f" and {len(compiled) - 3} more" if len(compiled) > 3 else ""  # noqa: PLR2004
        raise FindingError(
            f"the series changes what upstream's wheel is built from ({', '.join(compiled[:3])}"
            f"{more}): Python files alone can be replaced in a built wheel",
            hint="Build from source in an environment with upstream's compilers: add --from-source",
            code="needs-build",
        )


def sort_edits(base: Archive, edits: Iterable[FileEdit], paths: Iterable[str]) -> WheelEdits:
    """Sorts edits by what the base wheel has, and checks that each fits it.

    Args:
        base: The wheel that the edits are for.
        edits: What the patched tree changes.
        paths: Every path that the series names, also those that this kind of source has not.

    Raises:
        FindingError: a compiled source is changed, or the base's file is not the one that the
            patch was made for.
    """
    edits = tuple(sorted(edits, key=lambda edit: edit.path))
    everything = {*paths, *(edit.path for edit in edits)}
    check_no_build(everything)
    changed, added, removed = [], [], []
    for edit in edits:
        if not _is_inside(base, edit):
            continue
        _check_edit(base, edit)
        if edit.data is None:
            removed.append(edit)
        elif edit.old_blob is None:
            added.append(edit)
        else:
            changed.append(edit)
    inside = {edit.path for edit in (*changed, *added, *removed)}
    return WheelEdits(
        tuple(changed), tuple(added), tuple(removed), tuple(sorted(everything - inside))
    )


def _is_inside(base: Archive, edit: FileEdit) -> bool:
    if not edit.path.startswith(PACKAGE):
        return False
    # Upstream packs every module, but not every other file of the package (a README, a .gitkeep).
    in_wheel = edit.path in base.by_name
    return in_wheel or edit.old_blob is None or edit.path.endswith(".py")


def _check_edit(base: Archive, edit: FileEdit) -> None:
    if edit.path == VERSION_FILE or not safe_name(edit.path):
        raise FindingError(
            f"the series changes {edit.path!r}, which is not a file of upstream's tree",
            hint="Take the change out of the patch: vpatch writes the version itself.",
            code="not-upstream",
        )
    standing = blob_id(base.read(edit.path)) if edit.path in base.by_name else None
    if standing != edit.old_blob:
        raise FindingError(
            f"{base.path.name} is not built from the source that the series is made for: "
            f"{edit.path} is {_blob_text(standing)} there, and {_blob_text(edit.old_blob)} in the "
            "pinned release",
            hint="Use a base wheel of exactly this release.",
            code="wrong-base",
        )


def _blob_text(blob: str | None) -> str:
    return f"blob {blob[:12]}" if blob else "missing"
