"""Merges that git really makes, as changes that the guard looks at."""

from __future__ import annotations

from pathlib import Path

from vpatch.git import Git
from vpatch.patches.diff import FileChange, read_changes
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.hunks import placed, runs_of
from vpatch.rebase.model import Change, Question

PATCH = "0001-a-patch.patch"


class GuardLab:
    """A repository that merges, diffs and applies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git = Git(folder / "lab.git")
        self.git.git_dir.mkdir(parents=True)
        self.git.run("init", "--quiet", "--bare")

    def tree(self, path: str, data: bytes) -> str:
        """A tree with one file."""
        blob = self.git.line("hash-object", "-w", "--stdin", stdin=data)
        with self.git.temporary_index() as index:
            index.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
            return index.line("write-tree")

    def diff(self, path: str, old: bytes, new: bytes) -> bytes:
        """git's diff of a file."""
        if old == new:
            return b""
        for side, data in (("a", old), ("b", new)):
            file = self.folder / "sides" / side / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        git = Git(self.git.git_dir, work_tree=self.folder / "sides")
        names = f"a/{path}", f"b/{path}"
        options = ("--no-index", "--no-prefix", "--full-index")
        return git.run("diff", *options, "--", *names, ok=(1,)).stdout

    def changes(self, path: str, old: bytes, new: bytes) -> tuple[FileChange, ...]:
        """The same, read."""
        diff = self.diff(path, old, new)
        return read_changes("x.patch", diff, 1) if diff else ()

    def merged(self, before: bytes, after: bytes, upstream: bytes) -> bytes | None:
        """The three-way merge of a file; None where it conflicts."""
        names = []
        for name, data in (("ours", upstream), ("base", before), ("theirs", after)):
            (self.folder / name).write_bytes(data)
            names.append(str(self.folder / name))
        done = self.git.run("merge-file", "-p", *names, ok=range(128))
        return None if done.status else done.stdout

    def applied(self, path: str, before: bytes, after: bytes, upstream: bytes) -> bytes | None:
        """What `git apply` makes of the patch on upstream's file; None where it refuses."""
        diff = self.diff(path, before, after)
        with self.git.temporary_index() as index:
            index.run("read-tree", self.tree(path, upstream))
            if index.run("apply", "--cached", "-", stdin=diff, ok=(0, 1)).status:
                return None
            return self.git.output("cat-file", "blob", f"{index.line('write-tree')}:{path}")

    def change(
        self, path: str, before: bytes, after: bytes, upstream: bytes, result: bytes
    ) -> Change:
        """The change that the guard is given."""
        old = [run for each in self.changes(path, before, after) for run in runs_of(each)]
        new = [run for each in self.changes(path, upstream, result) for run in runs_of(each)]
        runs = placed(old, new)
        return Change(path, path, before, after, upstream, result, runs)

    def asked(
        self, path: str, before: str, after: str, upstream: str, result: bytes | None = None
    ) -> tuple[Question, ...]:
        """What the guard says of a merge; of git's own where no result is given."""
        texts = before.encode(), after.encode(), upstream.encode()
        made = self.merged(*texts) if result is None else result
        assert made is not None, "git says itself that it conflicts"
        return guarded(PATCH, [self.change(path, *texts, made)])


def kinds(questions: tuple[Question, ...]) -> set[str]:
    """Their kinds."""
    return {question.kind for question in questions}
