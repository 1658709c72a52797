"""A tree in memory: listed once, read in batches, changed without git."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from vpatch.git import Git
from vpatch.rebase.model import Entry, Files

_SUBMODULE = "160000"
# How much is kept of what several trees share.
_MOST = 64 * 2**20


class Snapshot:
    """The files of a tree, and what was changed since it was read.

    Args:
        git: The repository.
        tree: The tree, or a commit of it.
    """

    def __init__(self, git: Git, tree: str) -> None:
        self.git = git
        self.tree = tree
        self._listed = _listing(git, tree)
        self._read: dict[str, Entry] = {}
        self._changed: dict[str, Entry | None] = {}

    @cached_property
    def _folders(self) -> frozenset[str]:
        found: set[str] = set()
        for path in self._listed:
            while (path := path.rpartition("/")[0]) and path not in found:
                found.add(path)
        return frozenset(found)

    @property
    def listed(self) -> Mapping[str, tuple[str, str]]:
        """path -> mode and blob id, of the tree as it was read."""
        return self._listed

    def has_folder(self, path: str) -> bool:
        """Whether the tree, as it was read, has the folder that a path lies in."""
        folder = path.rpartition("/")[0]
        return not folder or folder in self._folders

    def read_ahead(self, paths: Iterable[str]) -> None:
        """Reads files that will be asked for, in one process."""
        wanted = [path for path in paths if path in self._listed and path not in self._read]
        blobs = _read(
            self.git,
            [blob for mode, blob in map(self._listed.__getitem__, wanted) if mode != _SUBMODULE],
        )
        for path in wanted:
            mode, blob = self._listed[path]
            data = blob.encode("ascii") if mode == _SUBMODULE else blobs[blob]
            self._read[path] = Entry(mode, data)

    def original(self, path: str) -> Entry | None:
        """A file as the tree has it; None where it has none."""
        if path not in self._listed:
            return None
        if path not in self._read:
            self.read_ahead((path,))
        return self._read[path]

    def entry(self, path: str) -> Entry | None:
        """A file as it is now; None where there is none."""
        return self._changed[path] if path in self._changed else self.original(path)

    def blocked(self, path: str, also: Files) -> str:
        """The part of a path that something else has: a folder, or a file in a folder's place.

        Args:
            also: Files that are changed as well.

        Returns:
            Empty where the path is free, or a file.
        """
        now = {**self._changed, **also}
        parts = path.split("/")
        for count in range(1, len(parts)):
            above = "/".join(parts[:count])
            if (now[above] if above in now else self._listed.get(above)) is not None:
                return above
        below = f"{path}/"
        if path in self._folders:
            listed = (each for each in self._listed if each.startswith(below))
            if any(each not in now or now[each] is not None for each in listed):
                return path
        made = (each for each, entry in now.items() if entry is not None)
        return path if any(each.startswith(below) for each in made) else ""

    def reset(self) -> None:
        """Forgets all changes."""
        self._changed.clear()

    def update(self, files: Files) -> None:
        """Changes files."""
        self._changed.update(files)


@lru_cache(maxsize=8)
def _listing(git: Git, tree: str) -> Mapping[str, tuple[str, str]]:
    """A tree's files: a series is tried on several releases, and several series on one."""
    listed: dict[str, tuple[str, str]] = {}
    answer = git.output("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree)
    for entry in answer.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        meta, _, path = entry.partition("\t")
        mode, _, blob = meta.split(" ")
        listed[path] = (mode, blob)
    return listed


_known: dict[str, bytes] = {}


def _read(git: Git, wanted: Sequence[str]) -> Mapping[str, bytes]:
    """Blobs; those that releases share are read once: a blob's name is its content."""
    found = {blob: _known[blob] for blob in wanted if blob in _known}
    missing = [blob for blob in wanted if blob not in found]
    if missing:
        read = git.read_blobs(missing)
        if sum(map(len, _known.values())) > _MOST:
            _known.clear()
        _known.update(read)
        found |= read
    return found


class History:
    """A tree as it was behind each of some patches.

    Args:
        start: The tree before all of them, as it was read.
    """

    def __init__(self, start: Snapshot) -> None:
        self.start = start
        self._changes: dict[str, list[tuple[int, Entry | None]]] = {}

    def add(self, number: int, files: Files) -> None:
        """Says what a patch made; numbers grow."""
        for path, entry in files.items():
            self._changes.setdefault(path, []).append((number, entry))

    def reader(self, number: int) -> Callable[[str], bytes | None]:
        """Reads files as they are behind the patch of this number."""

        def read(path: str) -> bytes | None:
            entry = self.start.original(path)
            for when, changed in self._changes.get(path, ()):
                if when <= number:
                    entry = changed
            return entry.data if entry is not None else None

        return read
