"""Upstream's own build, run in the patched tree: for series that change compiled sources.

The environment is the caller's (CUDA_HOME, MAX_JOBS, sccache, TORCH_CUDA_ARCH_LIST, PATH): nothing
is added to it but the version that the wheel is to have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vpatch.errors import HostError, UsageError
from vpatch.files import disk_errors
from vpatch.git import Git
from vpatch.scratch import scratch_folder
from vpatch.tags import version_of
from vpatch.wheel.build import BuiltWheel, seal_wheel
from vpatch.wheel.edits import FileEdit
from vpatch.wheel.meta import with_label
from vpatch.wheel.provenance import Origin

# setuptools-scm would look for a repository; upstream's setup.py hands it no distribution name.
_VERSION_VARIABLES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_VLLM")
# Would replace our version, local label and all.
_OVERRIDE = "VLLM_VERSION_OVERRIDE"
_TAIL_LINES = 30
_SECONDS_TO_STOP = 10


def build_from_source(
    git: Git,
    tree: str,
    edits: Iterable[FileEdit],
    origin: Origin,
    *,
    out: Path,
    python: Path | None = None,
    isolated: bool = True,
    on_line: Callable[[str], None] | None = None,
) -> BuiltWheel:
    """Builds a wheel of the patched tree with upstream's own build.

    Args:
        git: The repository that holds the tree.
        tree: The patched tree.
        edits: What it changes, for the provenance.
        origin: The pin and the series.
        out: The folder for the wheel and its checksum.
        python: The interpreter that runs the build; this one when None.
        isolated: Let pip install upstream's build requirements (torch among them) into an
            environment of the build's own; without it they have to be there already.
        on_line: Told every line that the build prints.

    Raises:
        HostError: the build failed; the message has its last lines. Or the disk refuses.
        UsageError: this kind of source has no build in it.
        FindingError: the build made something else than a wheel of this release.
    """
    python = python or Path(sys.executable)
    tell = on_line or (lambda _: None)
    if _OVERRIDE in os.environ:
        tell(f"{_OVERRIDE} is left out: the version is the pin's")
    with (
        disk_errors(out),
        # Beside the output, not in /tmp: a CUDA build needs tens of gigabytes.
        tempfile.TemporaryDirectory(dir=_made(out), prefix=".vpatch-build-") as scratch,
    ):
        source, wheels = Path(scratch) / "vllm", Path(scratch) / "wheels"
        checkout(git, tree, source)
        if not (source / "setup.py").is_file():
            raise UsageError(
                f"{origin.tag} is imported from its wheel: Python files alone, with no build",
                hint="Take the release from git: --upstream-git URL",
                code="no-source",
            )
        options = [
            "--no-deps",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--progress-bar=off",
        ]
        if not isolated:
            options.append("--no-build-isolation")
        command = [str(python), "-m", "pip", "wheel", *options, "-w", str(wheels), str(source)]
        _run(command, build_environment(os.environ, origin), tell)
        made = sorted(wheels.glob("*.whl"))
        if len(made) != 1:
            raise HostError(
                f"upstream's build left {len(made)} wheels, not one", code="source-build"
            )
        return seal_wheel(made[0], edits, origin, out=out)


def build_environment(caller: Mapping[str, str], origin: Origin) -> dict[str, str]:
    """The caller's environment with the version that the wheel is to have."""
    version = str(with_label(version_of(origin.tag), origin.label))
    kept = {name: value for name, value in caller.items() if name != _OVERRIDE}
    return {**kept, **dict.fromkeys(_VERSION_VARIABLES, version)}


def checkout(git: Git, tree: str, folder: Path) -> None:
    """Writes a tree's files into a new folder, without touching any index or working tree."""
    folder.mkdir()
    with scratch_folder("index") as scratch:
        view = Git(git.git_dir, work_tree=folder, index=scratch / "index")
        view.run("read-tree", "--end-of-options", tree)
        view.run("checkout-index", "--all")


def _made(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return out


def _run(command: list[str], env: Mapping[str, str], tell: Callable[[str], None]) -> None:
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(
            f"{command[0]} could not be started: {error.strerror}",
            hint="Give --python an interpreter that has pip.",
            code="source-build",
        ) from error
    with process:
        try:
            for raw in process.stdout or ():
                line = raw.decode("utf-8", "replace").rstrip()
                tail.append(line)
                tell(line)
            status = process.wait()
        except BaseException:
            # Ctrl-C: compilers of a build in another session would go on for hours.
            _stop(process)
            raise
    if status:
        raise HostError(
            f"upstream's build failed with status {status}; its last lines:\n" + "\n".join(tail),
            hint="Set up what upstream's build needs (CUDA_HOME, a compiler, torch) and try again.",
            code="source-build",
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
