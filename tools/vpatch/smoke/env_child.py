"""Says what an interpreter has: run under it as ``python -c SOURCE OUT DEVICE``.

Standard library, then torch and vLLM; older Pythons than the tool's have to read it. Writes one
JSON object into the file OUT: other libraries talk on stdout.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

_LONGEST = 2000
_LONGEST_FILE = 4 << 20


def torch_facts(device: str) -> dict[str, Any]:
    """torch's version; for cuda what its first GPU is, or why it sees none."""
    torch = importlib.import_module("torch")
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if device == "cuda":
        try:
            torch.cuda.init()
            found["gpu"] = torch.cuda.get_device_name(0)
            found["capability"] = ".".join(map(str, torch.cuda.get_device_capability(0)))
        except Exception as error:  # whatever it is, it is the answer
            found["no_gpu"] = _text(error)
    return found


def vllm_facts() -> dict[str, Any]:
    """vLLM's distribution, without importing it."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return {}
    site = str(Path(next(iter(spec.submodule_search_locations))).parent)
    # Beside the package first: another release may be installed behind it. An editable install has
    # its description elsewhere.
    for path in ([site], sys.path):
        for one in importlib.metadata.distributions(path=path):
            name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
            plugin = name.startswith("vllm-") and not Path(str(one.locate_file("vllm"))).is_dir()
            if name.split("-")[0] == "vllm" and not plugin:
                torch = [line for line in one.requires or [] if re.match(r"torch(?![\w.-])", line)]
                found = {"vllm": one.version, "name": name, "needs_torch": torch}
                return {
                    **found,
                    "origin": _file(one, "vpatch.json"),
                    "direct_url": _file(one, "direct_url.json"),
                }
    return {"vllm": "", "name": "vllm", "needs_torch": []}


def facts(device: str) -> dict[str, Any]:
    """Everything; ``missing`` or ``failed`` says where it ended."""
    found: dict[str, Any] = {"python": platform.python_version()}
    found["flashinfer"] = importlib.util.find_spec("flashinfer") is not None
    try:
        found.update(vllm_facts())
        found["importing"] = "torch"
        found.update(torch_facts(device))
        found["importing"] = "vllm"
        # Not the bare package, which imports hardly anything by itself.
        vllm = importlib.import_module("vllm")
        found["vllm"] = found.get("vllm") or vllm.__version__
        vllm.LLM  # noqa: B018
        del found["importing"]
    except ModuleNotFoundError as error:
        found["missing"] = error.name or _text(error)
    except Exception as error:  # whatever it is, it is the answer
        found["failed"] = _text(error)
    return found


def _file(one: importlib.metadata.Distribution, name: str) -> str:
    text = one.read_text(name) or ""
    return text if len(text) <= _LONGEST_FILE else ""


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_LONGEST]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(facts(sys.argv[2])), encoding="utf-8")
