"""What an error has to show besides its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vpatch.errors import VpatchError
from vpatch.findings import Finding, FindingsError
from vpatch.patches.apply import PatchConflictError
from vpatch.patches.place import Misfit

_SHOWN = 20


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
    """Lines below an error's sentence, which has the first finding; or what stands in the way."""
    if isinstance(error, PatchConflictError):
        return [line for misfit in error.conflict.misfits for line in _misfit_lines(misfit)]
    if isinstance(error, FindingsError):
        return _others(error.findings[1:])
    return []


def _others(findings: Sequence[Finding]) -> list[str]:
    told = [line for finding in findings[:_SHOWN] for line in told_finding(finding)]
    more = len(findings) - _SHOWN
    return [*told, f"... and {more} more: --json names them all"] if more > 0 else told


def told_finding(finding: Finding) -> tuple[str, ...]:
    """A finding as people read it: what and where, then how to mend it."""
    return (str(finding), f"  -> {finding.mend}") if finding.mend else (str(finding),)


def _misfit_lines(misfit: Misfit) -> list[str]:
    head = f"{misfit.path}, hunk {misfit.hunk}" if misfit.hunk else misfit.path
    wanted = [f"  wanted    {line}" for line in misfit.wanted]
    standing = [
        f"  {misfit.line + n:>7} | {line}" for n, line in enumerate(misfit.standing) if misfit.line
    ]
    return [f"{head} {misfit.header}".rstrip(), *wanted, f"  at {misfit.place} stands:", *standing]
