"""Asks pip which wheels a set of requirements needs on another machine. Nothing is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from vpatch.errors import HostError
from vpatch.scratch import scratch_folder
from vpatch.smoke.bundle_target import Target
from vpatch.upstream.urls import last_part, redact

_TIMEOUT = 1800.0


@dataclass(frozen=True)
class Wheel:
    """A wheel that pip chose.

    Attributes:
        name: Canonical name.
        sha256: What the index lists; or of the bytes that pip fetched, where it lists none.
        requires: What it requires, for every environment and extra.
    """

    name: NormalizedName
    version: Version
    url: str
    sha256: str
    requires: tuple[Requirement, ...]

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return last_part(self.url)

    def needs(self, target: Target, extras: Iterable[str] = ()) -> Iterator[Requirement]:
        """What it requires on the target with these extras."""
        return needed(self.requires, target, extras)


def needed(
    requirements: Iterable[Requirement], target: Target, extras: Iterable[str] = ()
) -> Iterator[Requirement]:
    """Those requirements whose marker holds on the target, for one of the extras or none."""
    environments = [{**target.environment, "extra": extra} for extra in {"", *extras}]
    for requirement in requirements:
        marker = requirement.marker
        if marker is None or any(marker.evaluate(environment) for environment in environments):
            yield requirement


def resolve(
    requirements: Iterable[Requirement], target: Target, *, with_needs: bool = True
) -> Mapping[NormalizedName, Wheel]:
    """One consistent set of wheels, chosen by pip from the index that it is configured for.

    Args:
        requirements: The roots; their markers are ignored.
        target: For which Python and platform. pip evaluates markers of what these need for the
            Python that it runs in: the caller looks for what is missing, or too much.
        with_needs: Choose the roots only.

    Raises:
        HostError: pip finds no such set, or no index.
    """
    roots = [_bare(one) for one in requirements]
    if not roots:
        return {}
    with scratch_folder("pip") as folder:
        report = Path(folder, "report.json")
        command = [
            *(sys.executable, "-m", "pip", "--no-color", "--no-input", "install"),
            *("--dry-run", "--ignore-installed", "--only-binary=:all:", "--quiet"),
            *("--python-version", target.short_python, "--implementation", "cp"),
            *(f"--platform={platform}" for platform in target.platforms),
            *(() if with_needs else ("--no-deps",)),
            *("--target", str(Path(folder, "nothing")), "--report", str(report)),
            # Not in a file: pip's refusals would name its lines.
            *("--", *roots),
        ]
        _run(command)
        return dict(_wheels(json.loads(report.read_text(encoding="utf-8"))))


def _bare(requirement: Requirement) -> str:
    if requirement.url is not None:
        raise HostError(
            f"the wheel requires {requirement.name} from an address of its own",
            hint="Only requirements that a package index serves can be gathered.",
            code="resolve",
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _run(command: list[str]) -> None:
    try:
        # Not in the user's folder: a file pip.py there would be run in pip's place.
        result = subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd=sys.prefix,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(f"no answer within {_TIMEOUT:.0f} seconds") from error
    if result.returncode:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        said = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise _failed(redact(next(iter(said or lines[-1:]), "no reason")))


def _failed(cause: str) -> HostError:
    return HostError(
        f"pip cannot choose the wheels for the bundle: {cause}",
        hint="See what pip reads: python -m pip config debug",
        code="resolve",
    )


def _wheels(report: Any) -> Iterator[tuple[NormalizedName, Wheel]]:
    for row in report["install"]:
        metadata, source = row["metadata"], row["download_info"]
        name = canonicalize_name(metadata["name"])
        try:
            requires = tuple(Requirement(text) for text in metadata.get("requires_dist", ()))
        except InvalidRequirement as error:
            raise _failed(f"{name} {metadata['version']} requires nonsense: {error}") from error
        hashes = source.get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise HostError(
                f"{redact(source['url'])} is listed without a sha256, so it cannot be verified",
                hint="Use an index that lists sha256.",
                code="no-hash",
            )
        version = Version(metadata["version"])
        yield name, Wheel(name, version, source["url"], hashes["sha256"], requires)
