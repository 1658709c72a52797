"""Lays the engine side's modules out for the engine environment's Python.

That Python has vLLM and no vpatch, and vpatch is imported by nothing there: what it gets on its
PYTHONPATH is a folder with the engine packages alone, under the names that its modules import one
another by.
"""

from __future__ import annotations

from pathlib import Path

from vpatch.files import write_atomically

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("vpatch", "vpatch/smoke", "vpatch/collect")


def engine_library(folder: Path) -> Path:
    """Writes the engine package below a folder.

    The same files each time; a module that is there already is replaced.

    Args:
        folder: A scratch folder of the caller's; made where it is missing.

    Returns:
        ``folder/lib``, for PYTHONPATH: ``vpatch/smoke/engine/*.py`` and those of collect/engine,
        below empty ``__init__.py``.

    Raises:
        HostError: A file cannot be written.
    """
    library = folder / "lib"
    for package in _PACKAGES:
        write_atomically(library / package / "__init__.py", b"")
    for package in _PACKAGES[1:]:
        for module in sorted((_ROOT.parent / package / "engine").glob("*.py")):
            write_atomically(library / package / "engine" / module.name, module.read_bytes())
    return library
