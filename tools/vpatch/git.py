"""The only door to git: hermetic, bytes in, bytes out.

Every command runs with the user's configuration, hooks, attributes, identity and ``GIT_*``
variables out of the way, so that the same input gives the same objects on every machine.
GitPython starts and reaps the processes; it always hands down ``os.environ``, so stray ``GIT_*``
variables are removed with ``env -u`` in front of the command. It is imported when the first
command runs: its import starts git, which fails where git is missing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git.cmd import Git as GitPython

from vpatch.errors import HostError
from vpatch.scratch import scratch_folder

IDENTITY_NAME = "vpatch"
IDENTITY_EMAIL = "vpatch@localhost"

_FIXED_ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_AUTHOR_NAME": IDENTITY_NAME,
    "GIT_AUTHOR_EMAIL": IDENTITY_EMAIL,
    "GIT_COMMITTER_NAME": IDENTITY_NAME,
    "GIT_COMMITTER_EMAIL": IDENTITY_EMAIL,
    "LC_ALL": "C",
    "TZ": "UTC",
}

# Repository-level settings that would change bytes even with global and system config gone.
_FIXED_CONFIG: tuple[str, ...] = (
    "core.attributesFile=" + os.devnull,
    "core.hooksPath=" + os.devnull,
    "core.autocrlf=false",
    "core.eol=lf",
    "core.fsmonitor=false",
    "core.quotePath=true",
    "apply.whitespace=nowarn",
    "apply.ignoreWhitespace=no",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


# With the user's configuration come the user's variables for talking to a remote, and no others:
# a GIT_DIR or GIT_INDEX_FILE of a surrounding hook would still point at somebody else's files.
_TRANSPORT_VARIABLES = (
    "GIT_ALLOW_PROTOCOL",
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_SYSTEM",
    "GIT_HTTP",
    "GIT_PROXY",
    "GIT_SSH",
    "GIT_SSL",
)
# What env(1) ends with when the program that it should start does not exist.
_NOT_FOUND_STATUS = 127
# How git says that the disk is to blame, on whatever line.
_FULL = ("No space left on device", "Out of diskspace", "Disk quota exceeded")
_FORBIDDEN = ("Permission denied", "Read-only file system")


@dataclass(frozen=True)
class Output:
    """What one git command left: exit status and both streams, untouched bytes."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def complaint(self) -> str:
        """The line of stderr that says why: one about the disk, git's first fatal, or its last."""
        text = self.stderr.decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        causes = [line for line in lines if any(word in line for word in (*_FULL, *_FORBIDDEN))]
        if not lines:
            return f"git exited with status {self.status}"
        # What stands behind a fatal is advice.
        causes += [line for line in lines if line.startswith("fatal: ")]
        return causes[0] if causes else lines[-1]


class Git:
    """git commands on one repository.

    Args:
        git_dir: The repository's git directory (the folder itself where it is bare).
        work_tree: The working tree, for the few commands that need one.
        index: An index file of the caller's own, so that nobody else's is touched.
        user_config: Keep the user's global and system configuration: only for talking to a
            remote, which needs the user's credentials, proxies and URL rewrites.
    """

    def __init__(
        self,
        git_dir: Path,
        *,
        work_tree: Path | None = None,
        index: Path | None = None,
        user_config: bool = False,
    ) -> None:
        # Absolute: git resolves GIT_DIR against the folder that it runs in, not against ours.
        self.git_dir = git_dir.absolute()
        self.work_tree = work_tree.absolute() if work_tree else None
        self.index = index.absolute() if index else None
        self.user_config = user_config

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Output:
        """Runs ``git ARGS`` and returns its output as bytes.

        Args:
            args: Subcommand and arguments. A value that comes from outside must stand behind
                ``--end-of-options`` or ``--``, or be an object id.
            stdin: Bytes for standard input; empty when None.
            ok: Exit statuses that are answers rather than failures.
            env: Extra environment for this command (dates, an index file).

        Raises:
            HostError: git is missing, or ended with a status outside ``ok``.
        """
        output = _execute(self._command(args), self._environment(env), stdin)
        if output.status not in ok:
            raise self._failure(args[0], output)
        return output

    def _failure(self, command: str, output: Output) -> HostError:
        said = output.complaint
        hint = "Run it again; if it stays so: is the disk full, is the repository whole (git fsck)?"
        code = "git"
        if any(word in said for word in _FULL):
            hint = "Free disk space, or point VPATCH_CACHE at a larger disk, and run it again."
            code = "disk"
        elif any(word in said for word in _FORBIDDEN):
            hint = "Make the folder writable, or point VPATCH_CACHE at one that is."
            code = "disk"
        return HostError(f"git {command} failed in {self.git_dir}: {said}", hint=hint, code=code)

    def output(self, *args: str, stdin: bytes | None = None) -> bytes:
        """Standard output of a command that has to succeed."""
        return self.run(*args, stdin=stdin).stdout

    def line(self, *args: str, stdin: bytes | None = None) -> str:
        """The single line that a command prints: an object id, a ref name."""
        return self.output(*args, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")

    @contextmanager
    def temporary_index(self) -> Iterator[Git]:
        """The same repository with an empty index of its own, gone afterwards."""
        with scratch_folder("index") as folder:
            yield Git(self.git_dir, work_tree=self.work_tree, index=folder / "index")

    def read_blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Contents of blobs, in one process.

        Args:
            names: Object names as ``cat-file --batch`` takes them (an id, ``TREE:path``); a name
                may not hold a newline.

        Returns:
            name -> bytes; a name that does not exist is left out.
        """
        wanted = list(dict.fromkeys(names))
        if any("\n" in name for name in wanted):
            raise ValueError("an object name with a newline cannot be asked for in a batch")
        request = "".join(f"{name}\n" for name in wanted).encode("utf-8", "surrogateescape")
        return dict(_parse_batch(wanted, self.output("cat-file", "--batch", stdin=request)))

    def blob_ids(self, tree: str, paths: Iterable[str]) -> dict[str, str]:
        """Ids of the files at these paths of a tree; a path that is no file is left out."""
        listed = self.output("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
        entries = (entry.split(b"\t", 1) for entry in listed.split(b"\0") if entry)
        return {
            path.decode("utf-8", "surrogateescape"): meta.split(b" ")[2].decode()
            for meta, path in entries
        }

    def _cwd(self) -> Path:
        return self.work_tree or self.git_dir

    def _command(self, args: tuple[str, ...]) -> list[str]:
        stray = [name for name in os.environ if name.startswith("GIT_") and not self._kept(name)]
        prefix = ["env", *(part for name in stray for part in ("-u", name))] if stray else []
        settings = [part for setting in _FIXED_CONFIG for part in ("-c", setting)]
        return [*prefix, "git", "--no-pager", "-C", str(self._cwd()), *settings, *args]

    def _kept(self, name: str) -> bool:
        return self.user_config and name.startswith(_TRANSPORT_VARIABLES)

    def _environment(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        fixed = dict(_FIXED_ENVIRONMENT)
        if self.user_config:
            for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
                del fixed[name]
        fixed["GIT_DIR"] = str(self.git_dir)
        if self.work_tree is not None:
            fixed["GIT_WORK_TREE"] = str(self.work_tree)
        if self.index is not None:
            fixed["GIT_INDEX_FILE"] = str(self.index)
        return {**fixed, **(extra or {})}


def blob_id(data: bytes) -> str:
    """The id that git gives to a file with these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _execute(command: list[str], env: dict[str, str], stdin: bytes | None) -> Output:
    # `env -u` also removes what we set, so our own variables are passed as its assignments.
    if command[0] == "env":
        split = command.index("git")
        command = [*command[:split], *(f"{k}={v}" for k, v in env.items()), *command[split:]]
    git, not_found = _gitpython()
    try:
        # Started in the root: git goes to its folder itself (-C) and complains when it is gone,
        # where GitPython would expand `~` and `$` in the name, or quietly stay where it is.
        process = git(os.sep).execute(
            command, as_process=True, istream=subprocess.PIPE, env=env, stdout_as_string=False
        )
    except not_found as error:
        raise _git_missing() from error
    except OSError as error:
        raise HostError(
            f"git could not be started: {error.strerror or error}",
            hint="Check that git works here: git --version",
            code="git",
        ) from error
    try:
        stdout, stderr = process.communicate(stdin or b"")
    except BaseException:
        # Nobody waits for its answer any more, and its repository may be about to go.
        process.kill()
        process.communicate()
        raise
    status = process.returncode
    if status == _NOT_FOUND_STATUS and command[0] == "env":
        raise _git_missing()
    return Output(status=status, stdout=stdout, stderr=stderr)


def _gitpython() -> tuple[type[GitPython], type[Exception]]:
    try:
        from git.cmd import Git as GitPython  # noqa: PLC0415  (see the module's docstring)
        from git.exc import GitCommandNotFound  # noqa: PLC0415
    except ImportError as error:
        raise _git_missing() from error
    return GitPython, GitCommandNotFound


def _git_missing() -> HostError:
    return HostError(
        "git could not be started: it is not on PATH",
        hint="Install git 2.30 or newer and run the command again.",
        code="git-missing",
    )


def _parse_batch(names: list[str], answer: bytes) -> Iterator[tuple[str, bytes]]:
    position = 0
    for name in names:
        end = answer.index(b"\n", position)
        header = answer[position:end]
        position = end + 1
        if header.endswith((b" missing", b" ambiguous")):
            continue
        size = int(header.rsplit(b" ", 1)[1])
        yield name, answer[position : position + size]
        position += size + 1
