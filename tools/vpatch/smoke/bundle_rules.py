"""What a smoke bundle carries and what it does without: tables, each line with its reason.

The packages and vLLM's files were left out in runs of v0.17.1, v0.26.0 and v0.33.0 on a Hopper GPU
(driver for CUDA 13). For the files of torch, triton and xgrammar and for cuSOLVER only this is
proven: everything else that is carried loads, and vLLM imports. Names are canonical (PEP 503).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

_KERNELS = "kernels for models, GPUs or samplers that the smoke does not use"
_MEDIA = "audio and video; the smoke's prompts are text and images"
_LOADER = "a loader for large checkpoints; the smoke's are tiny"
_LINALG = "only torch.linalg on CUDA loads it; vLLM's engine never calls that"

# Left out of the bundle, whether the host has them or not.
LEFT_OUT: Mapping[str, str] = {
    "cuda-bindings": "torch uses it for optional features only",
    "cuda-pathfinder": "only cuda-bindings needs it",
    "cuda-python": "only cuda-bindings' users need it",
    "cupy-cuda12x": "only ray's compiled graphs use it",
    "cupy-cuda13x": "only ray's compiled graphs use it",
    "fastsafetensors": _LOADER,
    "flashinfer-cubin": _KERNELS,
    "flashinfer-jit-cache": _KERNELS,
    "flashinfer-python": _KERNELS,
    "humming-kernels": _KERNELS,
    "instanttensor": _LOADER,
    "kaldi-native-fbank": _MEDIA,
    "nvidia-cudnn-frontend": _KERNELS,
    "nvidia-cusolver": _LINALG,
    "nvidia-cusolver-cu12": _LINALG,
    "nvidia-cutlass-dsl": _KERNELS,
    "nvtx": "marks for a profiler",
    "pynvvideocodec": _MEDIA,
    "quack-kernels": _KERNELS,
    "ray": "one process on one host starts no cluster",
    "tilelang": _KERNELS,
    "tokenspeed-mla": _KERNELS,
    "torchcodec": _MEDIA,
    "xformers": _KERNELS,
}

# The host's is used from this version on, whatever upper bounds say; carried only where it is older
# or missing.
HOST_FIRST: Mapping[str, tuple[str, str]] = {
    "llvmlite": ("0", "only numba needs it, and fits it"),
    "numba": ("0", "the n-gram drafter is imported, not run"),
    "numpy": ("2", "the host's compiled packages fit it; mistral_common's bound is too tight"),
    "opencv-python-headless": ("0", "imported for video, not run"),
    "torchaudio": ("0", "imported for audio, not run"),
}

# Holds no files: only what it requires counts.
META_PACKAGES = frozenset({"cuda-toolkit"})

# Files of a wheel that the smoke does not need: distribution -> {regular expression: reason}; @ is
# the target's Python, as 312.
SLIM: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        r"vllm/vllm_flash_attn/_vllm_fa2_C\.abi3\.so": "Hopper uses FlashAttention 3",
        r"vllm/vllm-rs": "the Rust front end; the smoke uses Python's",
        r"vllm/_qutlass_C\.abi3\.so": "kernels for Blackwell",
        r"vllm/(.*/)?include/.*": "CUTLASS headers, for kernels compiled at run time",
        r"vllm/third_party/deep_gemm/_C\.cpython-(?!@-).*": "other Pythons",
    },
    "torch": {
        r"torch/lib/libtorch_cuda_linalg\.so": _LINALG,
        r"torch/bin/protoc.*": "a compiler that nothing calls",
    },
    "triton": {
        r"triton/_C/libproton\.so": "a profiler",
        r"triton/backends/nvidia/bin/ptxas-blackwell": "for Blackwell",
        r"triton/backends/nvidia/lib/cupti.*": "a profiler",
    },
    "xgrammar": {
        r"xgrammar/.*\.a": "a static library, for who links against it",
    },
    "nvidia-cuda-nvrtc-cu12": {
        r"nvidia/cuda_nvrtc/lib/.*\.alt\..*": "a second build of the same",
    },
}

# Carried in the group of their own that several releases share; nvidia-* are in it too.
TORCH_FAMILY = frozenset({"torch", "torchaudio", "torchvision", "triton"})

# A CUDA library with the same leading version number has the same soname, and serves. These grow
# functions in minor versions, so an older one does not.
_GROWS = frozenset({"nccl"})
_LIBRARY = re.compile(r"nvidia-(?P<library>[a-z-]+?)(?:-cu\d+)?")
# Packages of the same vendor that hold no such library.
_NOT_LIBRARIES = frozenset({"ml-py", "cutlass-dsl", "cudnn-frontend", "nvcomp"})


@dataclass(frozen=True)
class Library:
    """A CUDA library that comes as a package: ``cudnn`` of ``nvidia-cudnn-cu12``."""

    name: str
    version: Version

    def serves(self, wanted: Library) -> bool:
        """Whether this one can be loaded where the other is wanted."""
        if self.name != wanted.name or self.version.major != wanted.version.major:
            return False
        return self.name not in _GROWS or self.version >= wanted.version


def library(name: str, version: Version) -> Library | None:
    """The CUDA library in a package, or None for any other package.

    Args:
        name: Canonical name.
        version: The package's version.
    """
    match = _LIBRARY.fullmatch(name)
    if match is None or match["library"] in _NOT_LIBRARIES:
        return None
    return Library(match["library"], version)


def slimmed(distribution: str, member: str, python: str) -> str | None:
    """Why a file of a wheel is left out, or None if it is carried.

    Args:
        distribution: Canonical name.
        member: The file's path in the wheel.
        python: The target's Python, as ``3.12``.
    """
    for pattern, reason in SLIM.get(distribution, {}).items():
        if re.fullmatch(pattern.replace("@", python.replace(".", "")), member):
            return reason
    return None
