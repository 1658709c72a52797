"""The vLLM that a Python of this machine has, as its user names it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vpatch.smoke.environment import Device, Environment, installed_environment


def named_environment(python: Path, device: Device) -> Environment:
    """An environment that is already there; PYTHONPATH counts, and vLLM is imported once.

    Args:
        python: ``python3`` as a shell finds it; anything with a slash as it is.
        device: What it shall run on.

    Raises:
        UsageError, HostError: As for `environment.installed_environment`.
    """
    path = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    found = None if len(python.parts) > 1 else shutil.which(str(python))
    return installed_environment(Path(found or python), device, path=path)
