"""What an error has to show besides its sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vpatch.errors import VpatchError
from vpatch.findings import FindingsError
from vpatch.patches.apply import PatchConflictError
from vpatch.patches.place import Misfit


def evidence(error: VpatchError) -> Mapping[str, Any]:
    """What an error's JSON object holds besides ``error``."""
    if isinstance(error, PatchConflictError):
        conflict = error.conflict
        return {
            "tag": conflict.tag,
            "base_tree": conflict.base_tree,
            "patches": [patch.as_dict() for patch in conflict.patches],
            "conflict": conflict.as_dict(),
        }
    if isinstance(error, FindingsError):
        return {"findings": [finding.as_dict() for finding in error.findings]}
    return {}


def explain(error: VpatchError) -> list[str]:
    """Lines below an error's sentence: all findings, or the lines that stand in the way."""
    if isinstance(error, PatchConflictError):
        return [line for misfit in error.conflict.misfits for line in _misfit_lines(misfit)]
    if isinstance(error, FindingsError) and len(error.findings) > 1:
        return [str(finding) for finding in error.findings]
    return []


def _misfit_lines(misfit: Misfit) -> list[str]:
    head = f"{misfit.path}, hunk {misfit.hunk}" if misfit.hunk else misfit.path
    wanted = [f"  wanted    {line}" for line in misfit.wanted]
    standing = [
        f"  {misfit.line + n:>7} | {line}" for n, line in enumerate(misfit.standing) if misfit.line
    ]
    return [f"{head} {misfit.header}".rstrip(), *wanted, f"  at {misfit.place} stands:", *standing]
