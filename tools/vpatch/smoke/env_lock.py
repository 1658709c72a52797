"""Which wheels an environment holds: chosen once by pip, then kept by their hashes.

pip needs many seconds and the network to choose. Its choice is kept in the cache as a lock, by the
wheel's requirements, the Python and the machine: a warm start asks nobody, and what passed
yesterday is what runs today. Delete the folder of locks to let pip choose anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from vpatch.errors import HostError
from vpatch.files import write_atomically
from vpatch.progress import Progress
from vpatch.smoke.bundle_needs import find_needs
from vpatch.smoke.bundle_pip import Wheel, needed, resolve
from vpatch.smoke.bundle_rules import META_PACKAGES, library
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.env_host import Device
from vpatch.upstream.index import Artifact
from vpatch.upstream.urls import last_part

_SCHEMA = "vpatch/environment-lock/1"
# CPU builds ask for builds of these that a public index does not carry; the builds that it does
# carry are for CUDA and break the import.
_NOT_ON_CPU = frozenset({"torchaudio", "torchvision", "torchcodec", "intel-openmp"})


@dataclass(frozen=True)
class Pinned:
    """A wheel of the lock."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def artifact(self) -> Artifact:
        """For `Index.download`."""
        version = Version(self.version)
        return Artifact(last_part(self.url), self.url, self.sha256, None, "wheel", version)

    @property
    def with_torch(self) -> bool:
        """Whether it comes and goes with torch: gigabytes that all releases of a torch share."""
        name = canonicalize_name(self.name)
        return name in {"torch", "triton", *META_PACKAGES} or self.cuda

    @property
    def cuda(self) -> bool:
        """Whether it is one of CUDA's libraries."""
        return library(canonicalize_name(self.name), Version(self.version)) is not None


@dataclass(frozen=True)
class Lock:
    """All wheels of an environment but vLLM's own, by name."""

    wheels: tuple[Pinned, ...]

    def version(self, name: str) -> str | None:
        """A package's version, or None where it is not in the lock."""
        return next((wheel.version for wheel in self.wheels if wheel.name == name), None)


def digest(wheels: Iterable[Pinned]) -> str:
    """Names a set of wheels: their names, versions and hashes."""
    lines = sorted(f"{wheel.name} {wheel.version} {wheel.sha256}" for wheel in wheels)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def lock_for(
    requires: Sequence[Requirement],
    device: Device,
    target: Target,
    *,
    folder: Path,
    progress: Progress,
) -> Lock:
    """The lock for these requirements: the one that is kept, or else pip's choice, then kept.

    Args:
        requires: A wheel's, for every environment.
        device: For the CPU, torch is the public release of the build that is asked for (or a
            ``+cpu`` build of it, where pip finds one), with the triton of that release.
        target: For which Python and machine.
        folder: Where locks are kept.
        progress: Told when pip is asked.

    Raises:
        HostError: pip finds no such set, or the disk refuses.
    """
    roots = list(needed(requires, target))
    if device == "cpu":
        roots = list(_for_cpu(roots))
    path = folder / f"{_key(roots, device, target)}.json"
    kept = _read(path)
    if kept is not None:
        return kept
    progress.say("asking pip which wheels fit")
    chosen = {wheel.name: wheel for wheel in find_needs(roots, {}, target).carried}
    if device == "cpu":
        chosen |= _triton(chosen, target)
    pinned = (Pinned(one.name, str(one.version), one.url, one.sha256) for one in chosen.values())
    lock = Lock(tuple(sorted(pinned, key=lambda wheel: wheel.name)))
    table = {"schema": _SCHEMA, "wheels": [asdict(wheel) for wheel in lock.wheels]}
    write_atomically(path, (json.dumps(table, indent=1) + "\n").encode())
    return lock


def _for_cpu(roots: Iterable[Requirement]) -> Iterator[Requirement]:
    for one in roots:
        name = canonicalize_name(one.name)
        if name == "torch":
            yield Requirement(f"torch{_public(one)}")
        elif name not in _NOT_ON_CPU:
            yield one


def _public(torch: Requirement) -> str:
    """The specifier without local labels: ``==2.10.0`` for ``==2.10.0+cpu``."""
    return ",".join(f"{one.operator}{one.version.partition('+')[0]}" for one in torch.specifier)


def _triton(
    chosen: Mapping[NormalizedName, Wheel], target: Target
) -> Mapping[NormalizedName, Wheel]:
    """The triton that torch's public release goes with, where a CPU build of torch asks for none:
    vLLM's kernels that verify drafts are written in it, and run in its interpreter. Others that ask
    for triton (xgrammar) take any, so pip took the newest."""
    torch = chosen.get(canonicalize_name("torch"))
    if torch is None or torch.version.local is None:
        return {}
    # Equality of the text: == would find the CPU build again.
    exact = Requirement(f"torch==={torch.version.public}")
    (public,) = resolve([exact], target, with_needs=False).values()
    wanted = [one for one in public.needs(target) if canonicalize_name(one.name) == "triton"]
    if not wanted:
        raise HostError(
            f"torch {public.version} does not say which triton it goes with",
            hint="Use an index that carries torch's public release.",
            code="resolve",
        )
    return resolve(wanted, target, with_needs=False)


def _key(roots: Iterable[Requirement], device: Device, target: Target) -> str:
    bare = sorted(f"{one.name}{sorted(one.extras)}{one.specifier}{one.url or ''}" for one in roots)
    parts = [_SCHEMA, device, target.short_python, str(target.glibc), target.machine, *bare]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _read(path: Path) -> Lock | None:
    if not path.is_file():
        return None
    try:
        table = json.loads(path.read_bytes())
        return Lock(tuple(Pinned(**row) for row in table["wheels"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(
            f"{path} is damaged: {error}",
            hint="Delete it, and run it again.",
            code="bad-cache",
        ) from error
