"""The user's own repositories: found, asked for little, and borrowed from.

Nothing that makes bytes runs in them: their configuration, attributes, hooks, grafts and replace
refs would have a say. A scratch repository reads their objects instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import HostError, UsageError
from vpatch.git import Git
from vpatch.scratch import scratch_folder

_UNFINISHED = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or git am",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert of several commits",
    "BISECT_LOG": "a bisection",
}
_OBJECT_ID_LENGTH = 40
_LINE_ENDS = ("-c", "core.autocrlf=input")


@dataclass(frozen=True)
class Repository:
    """A git repository on this machine.

    Attributes:
        git_dir: Its git directory; that of the worktree, where it is a linked one.
        common_dir: The directory with the objects, which linked worktrees share.
        work_tree: Its working tree; None where it is bare.
    """

    git_dir: Path
    common_dir: Path
    work_tree: Path | None

    def resolve(self, revision: str) -> str:
        """The commit that a revision names.

        Raises:
            UsageError: it names none.
            HostError: git failed.
        """
        commit = self.find(revision)
        if commit is None:
            raise UsageError(
                f"{revision!r} is no commit of {self.work_tree or self.git_dir}",
                hint="Name a branch, a tag, a commit id, or a folder that is a worktree.",
                code="no-revision",
            )
        return commit

    def find(self, revision: str) -> str | None:
        """The commit that a revision names, or None."""
        if "\0" in revision or not revision:
            return None
        asked = ("--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        output = Git(self.git_dir).run("rev-parse", *asked, ok=(0, 1, 128))
        line = output.stdout.decode("ascii", "replace").strip()
        return line if output.status == 0 and len(line) == _OBJECT_ID_LENGTH else None

    def unfinished(self) -> str | None:
        """What git is in the midst of here, in words; None where it is in the midst of nothing."""
        return next(
            (what for name, what in _UNFINISHED.items() if (self.git_dir / name).exists()), None
        )

    def changed_files(self) -> tuple[str, ...]:
        """Files of the working tree that are not as HEAD has them, and untracked ones.

        What the user's own git ignores counts as ignored, and a file that differs only by the line
        ends that the user's git writes is as it was. A file that git is told not to look at
        (assume-unchanged, skip-worktree) is looked at.
        """
        if self.work_tree is None:
            return ()
        git = Git(self.git_dir, work_tree=self.work_tree, user_config=True)
        options = ("--porcelain", "-z", "--untracked-files=all", "--no-renames")
        listed = git.output(*_LINE_ENDS, "status", *options)
        shown = [_path(entry[3:]) for entry in listed.split(b"\0") if entry]
        return (*shown, *(f"{path} (hidden from git status)" for path in self._hidden(git)))

    def _hidden(self, git: Git) -> list[str]:
        """Changed files that git is told not to look at."""
        told = [
            _path(entry[2:])
            for entry in git.output("ls-files", "-v", "-z").split(b"\0")
            # A sparse checkout lacks files on purpose: those are skipped, and not there.
            if entry[:1] == b"h" or (entry[:1] in (b"S", b"s") and self._is_there(entry[2:]))
        ]
        if not told:
            return []
        with scratch_folder("index") as folder:
            index = folder / "index"
            fresh = Git(self.git_dir, work_tree=self.work_tree, index=index, user_config=True)
            fresh.run("read-tree", "HEAD")
            fresh.run(*_LINE_ENDS, "update-index", "-q", "--refresh", ok=(0, 1))
            listed = fresh.output(*_LINE_ENDS, "diff-files", "--name-only", "-z")
        changed = {_path(name) for name in listed.split(b"\0") if name}
        return [path for path in told if path in changed]

    def _is_there(self, name: bytes) -> bool:
        return self.work_tree is not None and os.path.lexists(self.work_tree / _path(name))


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def find_repository(start: Path, *, upwards: bool = True) -> Repository | None:
    """The repository that a folder belongs to.

    Args:
        start: The folder.
        upwards: Also look in the folders above it.

    Raises:
        HostError: a repository is there, and it cannot be read.
    """
    start = Path(os.path.abspath(start))  # noqa: PTH100 - ".." goes, links stay
    for folder in (start, *start.parents) if upwards else (start,):
        if (folder / ".git").exists():
            return _repository(_git_dir(folder / ".git"), folder)
        if _is_git_dir(folder):
            return _repository(folder, None)
    return None


@contextmanager
def scratch_repository(*lenders: Path) -> Iterator[Git]:
    """A bare repository that reads the objects of others, gone afterwards.

    Args:
        lenders: Git directories (common ones) with objects.

    Raises:
        HostError: git failed, or a lender's objects are of another kind.
    """
    with scratch_folder("scratch") as folder:
        git = Git(folder / "scratch.git")
        git.git_dir.mkdir()
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        info = git.git_dir / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        objects = [os.fsencode((lender / "objects").resolve()) for lender in lenders]
        (info / "alternates").write_bytes(b"".join(_alternate(path) + b"\n" for path in objects))
        shallow = [lender / "shallow" for lender in lenders if (lender / "shallow").is_file()]
        if shallow:
            lines = {line for path in shallow for line in path.read_bytes().split()}
            cut = b"".join(line + b"\n" for line in sorted(lines))
            (git.git_dir / "shallow").write_bytes(cut)
        yield git


def _alternate(path: bytes) -> bytes:
    """A path as ``objects/info/alternates`` spells it."""
    if not path.startswith((b'"', b"#")) and b"\n" not in path:
        return path
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _is_git_dir(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and all(
        (folder / part).is_dir() for part in ("objects", "refs")
    )


def _git_dir(dot_git: Path) -> Path:
    """Where ``.git`` is, or where the file of that name says it is."""
    if dot_git.is_dir():
        return dot_git
    text = _first_line(dot_git)
    if not text.startswith("gitdir: "):
        raise _damaged(dot_git)
    return dot_git.parent / text.removeprefix("gitdir: ")


def _repository(git_dir: Path, work_tree: Path | None) -> Repository:
    commondir = git_dir / "commondir"
    common = git_dir / _first_line(commondir) if commondir.is_file() else git_dir
    if not (git_dir / "HEAD").is_file() or not (common / "objects").is_dir():
        raise _damaged(git_dir)
    return Repository(git_dir, Path(os.path.normpath(common)), work_tree)


def _first_line(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes().split(b"\n")[0].rstrip(b"\r"))
    except OSError as error:
        raise HostError(f"{path} cannot be read: {error.strerror}", code="git") from error


def _damaged(path: Path) -> HostError:
    return HostError(
        f"{path} is no git repository that can be read",
        hint=f"git -C {path.parent} status says what git finds there.",
        code="git",
    )
