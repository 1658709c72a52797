"""Runs plans of `vpatch smoke` on releases that tests have changed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from engine.environment import Say, Site
from vpatch.smoke.judge import Result
from vpatch.smoke.plan import Plan, Wish
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import ReleaseFacts, facts_of
from vpatch.smoke.session import run_plan

Results = Mapping[str, Result]


def facts(site: Site) -> ReleaseFacts:
    """What the smoke knows about a site's release."""
    return facts_of(Version(site.environment.vllm))


def core(site: Site, *checks: str) -> Plan:
    """These checks of the core tier."""
    return make_plan(Wish("cpu", "core", ("v1",), checks), facts(site))


def smoke(site: Site, plan: Plan, scratch: Path, cache: Path, say: Say) -> Results:
    """Runs a plan as `vpatch smoke` does.

    Args:
        site: What it runs on.
        plan: What is started and asked.
        scratch: An empty folder.
        cache: The test cache: what the smoke keeps there is used, and not written to but for
            compiled kernels, which go by their content.
        say: Told each start's end.

    Returns:
        Results by check.
    """
    found = cache / "smoke" / "vllm" / site.folder.name / "modelinfos"
    kernels = cache / "smoke" / "inductor"
    kernels.mkdir(parents=True, exist_ok=True)
    kept = scratch / "kept"
    kept.mkdir(parents=True)
    (kept / "inductor").symlink_to(kernels)
    if found.is_dir():
        # Also for starts that compile: their cache is the scratch folder's own.
        for root in (kept / "vllm" / site.folder.name, scratch / "compiled"):
            shutil.copytree(found, root / "modelinfos")
    results = run_plan(plan, site.environment, scratch, kept, say)
    return {result.check: result for result in results}


def told(results: Results) -> str:
    """A table of what came out, for a failed assertion."""
    rows = (f"{one.verdict:8} {one.check:45} {one.evidence}" for one in results.values())
    tails = {one.log: one.tail for one in results.values() if one.tail}
    return "\n".join(["", *rows, *tails.values()])
