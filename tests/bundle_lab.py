"""A package index in a folder, with small real wheels that look like vLLM's dependencies; bundles
made from it; a GPU host's Python."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from vpatch.progress import SilentProgress
from vpatch.smoke.bundle import Bundle, make_bundle
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.bundle_tool import Tool
from vpatch.upstream.index import Index

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.12" if HERE != "3.12" else "3.13"
LIBRARY = hashlib.shake_256(b"device code").digest(50_000)


def lab_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    tag: str = "py3-none-any",
    record: Mapping[str, bytes] | None = None,
) -> Path:
    """Writes a wheel with a true RECORD.

    Args:
        files: Members; a module of the package's name when None.
        record: Other contents that RECORD shall be written for: a lie.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    module = name.replace("-", "_")
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    extras = sorted({one.split("'")[-2] for one in requires if "extra ==" in one})
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {one}" for one in requires]
    members = {
        **(files if files is not None else {f"{module}.py": f"version = {version!r}\n".encode()}),
        f"{info}/METADATA": "\n".join([*lines, "", ""]).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows = [
        f"{path},{_digest((record or {}).get(path, data))},{len(data)}"
        for path, data in members.items()
    ]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)
    return path


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def publish(index: Path, *wheels: Path) -> str:
    """Adds wheels to a folder index; returns its URL."""
    for wheel in wheels:
        project = index / canonicalize_name(wheel.name.split("-")[0])
        project.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        with (project / "index.html").open("a") as page:
            page.write(f'<a href="{wheel.as_uri()}#sha256={digest}">{wheel.name}</a><br/>\n')
    return index.as_uri()


def cuda(name: str, version: str, soname: str, folder: Path) -> Path:
    """A CUDA library's wheel."""
    library = name.removeprefix("nvidia-").removesuffix("-cu12").replace("-", "_")
    files = {
        "nvidia/__init__.py": b"",
        f"nvidia/{library}/lib/{soname}": hashlib.shake_256(soname.encode()).digest(3000),
        f"nvidia/{library}/include/{library}.h": b"#pragma once\n",
    }
    return lab_wheel(folder, name, version, files=files, tag="py3-none-manylinux_2_17_x86_64")


VLLM_REQUIRES = (
    "torch==2.10.0",
    "numpy<2.4",
    "steady>=1",
    "Changing>=2",
    "flashinfer-python==1.0",
    f'marked>=1; python_version == "{OTHER}"',
    f'elsewhere>=1; python_version == "{HERE}" and platform_machine == "sparc"',
    "extra-thing; extra == 'more'",
)
VLLM_FILES: Mapping[str, bytes] = {
    "vllm/__init__.py": b"from vllm.model import NAME\n",
    "vllm/model.py": b"NAME = 'stock'\n",
    "vllm/_C.abi3.so": LIBRARY,
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": LIBRARY[:1000],
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": LIBRARY[1000:3000],
    "vllm/third_party/deep_gemm/include/cutlass/cutlass.h": b"#pragma once\n",
    "vllm/third_party/deep_gemm/_C.cpython-39-x86_64-linux-gnu.so": LIBRARY[:700],
    "vllm-9.9.9.data/scripts/vllm-tool": b"#!/bin/sh\n",
}


def vllm_wheel(folder: Path, *, files: Mapping[str, bytes] | None = None, local: str = "") -> Path:
    """A wheel that looks like upstream's, or like one that was patched."""
    version = f"9.9.9{local}"
    members = {
        path.replace("vllm-9.9.9.data", f"vllm-{version}.data"): data
        for path, data in {**VLLM_FILES, **(files or {})}.items()
    }
    tag = "cp38-abi3-manylinux_2_31_x86_64"
    return lab_wheel(folder, "vllm", version, requires=VLLM_REQUIRES, files=members, tag=tag)


def universe(root: Path) -> str:
    """An index with everything that the vLLM wheel needs but what a bundle leaves out."""
    store = root / "wheels"
    libraries = [
        cuda("nvidia-cublas-cu12", "12.8.4.1", "libcublas.so.12", store),
        cuda("nvidia-cudnn-cu12", "9.10.2.21", "libcudnn.so.9", store),
        cuda("nvidia-nccl-cu12", "2.27.5", "libnccl.so.2", store),
    ]
    names = ("cublas-cu12==12.8.4.1", "cudnn-cu12==9.10.2.21", "nccl-cu12==2.27.5")
    torch = lab_wheel(
        store,
        "torch",
        "2.10.0",
        requires=[f"cuda-toolkit[{name[:4]}]==12" for name in names[:1]]
        + [f"nvidia-{name}" for name in names[1:]]
        + ["triton==3.6.0", "nvidia-cusolver-cu12==1"],
        files={
            "torch/__init__.py": b"",
            "torch/lib/libtorch_cuda.so": LIBRARY,
            "torch/lib/libtorch_cuda_linalg.so": LIBRARY[:900],
        },
    )
    plain = [
        lab_wheel(store, "cuda-toolkit", "12", requires=[f"nvidia-{names[0]}; extra == 'cubl'"]),
        lab_wheel(store, "nvidia-cusolver-cu12", "1"),
        lab_wheel(store, "triton", "3.6.0"),
        lab_wheel(store, "numpy", "2.3.5", files={"numpy.py": b"pi = 3\n" * 9000}),
        lab_wheel(store, "steady", "1.5", requires=["leaf<2"]),
        lab_wheel(store, "steady", "1.2", requires=["leaf<2"]),
        lab_wheel(store, "steady", "1.1", requires=["leaf<1"]),
        lab_wheel(store, "steady", "0.9", requires=["leaf<2"]),
        lab_wheel(store, "leaf", "1.0"),
        lab_wheel(store, "leaf", "0.9"),
        lab_wheel(store, "changing", "2.0", requires=[f'deep; python_version == "{OTHER}"']),
        lab_wheel(store, "deep", "1.0"),
        lab_wheel(store, "marked", "1.0"),
    ]
    return publish(root / "simple", torch, *libraries, *plain)


# The running vpatch and what it needs


def tool_wheels(folder: Path) -> Iterator[Path]:
    """Wheels of what this Python has of all that vpatch requires; pip's is empty, being large."""
    names, done = ["vpatch"], set()
    while names:
        name = canonicalize_name(names.pop())
        if name in done:
            continue
        done.add(name)
        found = metadata.distribution(name)
        texts = [text for text in found.requires or () if _holds_here(text)]
        names += [Requirement(text).name for text in texts]
        if name != "vpatch":
            files = {} if name == "pip" else _installed(found)
            tag = str((found.read_text("WHEEL") or "").partition("Tag: ")[2].split("\n")[0])
            yield lab_wheel(folder, name, found.version, requires=texts, files=files, tag=tag)


def _holds_here(requirement: str) -> bool:
    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate({"extra": ""})


def _installed(found: metadata.Distribution) -> dict[str, bytes]:
    return {
        str(path): Path(str(path.locate())).read_bytes()
        for path in found.files or ()
        if path.suffix != ".pyc" and ".." not in path.parts and ".dist-info" not in path.parts[0]
    }


def small_tool(folder: Path, *requires: str, files: Mapping[str, str] | None = None) -> Tool:
    """A vpatch of two modules."""
    for name, text in {"__main__.py": "print('here')\n", **(files or {})}.items():
        path = folder / "vpatch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tool("7.7", tuple(map(Requirement, requires)), folder / "vpatch")


# Bundles and the host that unpacks them


def versions(**found: str) -> dict[str, Version]:
    """What a host has."""
    return {name.replace("_", "-"): Version(text) for name, text in found.items()}


def use_only(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip sees this index and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index)


def bundle(
    wheel: Path, folder: Path, cache: Path, have: Mapping[str, Version], tool: Tool | None
) -> Bundle:
    """A bundle for a host with this machine's Python."""
    return make_bundle(
        wheel,
        have,
        folder,
        target=Target(HERE),
        index=Index.from_pip_config(),
        cache=cache,
        progress=SilentProgress(),
        tool=tool,
    )


def names(found: Bundle, group: str) -> list[str]:
    """The files of a group."""
    return [file["name"] for file in found.manifest["files"] if file["group"] == group]


def run(script: Path, *arguments: Path | str) -> subprocess.CompletedProcess[str]:
    """The bundle's script as a host runs it: no vpatch, no packages."""
    command = [sys.executable, "-I", str(script), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def exported(output: str) -> dict[str, str]:
    """The variables that the script says are to be set."""
    lines = [line.removeprefix("export ").partition("=") for line in output.splitlines()]
    return {name: value.strip("'") for name, _, value in lines}
