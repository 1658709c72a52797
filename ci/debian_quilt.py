"""A quilt series as commits: one a patch, the tree exactly what dpkg-source makes of it.

The patch's header (DEP-3 fields or a mail's) is kept whole in the commit's message, each line
quoted, so that nothing in it is taken for anything; the tree after the last patch has to be the one
that dpkg-source lays, to the byte.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from debian_source import Package, Quilt, Version, read_quilt, run, unpack
from vpatch.errors import HostError
from vpatch.git import Git
from vpatch.patches.patch import Patch

# What dpkg-source gives to patch(1): no fuzz, no guessing.
_PATCH = ("patch", "-t", "-F", "0", "-N", "-p1", "-u", "-s", "--no-backup-if-mismatch", "-E")
_MAIL = ("--zero-commit", "--no-signature", "--full-index", "--no-stat", "--binary")
_ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding !diff\n"
_DIFF = re.compile(rb"^(?:--- |diff |Index: |=== )", re.MULTILINE)
_ENV = {
    "GIT_AUTHOR_NAME": "A Maintainer",
    "GIT_AUTHOR_EMAIL": "maintainer@example.com",
    "GIT_AUTHOR_DATE": "2020-01-01T00:00:00+0000",
    "GIT_COMMITTER_DATE": "2020-01-01T00:00:00+0000",
}


@dataclass(frozen=True)
class Step:
    """A quilt patch as a commit.

    Attributes:
        before, after: The commits on both sides of it.
        patch: The same as a git patch.
    """

    quilt: Quilt
    before: str
    after: str
    patch: Patch


@dataclass(frozen=True)
class Line:
    """A version of a package: upstream's files, and its series on them."""

    version: Version
    base: str
    steps: tuple[Step, ...]

    @property
    def head(self) -> str:
        """The commit with the whole series."""
        return self.steps[-1].after if self.steps else self.base


def make_repository(folder: Path) -> Git:
    """A repository that takes files as they are."""
    git = Git(folder)
    folder.mkdir(parents=True)
    git.run("init", "--quiet", "--bare", "--template=")
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / "attributes").write_text(_ATTRIBUTES)
    return git


def make_line(git: Git, package: Package, version: Version, store: Path, scratch: Path) -> Line:
    """A version as commits.

    Raises:
        HostError: a patch does not apply, or another tree comes out than dpkg-source makes.
    """
    name = f"{package.name}-{version.suite}"
    work = unpack(store, version, scratch / name, patched=False)
    quilt = tuple(read_quilt(work))
    shutil.rmtree(work / "debian")
    tree = Git(git.git_dir, work_tree=work, index=scratch / f"{name}.index")
    last = base = _commit(tree, None, f"{package.name} {version.upstream}\n")
    steps = []
    for one in quilt:
        run(*_PATCH, "-d", work, stdin=one.raw)
        commit = _commit(tree, last, message(one))
        steps.append(Step(one, last, commit, _patch(git, one, commit)))
        last = commit
    _compare(git, package, version, store, scratch, last)
    return Line(version, base, tuple(steps))


def _compare(
    git: Git, package: Package, version: Version, store: Path, scratch: Path, made: str
) -> None:
    name = f"{package.name}-{version.suite}-patched"
    work = unpack(store, version, scratch / name, patched=True)
    shutil.rmtree(work / "debian")
    tree = Git(git.git_dir, work_tree=work, index=scratch / f"{name}.index")
    theirs = _commit(tree, None, "as dpkg-source lays it\n")
    wrong = git.output("diff-tree", "-r", "--name-only", made, theirs).decode("utf-8", "replace")
    shutil.rmtree(work)
    if wrong:
        raise HostError(
            f"{package.name} {version.version}: dpkg-source makes other files: {wrong.split()}",
            code="other-tree",
        )


def _commit(git: Git, parent: str | None, text: str) -> str:
    git.run("add", "--all", "--force", "--", ".")
    tree = git.line("write-tree")
    parents = ["-p", parent] if parent else []
    said = text.encode("utf-8", "surrogateescape")
    done = git.run("commit-tree", *parents, tree, stdin=said, env=_ENV)
    return done.stdout.decode("ascii").strip()


def message(quilt: Quilt) -> str:
    """A commit's message: the patch's name, and its header, quoted."""
    lines = header(quilt).decode("utf-8", "surrogateescape").split("\n")
    return "\n".join([quilt.name, "", *(f"|{line}|" for line in lines)]) + "\n"


def header_in(text: str) -> bytes:
    """The header that a commit's message holds."""
    lines = text.rstrip("\n").split("\n")[2:]
    return "\n".join(line[1:-1] for line in lines).encode("utf-8", "surrogateescape")


def header(quilt: Quilt) -> bytes:
    """What stands before the diff."""
    found = _DIFF.search(quilt.raw)
    return quilt.raw[: found.start()] if found else quilt.raw


def _patch(git: Git, quilt: Quilt, commit: str) -> Patch:
    raw = git.output("format-patch", "--stdout", "-1", *_MAIL, "--end-of-options", commit)
    patch = Patch.parse(quilt.name, raw)
    if header_in(patch.mail.message) != header(quilt):
        raise HostError(f"the header of {quilt.name} does not survive as a mail", code="header")
    return patch


def counterpart(steps: Sequence[Step], old: Step) -> Step | None:
    """What the maintainers made of a patch: by its name but for a number, else by what it does."""
    by_name = (step for step in steps if _plain(step) == _plain(old))
    same = (step for step in steps if _does(step) == _does(old))
    return next(by_name, None) or next(same, None)


def _plain(step: Step) -> str:
    return re.sub(r"^\d+-", "", step.quilt.name)


def _does(step: Step) -> list[tuple[object, ...]]:
    return [
        (change.path, [line for hunk in change.hunks for line in hunk.body if line[0] != " "])
        for change in step.patch.files
    ]
