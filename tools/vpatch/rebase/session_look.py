"""What a person did in the worktree of a rebase: taken where it is whole, never thrown away."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import FindingError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.commit_object import CommitObject
from vpatch.patches.edit import is_cache, kept_refs, lost_commits, unsaved_files
from vpatch.patches.place import split_lines
from vpatch.patches.repository import Repository, find_repository
from vpatch.patches.worktree import base_ref
from vpatch.rebase.markers import clashes, left_markers
from vpatch.rebase.model import Entry
from vpatch.rebase.session import Session, Stand
from vpatch.rebase.session_tree import Expected, branch_of, standing, work_git
from vpatch.rebase.snapshot import Snapshot

_BACKUP = ".orig"
_CR_LF = b"\r\n"


def repository_of(folder: Path) -> Repository:
    """The worktree's repository.

    Raises:
        FindingError: it is none any more.
    """
    found = find_repository(folder, upwards=False) if folder.is_dir() else None
    if found is None or found.work_tree is None:
        raise FindingError(
            f"{folder} is no git worktree any more",
            hint="Move what you need elsewhere and remove the folder: vpatch rebase FROM TO "
            "writes it again, with what was resolved so far.",
            code="no-worktree",
        )
    return found


def check_history(folder: Path, target: str, stand: Stand) -> None:
    """git stands where it was put.

    Raises:
        FindingError: it is in the midst of something, commits were made by hand, or another branch
            is checked out.
    """
    repository = repository_of(folder)
    unfinished = repository.unfinished()
    if unfinished is not None:
        raise FindingError(
            f"{folder} is in the midst of {unfinished}",
            hint=f"git -C {folder} status says how to finish or abort it.",
            code="unfinished",
        )
    if (repository.git_dir / "index.lock").exists():
        raise FindingError(
            f"git is at work in {folder}, or was killed there: its index is locked",
            hint=f"If no git is running: rm {repository.git_dir / 'index.lock'}",
            code="unfinished",
        )
    branch = Git(repository.git_dir).run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).stdout.decode()
    head = repository.find("HEAD")
    own = f"refs/heads/{branch_of(target)}"
    if head == stand.head and branch.strip() == own:
        return
    if branch.strip() != own:
        where = branch.strip().removeprefix("refs/heads/") or f"commit {str(head)[:12]}"
        raise FindingError(
            f"{folder} is on {where}, not on {branch_of(target)}",
            hint=f"git -C {folder} checkout {branch_of(target)}",
            code="other-branch",
        )
    raise FindingError(
        f"a commit was made by hand in {folder}: {_commit(repository, head)}",
        hint=f"git -C {folder} reset --soft {stand.head} takes the commit back and keeps its "
        "files; vpatch commits the patch with its own message and author.",
        code="hand-made-commit",
    )


def _commit(repository: Repository, head: str | None) -> str:
    data = Git(repository.git_dir).read_blobs([head] if head else [])
    if not head or head not in data:
        return "HEAD names none"
    return f"{head[:12]} ({CommitObject.parse(head, data[head]).subject[:60]!r})"


def taken(folder: Path, session: Session) -> dict[str, Entry | None]:
    """The files of the patch, as a person left them.

    Raises:
        FindingError: `check_history`.
        FindingsError: a conflict that nobody touched, a marker that is left, a file that is no part
            of the patch.
    """
    stand = session.stand
    check_history(folder, session.target, stand)
    work = work_git(folder)
    unmerged = _unmerged(work)
    findings: list[Finding] = []
    files: dict[str, Entry | None] = {}
    for path in sorted({*stand.files, *stand.stages}):
        entry = files[path] = standing(folder, path)
        if path in stand.stages:
            findings += _unsettled(folder, stand, path, entry, untouched=path in unmerged)
    for path, staged in _others(work, stand):
        if staged:
            files[path] = standing(folder, path)
            findings += _markers(folder, path, files[path], ())
        else:
            findings.append(_foreign(folder, path, stand))
    head = Snapshot(work, stand.head)
    findings += [
        finding
        for path, entry in files.items()
        if entry is not None
        for finding in _line_ends(folder, path, head.original(path), entry, stand.patch)
    ]
    if findings:
        raise FindingsError(findings)
    return files


def _line_ends(
    folder: Path, path: str, before: Entry | None, after: Entry, patch: str
) -> Iterator[Finding]:
    """A line end that the diff of a file would have, and that no series can have."""
    if _CR_LF not in after.data or b"\0" in after.data:
        return
    old, new = split_lines(before.data if before else b""), split_lines(after.data)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    shown = (code for group in matcher.get_grouped_opcodes(3) for code in group)
    lines = (n for _, _, _, start, end in shown for n in range(start, end))
    first = next((n + 1 for n in lines if new[n].endswith(_CR_LF)), None)
    if first is None:
        return
    message = "a line ends in CR LF, which no series can have: git am drops the CR"
    mend = "Save the file with LF alone."
    if before is not None and _CR_LF in before.data:
        message += "; the new release has such lines"
        mend = f"Leave the patch out: vpatch rebase --skip {patch}"
    yield Finding(str(folder / path), first, "crlf", message, mend)


def _unmerged(work: Git) -> set[str]:
    listed = work.output("ls-files", "--unmerged", "-z").split(b"\0")[:-1]
    return {line.split(b"\t", 1)[1].decode("utf-8", "surrogateescape") for line in listed}


def _unsettled(
    folder: Path, stand: Stand, path: str, entry: Entry | None, *, untouched: bool
) -> Iterator[Finding]:
    if untouched and entry == stand.files[path]:
        places = clashes(entry.data) if entry else ()
        settle = f"git -C {folder} add {path}, or git -C {folder} rm {path}"
        mend = "Edit the file." if places else f"If it is to stay, or to go: {settle}"
        message = "the conflict is as it was: nobody resolved it yet"
        for line in [one.line for one in places] if places else [None]:
            yield Finding(str(folder / path), line, "unresolved", message, mend)
        return
    sides = tuple(side.data for side in stand.stages[path] if side is not None)
    yield from _markers(folder, path, entry, sides)


def _markers(
    folder: Path, path: str, entry: Entry | None, sides: tuple[bytes, ...]
) -> Iterator[Finding]:
    for line, text in left_markers(entry.data if entry else b"", sides):
        message = f"the marker {text[:60]!r} is left"
        mend = "Edit the file: no line of the markers may stay."
        yield Finding(str(folder / path), line, "marker", message, mend)


def _others(work: Git, stand: Stand) -> Iterator[tuple[str, bool]]:
    """Changed files that are no part of the patch, each with whether somebody staged it."""
    options = ("--porcelain", "-z", "--untracked-files=all", "--no-renames")
    for line in work.output("status", *options).split(b"\0")[:-1]:
        path = line[3:].decode("utf-8", "surrogateescape")
        if path in stand.files or path in stand.stages:
            continue
        if line[:2] == b"??" and (is_cache(path) or is_backup(work, stand, path)):
            continue
        yield path, line[:1] in b"AMDT" and line[:2] not in (b"AA", b"DD")


def is_backup(work: Git, stand: Stand, path: str) -> bool:
    """Whether `git mergetool` left it: the file with its markers, as vpatch wrote it."""
    was = path.removesuffix(_BACKUP)
    if was == path or was not in stand.stages or work.work_tree is None:
        return False
    entry, before = standing(work.work_tree, path), stand.files[was]
    return entry is not None and before is not None and entry.data == before.data


def _foreign(folder: Path, path: str, stand: Stand) -> Finding:
    add = f"git -C {folder} add {path}"
    return Finding(
        str(folder / path),
        None,
        "foreign-file",
        f"the file is no part of {stand.patch}",
        f"If it belongs to the patch: {add}. If not, move it elsewhere or take it back.",
    )


@dataclass(frozen=True)
class Work:
    """What a worktree holds that vpatch did not put there.

    Attributes:
        edits: Files of the patch that conflicts, edited.
        unknown: Everything else, a phrase each.
    """

    edits: tuple[str, ...]
    unknown: tuple[str, ...]


def work_in(folder: Path, session: Session) -> Work:
    """What would be lost with a worktree.

    Raises:
        FindingError: it is no repository any more.
        HostError: git failed.
    """
    stand = session.stand
    repository = repository_of(folder)
    work = work_git(folder)
    expected = Expected(work, stand)
    paths = sorted({*stand.files, *stand.stages})
    edits = [path for path in paths if standing(folder, path) != expected.entry(path)]
    unknown: list[str] = []
    unfinished = repository.unfinished()
    if unfinished is not None:
        unknown.append(f"{unfinished} that is not finished")
    for path in dict.fromkeys(unsaved_files(repository)):
        ours = path in stand.files or path in stand.stages
        if not ours and not is_backup(work, stand, path):
            unknown.append(f"the file {path}")
    own = {f"refs/heads/{branch_of(session.target)}", f"refs/{base_ref(session.target)}"}
    unknown += kept_refs(work, own)
    unknown += lost_commits(repository, (session.commits[1], stand.head))
    return Work(tuple(edits), tuple(unknown))


def clear_backups(folder: Path, stand: Stand) -> None:
    """Removes what `git mergetool` left, where it is the text that vpatch wrote."""
    work = work_git(folder)
    for path in stand.stages:
        if is_backup(work, stand, f"{path}{_BACKUP}"):
            (folder / f"{path}{_BACKUP}").unlink()
