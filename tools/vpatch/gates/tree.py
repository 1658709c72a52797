"""The Python files of a vLLM: of a tree in the mirror, of a folder, of an installation.

Nothing here imports what it reads. Files are untrusted: bounded in size, never followed out of
their folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from vpatch.errors import HostError, UsageError
from vpatch.git import Git
from vpatch.scratch import scratch_folder

PACKAGE = "vllm"
MAX_FILE = 8 * 2**20
_MAX_FILES = 20_000
_TIMEOUT_S = 60

# Where the modules that a start with EAGLE-3 meets have lain so far: read in one go. Others are
# read when they are asked for.
_COMMON = (
    "vllm/config/",
    "vllm/transformers_utils/",
    "vllm/v1/spec_decode/",
    "vllm/v1/worker/",
    "vllm/v1/attention/backends/flash_attn.py",
    "vllm/v1/attention/backends/utils.py",
    "vllm/envs.py",
    "vllm/model_executor/models/",
)
# Where words are looked for that none of these has: most of them are a layer's.
_NEXT = (
    "vllm/model_executor/layers/fused_moe/",
    "vllm/model_executor/layers/",
    "vllm/v1/",
    "vllm/distributed/",
    "vllm/models/",
    "vllm/",
)
# The package is found as Python finds it, and is not run; '' would be the current folder.
_FIND = """\
import importlib.metadata, importlib.util, json, sys
sys.path = [path for path in sys.path if path]
found = importlib.util.find_spec("vllm")
try:
    version = importlib.metadata.version("vllm")
except importlib.metadata.PackageNotFoundError:
    version = None
print(json.dumps([list(found.submodule_search_locations or []) if found else None, version]))
"""


@dataclass(frozen=True)
class _Part:
    """What has been read of one of the package's folders: near to each other are the same words."""

    name: str
    size: int
    contents: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Tree:
    """A vLLM's Python files, by their path from the folder above ``vllm``.

    Attributes:
        name: What a person calls it: a tag, a folder.
        paths: All of them.
    """

    name: str
    paths: frozenset[str]
    _contents: dict[str, bytes] = field(repr=False)
    _source: Git | Path = field(repr=False)
    _blobs: Mapping[str, str] = field(repr=False)
    _parts: dict[int, tuple[_Part, ...]] = field(init=False, repr=False, default_factory=dict)
    _found: dict[tuple[bytes, str], bool] = field(init=False, repr=False, default_factory=dict)

    @property
    def root(self) -> Path | None:
        """The folder above ``vllm``; None of a tree in the mirror."""
        return self._source if isinstance(self._source, Path) else None

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None where there is no such file."""
        if path not in self.paths:
            return None
        if path not in self._contents:
            self.read_ahead((path,))
        return self._contents[path]

    def blob(self, path: str) -> str:
        """The name of a file's content; empty where only a repository would know it."""
        return self._blobs.get(path, "")

    def read_ahead(self, paths: Collection[str]) -> None:
        """Reads files that will be asked for, all at once.

        Raises:
            HostError: A file cannot be read, or is too large for a source file.
        """
        wanted = [path for path in paths if path in self.paths and path not in self._contents]
        if isinstance(self._source, Path):
            self._contents.update((path, _file(self._source / path)) for path in wanted)
            return
        blobs = self._source.read_blobs(self._blobs[path] for path in wanted) if wanted else {}
        for path in wanted:
            self._contents[path] = _bounded(blobs[self._blobs[path]], path)

    @cached_property
    def _folders(self) -> frozenset[str]:
        found: set[str] = set()
        for path in self.paths:
            folder = path.rpartition("/")[0]
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    def has_module(self, dotted: str) -> bool:
        """Whether there is such a module, or a folder that Python takes for one."""
        path = dotted.replace(".", "/")
        return f"{path}.py" in self.paths or path in self._folders

    def has_file(self, dotted: str) -> bool:
        """Whether a module is a file of it."""
        path = dotted.replace(".", "/")
        return f"{path}.py" in self.paths or f"{path}/__init__.py" in self.paths

    def has_word(self, word: bytes, *, but: str) -> bool:
        """Whether a word stands in another file than one. Those that have been read come first."""
        key = (word, but)
        if key not in self._found:
            self._found[key] = self._look_for(word, but)
        return self._found[key]

    def _look_for(self, word: bytes, but: str) -> bool:
        count = len(self._contents)
        if count not in self._parts:
            self._parts[count] = _parts_of(self._contents)
        parts, near = self._parts[count], _part(but)
        for part in sorted(parts, key=lambda each: (each.name != near, each.size)):
            if any(word in data for path, data in part.contents if path != but):
                return True
        return any(self._read_and_look_for(word, folder) for folder in _NEXT)

    def _read_and_look_for(self, word: bytes, folder: str) -> bool:
        rest = [path for path in self.below(folder) if path not in self._contents]
        self.read_ahead(rest)
        return any(word in self._contents[path] for path in rest)

    def below(self, folder: str) -> list[str]:
        """The files below a folder, in order."""
        first = bisect_left(self._sorted, folder)
        return list(takewhile(lambda path: path.startswith(folder), self._sorted[first:]))

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.paths)


def _part(path: str) -> str:
    return "/".join(path.split("/", 2)[:2])


def _parts_of(contents: Mapping[str, bytes]) -> tuple[_Part, ...]:
    parts: dict[str, list[tuple[str, bytes]]] = {}
    for path, data in contents.items():
        parts.setdefault(_part(path), []).append((path, data))
    return tuple(
        _Part(name, sum(len(data) for _, data in each), tuple(each)) for name, each in parts.items()
    )


def of_git(git: Git, tree: str, name: str) -> Tree:
    """A tree of the mirror.

    Raises:
        UsageError: It holds no vLLM.
        HostError: git failed.
    """
    listed = git.output("ls-tree", "-r", "-z", "--full-tree", tree, "--", PACKAGE)
    blobs = {}
    for entry in listed.split(b"\0"):
        meta, _, path = entry.partition(b"\t")
        if path.endswith(b".py") and meta.startswith(b"100"):  # no links, no submodules
            blobs[path.decode("utf-8", "replace")] = meta.split()[2].decode()
    return _ready(Tree(name, frozenset(blobs), {}, git, blobs), name)


def of_folder(folder: Path, name: str | None = None) -> Tree:
    """A folder that holds ``vllm/``, or that is it.

    Raises:
        UsageError: It is neither.
        HostError: A file cannot be read.
    """
    root = folder
    if not (root / PACKAGE / "__init__.py").is_file() and folder.resolve().name == PACKAGE:
        root = folder.resolve().parent
    paths: set[str] = set()
    for where, folders, files in os.walk(root / PACKAGE):  # follows no links
        folders[:] = [each for each in folders if each.isidentifier()]
        relative = Path(where).relative_to(root)
        paths.update(
            str(relative / file)
            for file in files
            if file.endswith(".py") and not (Path(where) / file).is_symlink()
        )
        if len(paths) > _MAX_FILES:
            raise UsageError(
                f"{folder} holds more than {_MAX_FILES} Python files: this is no vLLM",
                hint="Name the folder that holds vllm/.",
            )
    return _ready(Tree(name or str(folder), frozenset(paths), {}, root, {}), str(folder))


def of_installation(python: str) -> Tree:
    """The vLLM that an interpreter would import.

    Raises:
        UsageError: There is no such interpreter, or it has none.
        HostError: The interpreter does not run.
    """
    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"there is no Python {python}",
            hint="Name the interpreter that serves: vpatch check --installed /path/to/python",
            code="no-python",
        )
    try:
        with scratch_folder("find") as empty:
            done = subprocess.run(
                [Path(found).absolute(), "-c", _FIND],  # a link as it is: it names an environment
                cwd=empty,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=True,
            )
        folders, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise HostError(
            f"{python} cannot be asked for its vLLM: {error}",
            hint="Name the interpreter that serves: vpatch check --installed /path/to/python",
            code="python",
        ) from error
    if not folders:
        raise UsageError(
            f"{python} has no vLLM",
            hint="Name the interpreter that serves: vpatch check --installed /path/to/python",
            code="no-vllm",
        )
    return of_folder(Path(folders[0]).parent, f"{version or 'vllm'} of {python}")


def _ready(tree: Tree, named: str) -> Tree:
    if f"{PACKAGE}/__init__.py" not in tree.paths:
        raise UsageError(
            f"{named} holds no vllm/__init__.py",
            hint="Name the folder that holds vllm/: a checkout, a worktree of `vpatch edit`, or "
            "site-packages.",
            code="no-vllm",
        )
    # In this order words are looked for, too: most are found in the first folders.
    tree.read_ahead([path for folder in _COMMON for path in tree.below(folder)])
    return tree


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _bounded(file.read(MAX_FILE + 1), str(path))
    except OSError as error:
        raise HostError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="Make it readable, and run it again.",
        ) from error


def _bounded(data: bytes, path: str) -> bytes:
    if len(data) > MAX_FILE:
        raise HostError(
            f"{path} is larger than {MAX_FILE // 2**20} MiB: this is no source file",
            hint="Take the release from the package index: vpatch fetch TAG",
            code="too-large",
        )
    return data
