"""A written series as commits of the user's repository; what leaves has a commit of its own.

A folder that is new starts as a copy of the old release's, so that what was dropped and what was
changed can be read as diffs. Hooks do not run, and nothing else of the user's is committed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import FindingError, UsageError
from vpatch.git import Git
from vpatch.patches.export import NewSeries, is_ours
from vpatch.patches.origin import Origin
from vpatch.patches.repository import Repository, find_repository
from vpatch.patches.series import LISTING, Series

_FILE = "100644"


@dataclass(frozen=True)
class Place:
    """Where a series is going to be committed.

    Attributes:
        inside: The series folder, as a path in the repository.
        head: The commit that the first one stands on.
        identity: Variables with the committer's name and address.
    """

    repository: Repository
    inside: str
    head: str
    identity: Mapping[str, str]

    @property
    def git(self) -> Git:
        """The user's repository."""
        return Git(self.repository.git_dir, work_tree=self.repository.work_tree)


def find_place(folder: Path) -> Place:
    """The repository that a series folder lies in, if it can take commits.

    Args:
        folder: ``patches/TAG``; it need not exist yet.

    Raises:
        UsageError: it is in no repository, or nobody knows the committer's name.
        FindingError: git is in the midst of something there, or changes of the folder are staged.
        HostError: git failed.
    """
    repository = find_repository(folder.parent)
    if repository is None or repository.work_tree is None:
        raise UsageError(
            f"--commit: {folder.parent} is in no git worktree",
            hint="Leave --commit out, and keep the folder in your own way.",
            code="no-repository",
        )
    unfinished = repository.unfinished()
    if unfinished is not None:
        raise FindingError(
            f"{repository.work_tree} is in the midst of {unfinished}",
            hint=f"git -C {repository.work_tree} status says how to finish or abort it.",
            code="unfinished",
        )
    real, top = folder.parent.resolve() / folder.name, repository.work_tree.resolve()
    if not real.is_relative_to(top):
        raise UsageError(
            f"--commit: {folder} lies in {real.parent}, outside of {repository.work_tree}",
            hint="Leave --commit out, and commit it where it lies.",
            code="no-repository",
        )
    head = repository.find("HEAD")
    if head is None:
        raise UsageError(
            f"--commit: {repository.work_tree} has no commit yet to stand on",
            hint="Commit the old series first, or leave --commit out.",
            code="no-revision",
        )
    lock = repository.git_dir / "index.lock"
    if lock.exists():
        raise FindingError(
            f"{lock} is there: another git is at work in {repository.work_tree}, or was killed",
            hint="Wait until it is done; where none is, remove the file. Then run it again.",
            code="locked",
        )
    inside = real.relative_to(top).as_posix()
    place = Place(repository, inside, head, _identity(repository))
    staged = place.git.output("diff", "--cached", "--name-only", "-z", "HEAD", "--", inside)
    if staged:
        raise FindingError(
            f"changes of {folder} are staged already",
            hint=f"Commit them, or take them back: git restore --staged {inside}",
            code="staged",
        )
    return place


def _identity(repository: Repository) -> dict[str, str]:
    git = Git(repository.git_dir, work_tree=repository.work_tree, user_config=True)
    found: dict[str, str] = {}
    for what in ("name", "email"):
        value = os.environ.get(f"GIT_COMMITTER_{what.upper()}", "")
        value = value or git.run("config", f"user.{what}", ok=(0, 1)).stdout.decode().strip()
        if not value:
            raise UsageError(
                f"--commit: git does not know your {what}",
                hint=f"git config --global user.{what} ...",
                code="no-identity",
            )
        for role in ("AUTHOR", "COMMITTER"):
            found[f"GIT_{role}_{what.upper()}"] = value
    return found


def make_commits(
    place: Place, old: Series, new: NewSeries, origin: Origin, tag: str, files: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Commits of a series that is to be written; nothing points to them yet.

    Args:
        old: The series that it was carried from.
        new: What becomes of its patches.
        origin: What left, and why.
        files: The new folder's files.

    Returns:
        Their ids, the last one on top.
    """
    made: list[str] = []
    before = _folder(place)
    dropped = set(new.dropped)
    if dropped and not before:
        before = {patch.file: patch.raw for patch in old.patches}
        before[LISTING] = (old.folder / LISTING).read_bytes()
        title = f"patches: {tag} starts as a copy of {old.tag}"
        made.append(_commit(place, made, before, title))
    leaving = dropped & set(before)
    if leaving:
        rest = {name: data for name, data in before.items() if name not in leaving}
        rest[LISTING] = _without(before[LISTING], leaving)
        made.append(_commit(place, made, rest, _farewell(tag, origin, leaving)))
    counts = _counted(new)
    title = f"patches: {tag}, carried from {old.tag}"
    made.append(_commit(place, made, files, f"{title}\n\n{counts}"))
    return tuple(made)


def _folder(place: Place) -> dict[str, bytes]:
    """What HEAD has of the folder that is vpatch's."""
    start = f"{place.inside}/"
    blobs = place.git.blob_ids(place.head, (start,))
    contents = place.git.read_blobs(blobs.values())
    names = {path.removeprefix(start): blob for path, blob in blobs.items()}
    return {name: contents[blob] for name, blob in names.items() if is_ours(name)}


def _without(text: bytes, names: Collection[str]) -> bytes:
    """A ``series`` file without some patches."""
    lines = text.split(b"\n")
    return b"\n".join(
        line for line in lines if line.split(b"#", 1)[0].strip().decode() not in names
    )


def _commit(place: Place, made: Sequence[str], files: Mapping[str, bytes], message: str) -> str:
    parent = made[-1] if made else place.head
    with place.git.temporary_index() as index:
        index.run("read-tree", parent)
        listed = index.output("ls-files", "-z", "--", f"{place.inside}/").split(b"\0")[:-1]
        start = f"{place.inside}/".encode("utf-8", "surrogateescape")
        lines = [
            b"0 " + b"0" * 40 + b"\t" + path
            for path in listed
            if is_ours(path.removeprefix(start).decode("utf-8", "surrogateescape"))
        ]
        for name, data in files.items():
            blob = index.line("hash-object", "-w", "--stdin", stdin=data)
            lines.append(f"{_FILE} {blob}\t".encode() + start + name.encode())
        index.run(
            "update-index", "-z", "--index-info", stdin=b"".join(one + b"\0" for one in lines)
        )
        tree = index.line("write-tree")
    output = place.git.run(
        "commit-tree", tree, "-p", parent, stdin=message.encode("utf-8"), env=place.identity
    )
    return output.stdout.decode("ascii").strip()


def _farewell(tag: str, origin: Origin, names: Collection[str]) -> str:
    parts = [f"patches: {tag} drops what it has no need of\n"]
    for left in origin.left:
        if left.patch in names:
            parts.append(f"{left.patch} ({left.verdict}): {left.why}".rstrip(": "))
            parts += [f"  {each}" for each in left.evidence]
    return "\n".join(parts) + "\n"


def _counted(new: NewSeries) -> str:
    counts: dict[str, int] = {}
    for row in new.rows:
        counts[row["change"]] = counts.get(row["change"], 0) + 1
    return ", ".join(f"{count} {change}" for change, count in counts.items()) + "\n"


def take(place: Place, commits: Sequence[str], names: Collection[str]) -> None:
    """Makes the last commit HEAD, once the folder is written; the index goes before.

    Args:
        names: Files of the folder, of before and of now.

    Raises:
        HostError: HEAD is another commit by now, or git failed.
    """
    git = place.git
    paths = "".join(f"{place.inside}/{name}\0" for name in names)
    request = paths.encode("utf-8", "surrogateescape")
    # First: where the index is locked, the files are staged nowhere, and HEAD is as it was.
    git.run("update-index", "-z", "--add", "--remove", "--stdin", stdin=request)
    git.run("update-ref", "-m", "vpatch rebase", "HEAD", commits[-1], place.head)
