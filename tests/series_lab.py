"""Small real repositories, and series of real git patches on them, for the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.git import Git
from vpatch.patches.series import Series

TAG = "v9.9.9"
TRAILERS = """\
Topic: eagle3-interface
Upstream-Status: Pending
Signed-off-by: A Tester <tester@example.com>
"""
Content = bytes | tuple[str, bytes] | None
"""A file's bytes, or (mode, bytes), or None to delete it."""

_AUTHOR = {
    "GIT_AUTHOR_NAME": "A Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.com",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0100",
}


@dataclass(frozen=True)
class Step:
    """One patch to make: its file name, its message and what it changes."""

    file: str
    changes: Mapping[str, Content]
    subject: str = ""
    body: str = "Because the test asks for it."
    trailers: str = TRAILERS

    @property
    def message(self) -> str:
        subject = self.subject or self.file[5:].removesuffix(".patch").replace("-", " ")
        return f"{subject}\n\n{self.body}\n\n{self.trailers}"


class Lab:
    """A bare repository with a base commit, and the patches that are made on it."""

    def __init__(self, folder: Path, files: Mapping[str, Content]) -> None:
        self.git = Git(folder / "mirror.git")
        self.git.git_dir.mkdir(parents=True)
        self.git.run("init", "--quiet", "--bare")
        self.base = self.tree(None, files)
        self.commit = self.commit_tree(self.base, None, "The base")
        self.git.run("update-ref", f"refs/vpatch/sdist/{TAG}", self.commit)

    def tree(self, start: str | None, changes: Mapping[str, Content]) -> str:
        """A tree with some files changed."""
        with self.git.temporary_index() as index:
            if start is not None:
                index.run("read-tree", start)
            for path, content in changes.items():
                index.run("update-index", "--index-info", stdin=self._entry(path, content))
            return index.line("write-tree")

    def _entry(self, path: str, content: Content) -> bytes:
        name = path.encode("utf-8", "surrogateescape")
        if content is None:
            return b"0 " + b"0" * 40 + b"\t" + name + b"\n"
        mode, data = ("100644", content) if isinstance(content, bytes) else content
        blob = self.git.line("hash-object", "-w", "--stdin", stdin=data)
        return f"{mode} {blob}\t".encode() + name + b"\n"

    def commit_tree(self, tree: str, parent: str | None, message: str) -> str:
        """A commit with a fixed author and date."""
        parents = ["-p", parent] if parent else []
        env = {**_AUTHOR, "GIT_COMMITTER_DATE": _AUTHOR["GIT_AUTHOR_DATE"]}
        output = self.git.run("commit-tree", tree, *parents, stdin=message.encode(), env=env)
        return output.stdout.decode().strip()

    def patch(self, commit: str) -> bytes:
        """The commit as the project writes its patches."""
        options = ("--zero-commit", "--no-signature", "--full-index", "--no-stat", "--binary")
        return self.git.output("format-patch", "--stdout", "-1", *options, commit)

    def series(self, folder: Path, steps: Sequence[Step]) -> Series:
        """Writes the steps as a series folder and reads it back."""
        write_series(folder, {step.file: raw for step, raw in self.patches(steps)})
        return Series.read(folder, TAG)

    def patches(self, steps: Sequence[Step]) -> list[tuple[Step, bytes]]:
        """Each step's patch, made on top of the steps before it."""
        made: list[tuple[Step, bytes]] = []
        tree, commit = self.base, self.commit
        for step in steps:
            tree = self.tree(tree, step.changes)
            commit = self.commit_tree(tree, commit, step.message)
            made.append((step, self.patch(commit)))
        return made

    def files(self, tree: str) -> dict[str, str]:
        """path -> mode and blob id."""
        listing = self.git.output("ls-tree", "-r", "-z", tree).decode("utf-8", "surrogateescape")
        entries = (entry.split("\t", 1) for entry in listing.split("\0")[:-1])
        return {path: " ".join((meta.split()[0], meta.split()[2])) for meta, path in entries}


def plain_git(*args: str, folder: Path, stdin: bytes = b"", both: bool = False) -> bytes:
    """What the user's own git prints, with whatever settings the test gave the user.

    ``both`` adds what it says on stderr.
    """
    command = ["git", *args]
    done = subprocess.run(command, input=stdin, capture_output=True, check=True, cwd=folder)
    return done.stdout + done.stderr if both else done.stdout


def write_series(folder: Path, patches: Mapping[str, bytes]) -> None:
    """A series folder with these files, in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in patches.items():
        (folder / name).write_bytes(raw)
    (folder / "series").write_text("".join(f"{name}\n" for name in patches))


def numbered(count: int, *, changed: Mapping[int, str] | None = None) -> bytes:
    """A file of numbered lines, some of them replaced."""
    lines = (f"line {n}" for n in range(1, count + 1))
    replaced = changed or {}
    return "".join(f"{replaced.get(n, line)}\n" for n, line in enumerate(lines, 1)).encode()
