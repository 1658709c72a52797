"""Whole folders on the disk: filled, synced, removed, whatever permissions stand in them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from vpatch.files import sync_folder, umask


def fill_folder(folder: Path, content: Mapping[str, tuple[str, int, bytes]]) -> None:
    """Makes a folder with this content, as ``swap.read_folder`` reads it.

    Raises:
        OSError: the disk refused.
    """
    folder.mkdir()
    folder.chmod(0o777 & ~umask())
    folders: list[tuple[Path, int]] = []
    for name, (kind, permissions, data) in sorted(content.items()):
        path = folder / name
        if kind == "folder":
            path.mkdir()
            folders.append((path, permissions))
        elif kind == "link":
            path.symlink_to(os.fsdecode(data))
        else:
            path.write_bytes(data)
            path.chmod(permissions)
    for path, permissions in reversed(folders):
        path.chmod(permissions)


def sync_tree(folder: Path) -> None:
    """Makes a folder and everything in it survive a power cut.

    Raises:
        OSError: the disk refused.
    """
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        sync_folder(path)  # a file is synced in the same way
    sync_folder(folder)
    sync_folder(folder.parent)


def remove_tree(folder: Path) -> None:
    """Removes a folder, folders in it that their owner may not write among it.

    Raises:
        OSError: the disk refused.
    """
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IRWXU)
    for top, folders, _ in os.walk(folder):
        for path in (Path(top, name) for name in folders):
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IRWXU)
    shutil.rmtree(folder)
