"""Debian's source packages: fetched as the machine's own apt would, unpacked by dpkg-source.

apt works in folders of its own, with the `deb-src` lines that the machine's own configuration
implies: which mirror that is, the machine says. What is fetched is kept in vpatch's cache, and only
the bytes whose hashes are committed count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from vpatch.errors import HostError
from vpatch.files import cache_dir, sha256_file

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_COMPONENT = "main"


@dataclass(frozen=True)
class Version:
    """A source package in one suite.

    Attributes:
        sha256: File name -> its hash; the .dsc is among them.
    """

    suite: str
    version: str
    sha256: Mapping[str, str]

    @property
    def upstream(self) -> str:
        """Upstream's part of the version."""
        return self.version.rpartition("-")[0].rpartition(":")[2]

    @property
    def dsc(self) -> str:
        """The file that describes it."""
        return next(name for name in self.sha256 if name.endswith(".dsc"))


@dataclass(frozen=True)
class Package:
    """A package that judges: its old series, and what its maintainers made of it."""

    name: str
    language: str
    old: Version
    new: Version


def read_packages(path: Path) -> tuple[Package, ...]:
    """The packages of a file like debian_packages.toml."""
    listed = tomli.loads(path.read_text(encoding="utf-8"))["package"]
    return tuple(
        Package(one["name"], one["language"], _version(one["old"]), _version(one["new"]))
        for one in listed
    )


def _version(data: Mapping[str, Any]) -> Version:
    return Version(data["suite"], data["version"], dict(data["sha256"]))


def fetch(package: Package) -> Path:
    """All files of both versions, in a folder of the cache.

    Raises:
        HostError: a file is not to be had, or has other bytes.
    """
    store = cache_dir() / "debian" / package.name
    store.mkdir(parents=True, exist_ok=True)
    for version in (package.old, package.new):
        if any(not _is_there(store, *one) for one in version.sha256.items()):
            _download(package.name, version, store)
        for name, sha256 in version.sha256.items():
            if not _is_there(store, name, sha256):
                raise HostError(
                    f"{name} is not the file that the package was chosen with",
                    hint=f"Remove {store} and run it again; docs/debian.md stands as it was run.",
                    code="hash-mismatch",
                )
    return store


def _is_there(store: Path, name: str, sha256: str) -> bool:
    path = store / name
    return path.is_file() and sha256_file(path) == sha256


def _download(name: str, version: Version, store: Path) -> None:
    config = _apt(version.suite)
    wanted = f"{name}={version.version}"
    run("apt-get", "-qq", "source", "--download-only", wanted, cwd=store, APT_CONFIG=str(config))


def _apt(suite: str) -> Path:
    """A configuration of apt with the sources of one suite, and their index."""
    folder = cache_dir() / "debian" / "apt" / suite
    config = folder / "apt.conf"
    if config.is_file():
        return config
    for part in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.is_file() else ""
    (folder / "sources.list").write_text(f"deb-src {signed}{_mirror()} {suite} {_COMPONENT}\n")
    fresh = folder / "apt.new"
    fresh.write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list";\n'
        f'Dir::Etc::SourceParts "{folder}/parts";\n'
        f'Dir::State::Lists "{folder}/lists";\n'
        f'Dir::Cache "{folder}/cache";\n'
        'APT::Sandbox::User "";\n'
    )
    run("apt-get", "-qq", "update", APT_CONFIG=str(fresh))
    fresh.rename(config)
    return config


def _mirror() -> str:
    """The mirror that this machine's packages come from."""
    asked = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    listed = run("apt-get", "indextargets", "--format", asked).decode().splitlines()
    for line in listed:
        uri, release, component = line.split("|")
        if component == _COMPONENT and "-" not in release and "security" not in uri:
            return uri
    raise HostError(
        "apt on this machine knows no mirror of Debian",
        hint="Run it on Debian, with a `deb` line for its main component.",
        code="no-mirror",
    )


def unpack(store: Path, version: Version, folder: Path, *, patched: bool) -> Path:
    """A version's files as dpkg-source lays them.

    Args:
        store: Where its archives are.
        folder: Is made.
        patched: With its series applied; without, the series is in debian/patches only.

    Raises:
        HostError: dpkg-source refuses it.
    """
    options = ["--no-check", *([] if patched else ["--skip-patches"])]
    run("dpkg-source", *options, "--extract", store / version.dsc, folder)
    shutil.rmtree(folder / ".pc", ignore_errors=True)
    return folder


@dataclass(frozen=True)
class Quilt:
    """One patch of a quilt series: its name in debian/patches, and its bytes."""

    name: str
    raw: bytes


def read_quilt(folder: Path) -> Iterator[Quilt]:
    """The series of an unpacked package, in order.

    Raises:
        HostError: an entry has options that dpkg-source ignores.
    """
    patches = folder / "debian" / "patches"
    for line in (patches / "series").read_text(encoding="utf-8").splitlines():
        words = line.split("#", 1)[0].split()
        if words[1:] and words[1:] != ["-p1"]:
            raise HostError(f"{folder}: {line!r} has options", code="quilt")
        if words:
            yield Quilt(words[0], (patches / words[0]).read_bytes())


def run(*words: str | Path, cwd: Path | None = None, stdin: bytes = b"", **env: str) -> bytes:
    """What a command prints.

    Raises:
        HostError: it is missing, or it failed.
    """
    command = [str(word) for word in words]
    if shutil.which(command[0]) is None:
        raise HostError(
            f"{command[0]} is not on PATH",
            hint="apt-get install dpkg-dev patch xz-utils",
            code="missing",
        )
    done = subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", **env},
    )
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise HostError(f"{' '.join(command)} failed: {said}", code="command")
    return done.stdout
