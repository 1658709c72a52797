"""A small release with everything around it, and every verb as a process on it.

Everything is real: an index server with sdist and wheels, a repository whose series ``vpatch pin``
pinned, a worktree that ``vpatch edit`` wrote, a mailbox that git wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wheel_lab
from archives import make_sdist
from indexserver import IndexServer, running
from kill_lab import contents
from project_lab import committed, git, write
from series_lab import TRAILERS, Lab, Step, numbered, plain_git

TAG = "v0.17.1"  # one that smoke knows
NEXT = "v0.18.0"  # released, no pin
UNKNOWN = "v0.17.9"  # nobody released it
SDIST = "vllm-0.17.1.tar.gz"
WHEEL = f"vllm-0.17.1-{wheel_lab.TAGS}.whl"
MODEL = "vllm/models/long.py"
PACKAGE: Mapping[str, bytes] = {**wheel_lab.FILES, MODEL: numbered(60)}
TREE: Mapping[str, bytes] = {
    **{path: data for path, data in PACKAGE.items() if not path.endswith((".so", ".json"))},
    "tests/test_long.py": numbered(20),
    "setup.py": b"setup()\n",
}
STEPS = (
    Step("0001-long-say-five.patch", {MODEL: numbered(60, changed={5: "five"})}),
    Step("0002-tests-nine-is-said.patch", {"tests/test_long.py": numbered(20, changed={9: "n"})}),
    Step("0003-long-say-fifty.patch", {MODEL: numbered(60, changed={5: "five", 50: "fifty"})}),
)
NOT_A_WHEEL = b"<!DOCTYPE html><title>404</title>\n" * 40


@dataclass(frozen=True)
class Ran:
    """One run of the command."""

    verb: str
    status: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert self.stdout.count("\n") == 1, self
        value = json.loads(self.stdout)
        assert isinstance(value, dict), self
        assert value["schema"] == f"vpatch/{self.verb}/1", self
        assert value["ok"] is (self.status == 0), self
        return value


@dataclass
class World:
    """A folder with ``repo/``, ``work/``, ``box``, wheels, and a cache that may be warm.

    Attributes:
        index: What the index server serves; None: nobody listens there.
        cache: ``VPATCH_CACHE``.
    """

    folder: Path
    cache: Path
    index: IndexServer | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def series(self) -> Path:
        return self.repo / "patches" / TAG

    @property
    def out(self) -> Path:
        """Where wheels and worktrees of a run go."""
        return self.folder / "out"

    @property
    def environment(self) -> dict[str, str]:
        url = self.index.url if self.index else "http://127.0.0.1:9/simple"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": url,
            "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
            "VPATCH_CACHE": str(self.cache),
            "HOME": str(self.folder),
            "NO_COLOR": "1",
        }

    def words(self, verb: str, tag: str = TAG) -> tuple[str, ...]:
        """A good call of a verb."""
        rest: dict[str, tuple[str, ...]] = {
            "releases": (),
            "build": (tag, "--arch", "x86_64", "--out", str(self.out / "dist")),
            "smoke": (tag, "--device", "cpu", "--keep", str(self.out / "kept")),
            "export": (tag, "--from", str(self.folder / "work")),
            "edit": (tag, str(self.out / "edit")),
            "refresh": (tag, STEPS[0].file),
            "import": (tag, str(self.folder / "box"), "--topic", "eagle3-interface"),
            "inspect": (str(self.folder / "wheels" / WHEEL),),
        }
        return (verb, *rest.get(verb, (tag,)))

    def start(
        self, *words: str, shell: str = "", more: Sequence[str] = ("--json",)
    ) -> subprocess.Popen[str]:
        """Starts the command; ``shell`` runs before it, in the process that it becomes."""
        command = [sys.executable, "-m", "vpatch", *words, *more]
        return subprocess.Popen(
            ["/bin/sh", "-c", f'{shell}exec "$@"', "sh", *command],
            cwd=self.repo,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, shell: str = "", more: Sequence[str] = ("--json",)) -> Ran:
        """Runs the command to its end."""
        return ended(words[0], self.start(*words, shell=shell, more=more))

    def written(self) -> dict[str, bytes]:
        """All that a run may not leave half done: everything but the cache and empty locks."""
        return {
            f"{place.name}/{path}": data
            for place in (self.repo, self.out, self.folder / "work")
            for path, data in contents(place).items()
            if not (path.endswith(".lock") and not data)
        }


def ended(verb: str, process: subprocess.Popen[str]) -> Ran:
    """Waits for a run."""
    stdout, stderr = process.communicate(timeout=120)
    return Ran(verb, process.returncode, stdout, stderr)


def make_world(folder: Path) -> World:
    """Makes everything, with the command itself where the command makes it."""
    files = _release_files(folder / "wheels")
    world = World(folder, folder / "cache", files=files)
    world.repo.mkdir(parents=True)
    (world.repo / "pyproject.toml").touch()
    Lab(folder / "lab", TREE).series(world.series, STEPS)
    (world.series / "README.md").write_text("A person's notes.\n")
    with served(world):
        for words in (("pin", TAG), ("edit", TAG, str(folder / "work"))):
            ran = world.run(*words)
            assert ran.status == 0, ran
        # The wheel of the release too, so that a warm cache needs no network for anything.
        ran = world.run("build", TAG, "--arch", "x86_64", "--out", str(folder / "warm"))
        assert ran.status == 0, ran
    shutil.rmtree(folder / "warm")
    work = folder / "work"
    git(work, "checkout", "-q", "-b", "colleague")
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\nBecause.\n\n{TRAILERS}")
    mail = plain_git("format-patch", "--stdout", "--zero-commit", "-1", folder=work)
    (folder / "box").write_bytes(mail)
    git(work, "checkout", "-q", f"vpatch/{TAG}")
    return world


def copied(template: World, folder: Path, *, warm: bool) -> World:
    """The same in another folder, so that a test can spoil it."""
    left_out = () if warm else ("cache",)
    shutil.copytree(
        template.folder, folder, symlinks=True, ignore=lambda _, names: {*left_out} & {*names}
    )
    return World(folder, folder / "cache", files=template.files)


@contextmanager
def served(world: World) -> Iterator[IndexServer]:
    """The world's index, as long as the block."""
    with running(IndexServer(files=dict(world.files))) as index:
        world.index = index
        try:
            yield index
        finally:
            world.index = None


def _release_files(folder: Path) -> dict[str, bytes]:
    wheel_lab_folder = folder / "made"
    made = [
        wheel_lab.make_wheel(wheel_lab_folder, version="0.17.1", files=PACKAGE),
        wheel_lab.make_wheel(wheel_lab_folder, version="0.18.0", files=PACKAGE),
    ]
    tree = {path: (0o644, data) for path, data in TREE.items()}
    for path in made:
        path.rename(folder / path.name)
    files = {path.name: (folder / path.name).read_bytes() for path in made}
    return {
        **files,
        SDIST: make_sdist("0.17.1", tree),
        "vllm-0.18.0.tar.gz": make_sdist("0.18.0", tree),
    }


def bad_wheels(folder: Path) -> dict[str, Path]:
    """Files that are no wheel of vLLM, each in its own way."""
    folder.mkdir(parents=True)
    good = folder.parent / "wheels" / WHEEL
    other = wheel_lab.make_wheel(
        folder / "six", name="six", version="1.17.0", files={"six.py": b"x = 1\n"}
    )
    made = {
        "page": folder / "page" / WHEEL,
        "empty": folder / "empty" / WHEEL,
        "cut": folder / "cut" / WHEEL,
        "zip": folder / "zip" / WHEEL,
        "name": folder / "name" / "vllm.whl",
    }
    data = {"page": NOT_A_WHEEL, "empty": b"", "cut": good.read_bytes()[:5000]}
    for name, path in made.items():
        path.parent.mkdir()
        path.write_bytes(data.get(name, good.read_bytes()))
    write(made["zip"].parent, {"note.txt": b"no wheel\n"})
    made["zip"].unlink()
    shutil.make_archive(
        str(made["zip"].with_suffix("")), "zip", made["zip"].parent, base_dir="note.txt"
    )
    made["zip"].with_suffix(".zip").rename(made["zip"])
    made["folder"] = folder / "folder" / WHEEL
    made["folder"].mkdir(parents=True)
    return {**made, "missing": folder / "missing" / WHEEL, "other": other}
