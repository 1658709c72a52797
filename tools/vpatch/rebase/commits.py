"""Carried patches as a line of commits on the new release, and what each commit changes there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vpatch.findings import FindingsError
from vpatch.git import IDENTITY_EMAIL, IDENTITY_NAME, Git
from vpatch.patches.commit_object import read_date
from vpatch.patches.commits import DIFF_OPTIONS
from vpatch.patches.diff import FileChange, read_changes
from vpatch.patches.patch import Patch
from vpatch.rebase.model import Entry, Files

_REF = "refs/vpatch/rebase/"
_START = b"diff --git "
# Most of these objects live no longer than the rebase.
_FAST = ("-c", "pack.compression=1")


@dataclass(frozen=True)
class Made:
    """A patch, and the files that differ after it: what becomes a commit."""

    patch: Patch
    files: Files


def make_commits(git: Git, base: str, made: Sequence[Made], *, name: str = "line") -> list[str]:
    """A line of commits, in one process.

    Args:
        git: A repository of our own; it gains objects and a ref.
        base: The commit that the first one stands on.
        name: What the ref is called; another line of that name is forgotten.

    Returns:
        The commits' ids, in order.
    """
    if not made:
        return []
    ref = _REF + name
    stream = b"".join(_stream(ref, base, number, one) for number, one in enumerate(made, start=1))
    options = ("--quiet", "--force", "--date-format=raw", "--depth=0")
    git.run(*_FAST, "fast-import", *options, stdin=stream)
    listed = git.output("rev-list", "--reverse", f"{base}..{ref}").decode("ascii").split()
    if len(listed) != len(made):
        raise ValueError(f"git made {len(listed)} commits of {len(made)} patches")
    return listed


def _stream(ref: str, base: str, number: int, made: Made) -> bytes:
    mail = made.patch.mail
    date = read_date(mail.date)
    when = f"{date.seconds if date else 0} {_zone(date.zone if date else 0)}"
    author = f"{_plain(mail.author_name)} <{_plain(mail.author_email)}> {when}"
    head = f"commit {ref}\nmark :{number}\nauthor {author}\n"
    head += f"committer {IDENTITY_NAME} <{IDENTITY_EMAIL}> {when}\n"
    message = mail.message.encode("utf-8", "surrogateescape")
    start = base if number == 1 else f":{number - 1}"
    parts = [head.encode("utf-8", "surrogateescape"), b"data %d\n" % len(message), message]
    # What goes is said first: a file may take the place of a folder.
    files = sorted(made.files.items(), key=lambda item: item[1] is not None)
    parts += [f"\nfrom {start}\n".encode(), *(_file(path, entry) for path, entry in files), b"\n"]
    return b"".join(parts)


def _zone(seconds: int) -> str:
    minutes = abs(seconds) // 60
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}{minutes % 60:02}"


def _plain(text: str) -> str:
    return "".join(char for char in text if char not in "<>\n\0").strip()


def _file(path: str, entry: Entry | None) -> bytes:
    name = _quoted(path)
    if entry is None:
        return b"D " + name + b"\n"
    if entry.mode == "160000":
        return f"M 160000 {entry.id} ".encode() + name + b"\n"
    head = f"M {entry.mode} inline ".encode() + name
    return head + b"\ndata %d\n" % len(entry.data) + entry.data + b"\n"


def _quoted(path: str) -> bytes:
    raw = path.encode("utf-8", "surrogateescape")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def changes_of(git: Git, commits: Iterable[str]) -> dict[str, tuple[FileChange, ...]]:
    """What commits change, in one process: commit -> its diff, read.

    A diff that cannot be read (a submodule's, say) is as if it had no files.
    """
    wanted = list(commits)
    if not wanted:
        return {}
    request = "".join(f"{commit}\n" for commit in wanted).encode("ascii")
    options = ("--stdin", "-r", "-p", *DIFF_OPTIONS)
    answer = b"\n" + git.output("diff-tree", *options, stdin=request)
    found: dict[str, tuple[FileChange, ...]] = {}
    position = 0
    for commit, following in zip(wanted, [*wanted[1:], ""], strict=True):
        # A line of a diff has a sign in front: an id alone on its line is none.
        start = answer.index(f"\n{commit}\n".encode(), position) + len(commit) + 2
        end = answer.index(f"\n{following}\n".encode(), start - 1) if following else len(answer)
        found[commit] = _read(commit, answer[start : end + 1])
        position = end
    return found


def _read(commit: str, text: bytes) -> tuple[FileChange, ...]:
    start = text.find(_START)
    if start < 0:
        return ()
    try:
        return read_changes(commit, text[start:], 1)
    except FindingsError:
        return ()
