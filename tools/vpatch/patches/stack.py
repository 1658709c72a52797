"""Patches put one behind the other as commits, without a checkout: in place, or by three-way.

A three-way merge starts from the file that the patch was made on. Where git has that file, its
word counts more than that of lines which fit: they may stand in another function, or be there a
second time already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.errors import ConflictError
from vpatch.git import Git
from vpatch.patches.apply import Conflict, PatchConflictError, apply_series
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series

THREE_WAY = "three-way"
_NO_BLOB = "0"
_NOWHERE = Path()


@dataclass(frozen=True)
class Author:
    """Who wrote a patch; the date is what ``GIT_AUTHOR_DATE`` takes."""

    name: str
    email: str
    date: str

    @property
    def environment(self) -> dict[str, str]:
        """What git takes the author from."""
        return {
            "GIT_AUTHOR_NAME": self.name,
            "GIT_AUTHOR_EMAIL": self.email,
            "GIT_AUTHOR_DATE": self.date,
        }

    def complaint(self, git: Git) -> str:
        """Why git would not take this author or date; empty where it does."""
        if "\0" in self.name + self.email + self.date:
            return "it holds a NUL"
        told = git.run("var", "GIT_AUTHOR_IDENT", env=self.environment, ok=(0, 1, 128))
        return told.complaint if told.status else ""


class StackConflictError(PatchConflictError):
    """A patch does not fit on the stack (exit 3); ``conflict`` says where and why."""

    def __init__(self, conflict: Conflict, name: str, behind: str) -> None:
        super().__init__(conflict)
        told = self.message.partition(": ")[2]
        self.message = f"{name} does not fit {behind}: {told}"
        self.args = (self.message,)
        self.hint = (
            "Nothing was written. Rebase the change on the series (vpatch edit), or place it "
        )
        self.hint += "elsewhere with --after NAME."


class Stack:
    """A line of commits that grows.

    Attributes:
        commit, tree: Its tip.
        behind: What the tip is, for sentences.
    """

    def __init__(self, git: Git, tag: str, commit: str, tree: str) -> None:
        self.git = git
        self.tag = tag
        self.commit = commit
        self.tree = tree
        self.behind = tag

    def push(self, patch: Patch, message: str, author: Author, name: str) -> str:
        """Puts a patch on top.

        Args:
            patch: The change.
            message, author: What the commit says.
            name: What sentences call the patch.

        Returns:
            ``clean``, ``offset`` or ``three-way``; ``""`` where it changes nothing, and no
            commit is made.

        Raises:
            ConflictError: it does not fit.
            HostError: git failed.
        """
        tree, verdict = self._placed(patch, name)
        if tree == self.tree:
            return ""
        env = {**author.environment, "GIT_COMMITTER_DATE": author.date}
        made = self.git.run(
            "commit-tree", tree, "-p", self.commit, stdin=message.encode("utf-8"), env=env
        )
        self.commit, self.tree, self.behind = made.stdout.decode("ascii").strip(), tree, name
        return verdict

    def _placed(self, patch: Patch, name: str) -> tuple[str, str]:
        tree, verdict, conflict = self._directly(patch)
        if verdict and self._has_its_files(patch):
            return tree, verdict
        paths: tuple[str, ...] = ()
        if self._can_merge(patch):
            merged, paths = self._merged(patch)
            if merged is not None:
                return merged, verdict if verdict and merged == tree else THREE_WAY
        elif verdict:
            return tree, verdict
        if conflict is not None:
            # What a merge takes is no reason, though its lines stand elsewhere.
            reasons = tuple(misfit for misfit in conflict.misfits if misfit.path in paths)
            told = replace(conflict, misfits=reasons or conflict.misfits)
            raise StackConflictError(told, name, f"behind {self.behind}")
        raise ConflictError(
            f"{name} does not fit behind {self.behind}: its lines of {paths[0]} stand there, but a "
            "merge with the file that they were made on conflicts",
            hint=f"Nothing was written. Look whether {paths[0]} still has the place for it, and "
            "rebase the change on the series (vpatch edit).",
            code="conflict",
        )

    def _directly(self, patch: Patch) -> tuple[str, str, Conflict | None]:
        """(tree, verdict, None) where the hunks stand, and the conflict where they do not."""
        one = Series(self.tag, _NOWHERE, (patch,))
        try:
            applied = apply_series(self.git, self.tree, one)
        except PatchConflictError as error:
            return "", "", error.conflict
        return applied.tree, applied.patches[0].verdict, None

    def _has_its_files(self, patch: Patch) -> bool:
        """Whether every file is, byte for byte, the one that the patch was made on."""
        named = {change.path_old: change.blob_old for change in patch.files if change.path_old}
        there = self.git.blob_ids(self.tree, named) if named else {}
        return all(blob and there.get(path, "").startswith(blob) for path, blob in named.items())

    def _can_merge(self, patch: Patch) -> bool:
        """Whether git has every file that the patch was made on."""
        wanted = {change.blob_old for change in patch.files if change.blob_old.strip(_NO_BLOB)}
        if not wanted:
            return False
        request = "".join(f"{blob}\n" for blob in sorted(wanted)).encode("ascii")
        answer = self.git.output("cat-file", "--batch-check", stdin=request).decode("ascii")
        return all(line.split(" ")[1] == "blob" for line in answer.splitlines())

    def _merged(self, patch: Patch) -> tuple[str | None, tuple[str, ...]]:
        """(tree, ()) of a three-way merge, or (None, the paths that conflict)."""
        with self.git.temporary_index() as index:
            index.run("read-tree", self.tree)
            output = index.run("apply", "--3way", "--cached", "-", stdin=patch.diff, ok=(0, 1))
            if output.status == 0:
                return index.line("write-tree"), ()
            listed = index.output("ls-files", "--unmerged", "-z").split(b"\0")[:-1]
        names = (entry.partition(b"\t")[2].decode("utf-8", "surrogateescape") for entry in listed)
        return None, tuple(dict.fromkeys(names)) or patch.paths
