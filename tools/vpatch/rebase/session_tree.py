"""The worktree of a rebase in session: a repository of its own, laid out and moved on in place.

Every file is put whole. A move that was killed is done again: it knows what it left and what it
makes, and takes nothing else away.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from vpatch.errors import FindingError
from vpatch.files import disk_errors, write_atomically
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.worktree import base_ref
from vpatch.rebase.model import Entry
from vpatch.rebase.session import Stand
from vpatch.rebase.snapshot import Snapshot

HOME = "vpatch-session"
_FRESH, _INDEX, _STAND = "vpatch-file", "vpatch-index", "vpatch-stand"
_NO_BLOB = "0" * 40
# The bytes in the folder are the bytes in git, for every tool.
_ATTRIBUTES = b"* -text !eol -ident -filter -working-tree-encoding\n"


def work_git(folder: Path) -> Git:
    """git in the worktree."""
    return Git(folder / ".git", work_tree=folder)


def branch_of(target: str) -> str:
    """The branch that is checked out."""
    return f"vpatch/rebase/{target}"


def lay_out(git: Git, folder: Path, repo: Path, target: str, base: str, stand: Stand) -> None:
    """Fills a new folder; not all at once.

    Args:
        git: The repository in which the series was carried.
        folder: It does not exist yet.
        repo: The folder that holds ``patches/``.
        base: The new release's commit.

    Raises:
        HostError: git failed, or the disk refused.
    """
    with disk_errors(folder):
        folder.mkdir()
        work = work_git(folder)
        work.run("init", "--quiet", "--template=", f"--initial-branch={branch_of(target)}")
        work.run("config", "merge.conflictStyle", "diff3")
        (work.git_dir / "info").mkdir(exist_ok=True)
        (work.git_dir / "info" / "attributes").write_bytes(_ATTRIBUTES)
        (work.git_dir / HOME).write_bytes(os.fsencode(repo) + b"\n" + target.encode() + b"\n")
        shallow = git.git_dir / "shallow"
        if shallow.is_file():
            shutil.copyfile(shallow, work.git_dir / "shallow")
    bring(git, folder, stand.head, ())
    work.run("update-ref", f"refs/{base_ref(target)}", base)
    work.run("update-ref", "HEAD", stand.head)
    work.run("reset", "--quiet", "--hard")
    move(folder, target, Stand("", stand.head), stand)


def bring(git: Git, folder: Path, head: str, there: tuple[str, ...]) -> None:
    """Copies a commit and all that it needs into the worktree's repository.

    Args:
        there: Commits that it has already.
    """
    wanted = "".join(f"{line}\n" for line in (head, *(f"^{commit}" for commit in there)))
    pack = git.output("pack-objects", "--revs", "--stdout", "-q", stdin=wanted.encode("ascii"))
    work_git(folder).run("index-pack", "--stdin", "--fix-thin", stdin=pack)


def home_of(start: Path) -> tuple[Path, str, Path] | None:
    """The session whose worktree a folder lies in: its repository, its release, the worktree."""
    for folder in (start.absolute(), *start.absolute().parents):
        try:
            repo, target, *_ = (folder / ".git" / HOME).read_bytes().split(b"\n")
        except (OSError, ValueError):
            continue
        return Path(os.fsdecode(repo)), os.fsdecode(target), folder
    return None


def standing(folder: Path, path: str) -> Entry | None:
    """A file of the worktree; None where there is none.

    Raises:
        FindingError: something else stands in its place, or a link on the way to it.
    """
    place = folder
    for part in path.split("/")[:-1]:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise _in_the_way(place)
    place = folder / path
    try:
        mode = place.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(mode):
        return Entry("120000", os.fsencode(os.readlink(place)))  # noqa: PTH115 - bytes of it
    if not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode) and not any(each.is_file() for each in place.rglob("*")):
            return None
        raise _in_the_way(place)
    with disk_errors(place):
        return Entry("100755" if mode & stat.S_IXUSR else "100644", place.read_bytes())


def _in_the_way(place: Path) -> FindingError:
    return FindingError(
        f"{place} is in the way of a file of the patch",
        hint="Move it elsewhere, and run it again.",
        code="in-the-way",
    )


class Expected:
    """The files of a worktree as they are to be at a stand."""

    def __init__(self, work: Git, stand: Stand) -> None:
        self.stand = stand
        self.head = Snapshot(work, stand.head)

    def entry(self, path: str) -> Entry | None:
        """A file; None where there is to be none."""
        files = self.stand.files
        return files[path] if path in files else self.head.original(path)


def _touched(was: Expected, now: Expected) -> list[str]:
    """The paths that a move may change, sorted."""
    old, new = was.head.listed, now.head.listed
    heads = {path for path in {*old, *new} if old.get(path) != new.get(path)}
    return sorted({*was.stand.files, *now.stand.files, *heads})


def check_move(folder: Path, was: Stand, now: Stand) -> None:
    """Nothing is lost when the worktree moves on.

    Raises:
        FindingsError: a file is neither as it was left nor as it is going to be.
    """
    work = work_git(folder)
    old, new = Expected(work, was), Expected(work, now)
    findings = [
        Finding(
            str(folder / path),
            None,
            "in-the-way",
            "the file is in the way: the next patch has one of this name"
            if old.entry(path) is None
            else "the file was changed while the worktree moved on",
            "Move it elsewhere, and run it again.",
        )
        for path in _touched(old, new)
        if standing(folder, path) not in (None, old.entry(path), new.entry(path))
    ]
    if findings:
        raise FindingsError(findings)


def move(folder: Path, target: str, was: Stand, now: Stand) -> None:
    """Puts a worktree from one stand to another; doing it again changes nothing.

    Raises:
        FindingError: something is in the way.
        HostError: git failed, or the disk refused.
    """
    work = work_git(folder)
    old, new = Expected(work, was), Expected(work, now)
    paths = _touched(old, new)
    wanted = {path: new.entry(path) for path in paths}
    with disk_errors(folder):
        # What goes, goes first: a file may take the place of a folder.
        for path in sorted(paths, key=lambda path: wanted[path] is not None):
            if standing(folder, path) != wanted[path]:
                _put(folder, path, wanted[path])
    _set_index(work, now)
    work.run("update-ref", f"refs/heads/{branch_of(target)}", now.head)
    work.run("symbolic-ref", "HEAD", f"refs/heads/{branch_of(target)}")
    write_atomically(work.git_dir / _STAND, _name_of(now))


def is_at(folder: Path, stand: Stand) -> bool:
    """Whether the last move came to its end there: what differs since is a person's."""
    try:
        return (folder / ".git" / _STAND).read_bytes() == _name_of(stand)
    except OSError:
        return False


def _name_of(stand: Stand) -> bytes:
    return f"{stand.head} {stand.patch}\n".encode()


def _put(folder: Path, path: str, entry: Entry | None) -> None:
    place = folder / path
    if entry is None:
        place.unlink()
        for parent in place.relative_to(folder).parents:
            if parent == Path() or any((folder / parent).iterdir()):
                break
            (folder / parent).rmdir()
        return
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)  # empty folders alone
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder / ".git" / _FRESH
    fresh.unlink(missing_ok=True)
    if entry.mode == "120000":
        fresh.symlink_to(os.fsdecode(entry.data))
    else:
        fresh.write_bytes(entry.data)
        if entry.mode == "100755":
            fresh.chmod(fresh.stat().st_mode | 0o111)
    fresh.replace(place)


def _set_index(work: Git, stand: Stand) -> None:
    """An index of the commit, the patch's files staged, those that conflict in their stages."""
    path = work.git_dir / _INDEX
    for left in (path, path.with_name(f"{path.name}.lock")):
        left.unlink(missing_ok=True)
    index = Git(work.git_dir, work_tree=work.work_tree, index=path)
    index.run("read-tree", stand.head)
    lines = "".join(f"{line}\0" for line in _index_lines(work, stand))
    request = lines.encode("utf-8", "surrogateescape")
    index.run("update-index", "-z", "--index-info", stdin=request)
    index.run("update-index", "-q", "--unmerged", "--refresh", ok=(0, 1))
    path.replace(work.git_dir / "index")


def _index_lines(work: Git, stand: Stand) -> Iterator[str]:
    for path, entry in stand.files.items():
        if path not in stand.stages:
            yield f"{_object(work, entry)}\t{path}"
    for path, sides in stand.stages.items():
        yield f"0 {_NO_BLOB}\t{path}"
        for number, entry in enumerate(sides, start=1):
            if entry is not None:
                yield f"{_object(work, entry)} {number}\t{path}"


def _object(work: Git, entry: Entry | None) -> str:
    if entry is None:
        return f"0 {_NO_BLOB}"
    if entry.mode == "160000":
        return f"160000 {entry.id}"
    blob = work.line("hash-object", "-w", "-t", "blob", "--stdin", stdin=entry.data)
    return f"{entry.mode} {blob}"
