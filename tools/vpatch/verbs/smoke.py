"""``vpatch smoke``: vLLM's own engine drafts and verifies on a tiny Kimi-K2.5."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import Version

from vpatch.errors import HostError, UsageError
from vpatch.pipeline import Upstream
from vpatch.report import Report
from vpatch.scratch import scratch_folder
from vpatch.smoke import environment as environments
from vpatch.smoke.cases import Tier
from vpatch.smoke.environment import Device, Environment
from vpatch.smoke.judge import Result
from vpatch.smoke.known import Expected, check_known, expect
from vpatch.smoke.named import named_environment
from vpatch.smoke.plan import Plan
from vpatch.smoke.plan import Wish as PlanWish
from vpatch.smoke.plan_own import Own, check_folder, length_of, own_plan, read_options
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import ReleaseFacts, Runner, facts_of
from vpatch.smoke.session import run_plan
from vpatch.smoke.stored import check_place, store
from vpatch.smoke.wheels import Subject, find_subject, installed_subject, names_file
from vpatch.tags import version_of
from vpatch.verbs.smoke_report import Ran, report

RunnerChoice = Literal["v1", "v2", "all"]


@dataclass(frozen=True)
class Wish:
    """What is to be tried.

    Attributes:
        name: A tag or a wheel; None with `installed`.
        installed: A Python that has vLLM.
        device: Where; None: a GPU where there is one.
        runner: Which model runner of vLLM; None: every one that the device has.
        checks: Names of checks, or their first parts; all where empty.
        unpatched: The release as it is.
        expect_unpatched: Its known errors are the expected result.
        allow_not_run: Checks that may not run.
        python: The interpreter of the isolated environment.
        keep: Where jobs, logs and checkpoints are kept.
        report: The file that also gets the report, stripped.
        own: A user's own checkpoints, in the place of the tiny ones.
    """

    name: str | None
    installed: Path | None
    device: Device | None
    tier: Tier
    runner: RunnerChoice | None
    checks: tuple[str, ...]
    unpatched: bool
    expect_unpatched: bool
    allow_not_run: tuple[str, ...]
    python: Path | None
    keep: Path | None
    own: Own | None = None
    report: Path | None = None


def own_checkpoints(
    target: Path | None, drafter: Path | None, options: Sequence[str]
) -> Own | None:
    """A user's own checkpoints, where both are given.

    Raises:
        UsageError: One is no checkpoint, or an option is not NAME=VALUE.
    """
    if target is None or drafter is None:
        return None
    folders = (check_folder("target", target), check_folder("drafter", drafter))
    return Own(*folders, read_options(options), length_of(folders[0]))


def run(wish: Wish, repo: Path | None, upstream: Upstream) -> Report:
    """Runs the smoke."""
    began = time.monotonic()
    device: Device = wish.device or ("cuda" if shutil.which("nvidia-smi") else "cpu")
    _check(wish, device)
    host = environments.check_host(device)
    with _scratch(wish.keep) as scratch:
        subject, environment = _environment(wish, device, repo, upstream, scratch)
        plan = _plan(wish, subject.version, device)
        upstream.progress.say(
            f"vLLM {environment.vllm}, torch {environment.torch}, {device}: "
            f"{len(plan.starts)} engine starts, {len(plan.checks)} checks"
        )
        kept = upstream.cache / "smoke"
        say = upstream.progress.say
        results = run_plan(plan, environment, scratch, kept, say, at_once=host.engines)
    held = _held(wish, results, subject, device)
    seconds = time.monotonic() - began
    ran = Ran(
        tier=wish.tier,
        only=wish.checks,
        expect_unpatched=wish.expect_unpatched,
        subject=subject,
        environment=environment,
        gpu=host.gpu,
        driver=host.driver,
        seconds=seconds,
        notes=plan.notes,
    )
    ended = report(ran, held)
    if wish.report is not None:
        store(wish.report, json.loads(ended.to_json()))
    return ended


def _check(wish: Wish, device: Device) -> None:
    """What is wrong with the wish by itself, before anything is looked for or built."""
    if wish.report is not None:
        check_place(wish.report)
    if wish.name is None and wish.installed is None:
        raise UsageError(
            "nothing to try: name a TAG or a WHEEL, or a Python that has vLLM with --installed",
            hint="vpatch smoke --help",
        )
    if wish.expect_unpatched and wish.own is not None:
        raise UsageError(
            "known errors are those of the tiny checkpoints: --expect-unpatched or --target",
            hint="Take --unpatched with your own checkpoints.",
        )
    if wish.expect_unpatched and wish.allow_not_run:
        raise UsageError(
            "--expect-unpatched says itself what may not run: leave --allow-not-run out",
            hint="Or take --unpatched, and judge the table yourself.",
        )
    if wish.expect_unpatched and wish.tier != "core":
        raise UsageError(
            f"known errors are those of the core tier: --expect-unpatched or --tier {wish.tier}",
            hint="Take --unpatched, and judge the table yourself.",
        )
    if wish.name is not None and not names_file(wish.name):
        _plan(wish, version_of(wish.name), device)


def _plan(wish: Wish, version: Version, device: Device) -> Plan:
    """The plan; what is wrong with the wish for this release is told here."""
    facts = facts_of(version)
    runners = _runners(wish, facts, device)
    asked = PlanWish(device, wish.tier, runners, wish.checks)
    plan = make_plan(asked, facts) if wish.own is None else own_plan(asked, wish.own, facts)
    if wish.expect_unpatched:
        check_known([check.name for check in plan.checks], version, device)
    unknown = set(wish.allow_not_run) - {check.name for check in plan.checks}
    if unknown:
        raise UsageError(
            f"--allow-not-run names no check of this run: {', '.join(sorted(unknown))}",
            hint="Names are those of the table.",
        )
    return plan


@contextmanager
def _scratch(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with scratch_folder("smoke") as name:
            yield name
        return
    if keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep} is not empty", hint="Name a new folder.", code="not-empty")
    if os.pathsep in str(keep.absolute()):
        raise UsageError(
            f"{keep} has a {os.pathsep!r} in it, which parts folders in PYTHONPATH",
            hint="Name a folder without one.",
            code="bad-path",
        )
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


def _environment(
    wish: Wish, device: Device, repo: Path | None, upstream: Upstream, scratch: Path
) -> tuple[Subject, Environment]:
    if wish.installed is not None:
        environment = named_environment(wish.installed, device)
        subject = installed_subject(environment.vllm)
        if wish.unpatched and subject.patched:
            raise UsageError(
                f"the installed vLLM {environment.vllm} is patched",
                hint="Leave --unpatched and --expect-unpatched out.",
            )
        return subject, environment
    name = wish.name or ""
    wheel, subject = find_subject(
        name, device, repo, upstream, scratch / "wheel", unpatched=wish.unpatched
    )
    _plan(wish, subject.version, device)  # what cannot be run gets no environment
    environment = environments.make_environment(
        wheel,
        device,
        python=wish.python,
        cache=upstream.cache,
        progress=upstream.progress,
    )
    return subject, environment


def _runners(wish: Wish, facts: ReleaseFacts, device: Device) -> tuple[Runner, ...]:
    has = facts.runners(device)
    if not has:
        raise HostError(
            f"v{facts.version} cannot be tried on a {device}: {facts.not_on(device)}",
            hint="Try another release, or --device cuda.",
            code="no-runner",
        )
    if wish.runner is None or wish.runner == "all":
        return has
    if wish.runner not in has:
        raise HostError(
            f"v{facts.version} has no model runner {wish.runner} for EAGLE-3 on a {device}, "
            f"only {', '.join(has)}",
            hint="Choose another --runner or --device.",
            code="no-runner",
        )
    return (wish.runner,)


def _held(
    wish: Wish, results: Sequence[Result], subject: Subject, device: Device
) -> list[Expected]:
    if wish.expect_unpatched:
        return expect(results, subject.version, device)
    allowed = set(wish.allow_not_run)
    return [
        Expected(one, one.verdict == "pass" or (one.verdict == "not-run" and one.check in allowed))
        for one in results
    ]
