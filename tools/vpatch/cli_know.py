"""The verbs that tell before anything is loaded, as commands: check, preflight, status, explain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vpatch.cli_run import (
    Run,
    json_option,
    repo_of,
    repo_option,
    repo_or_none,
    series_option,
    source_options,
    upstream_of,
)
from vpatch.upstream.mirror import ArchiveKind

if TYPE_CHECKING:
    from vpatch.verbs.check import RunnerChoice


@click.command(short_help="Will this drafter work?")
@click.option("--target", required=True, metavar="DIR|ID", help="The target's checkpoint.")
@click.option("--drafter", required=True, metavar="DIR|ID", help="The drafter's.")
@click.option("--tag", help="On this release, with its series.")
@click.option(
    "--installed",
    is_flag=False,
    flag_value="python3",
    metavar="[PYTHON]",
    help="On the vLLM that this Python has. It is not imported. [default: python3]",
)
@click.option("--unpatched", is_flag=True, help="On the release as it is.")
@click.option(
    "--runner",
    type=click.Choice(["v1", "v2"]),
    help="With this model runner of vLLM. [default: the release's own for Kimi on a GPU]",
)
@click.option("--tp", type=click.IntRange(1, 1024), default=1, help="Tensor parallel ranks.")
@click.option("--pp", type=click.IntRange(1, 1024), default=1, help="Pipeline stages.")
@click.option("--dcp", type=click.IntRange(1, 1024), default=1, help="Decode context ranks.")
@click.option(
    "--speculative-config",
    metavar="JSON",
    help="Ids and numbering of aux layers, as `vllm serve` gets them; a method of null: none is "
    "given.",
)
@repo_option
@json_option
@click.pass_obj
def preflight(
    run: Run,
    target: str,
    drafter: str,
    tag: str | None,
    installed: str | None,
    unpatched: bool,
    runner: str | None,
    tp: int,
    pp: int,
    dcp: int,
    speculative_config: str | None,
    repo: Path | None,
) -> None:
    """Say what will happen when a release loads this drafter beside this target.

    Reads config.json of both and the headers of the drafter's safetensors files, never a weight:
    in a folder, or in a repository of a hub (which takes the extra vpatch[hub]). Exit 1 unless it
    works as given.
    """
    from vpatch.preflight.case import Parallel
    from vpatch.verbs import preflight as verb

    if (tag is None) == (installed is None):
        raise click.UsageError(
            "name a release with --tag, or a Python with --installed; one of them"
        )
    wish = verb.Wish(
        target=target,
        drafter=drafter,
        tag=tag,
        installed=None if installed is None else Path(installed),
        unpatched=unpatched,
        runner="v2" if runner == "v2" else "v1" if runner == "v1" else None,
        parallel=Parallel(tp, pp, dcp),
        speculative=speculative_config,
    )
    needs_pin = tag is not None and not unpatched
    run.finish(verb.run(wish, repo_of(repo) if needs_pin else repo_or_none(repo)))


@click.command(short_help="What a vLLM will do, from its source.")
@click.argument("tags", metavar="[TAG...]", nargs=-1)
@click.option("--unpatched", is_flag=True, help="The release as it is, without the series.")
@click.option(
    "--installed",
    is_flag=False,
    flag_value="python3",
    metavar="[PYTHON]",
    help="The vLLM that this interpreter would import; it is not run. [default: python3]",
)
@click.option(
    "--tree",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="The vLLM in this folder: a checkout, a worktree of vpatch edit.",
)
@series_option
@click.option(
    "--runner",
    type=click.Choice(["v1", "v2", "all", "default"]),
    default="default",
    help="vLLM's model runner, as VLLM_USE_V2_MODEL_RUNNER chooses it; all: each that it has. "
    "[default: the one that it takes for Kimi on a GPU]",
)
@source_options
@repo_option
@json_option
@click.pass_obj
def check(
    run: Run,
    tags: Sequence[str],
    unpatched: bool,
    installed: str | None,
    tree: Path | None,
    series: Path | None,
    runner: RunnerChoice,
    upstream_git: str | None,
    source: ArchiveKind | None,
    repo: Path | None,
) -> None:
    """Check a vLLM for all that Kimi-K2.5 with an EAGLE-3 drafter needs, without loading anything.

    Its code is read, not run: configs are checked, target and drafter built, layers set, a step
    computed, all with names in place of numbers. Each gate that fails is told with the error that
    a user would get, when, the line, and what mends it. Without a TAG all pinned releases are
    checked. Exit 1 if a gate fails; what a release has nothing of, and no topic of its series
    claims to give, is told, and is no failure.
    """
    from vpatch.verbs import check as verb

    if sum((bool(tags), installed is not None, tree is not None, series is not None)) > 1:
        raise click.UsageError("TAG, --installed, --tree and --series exclude each other")
    if series is not None and (repo is not None or unpatched):
        raise click.UsageError("--series is a series of its own: neither --repo nor --unpatched")
    if tree is not None:
        run.finish(verb.run_folder(tree, runner))
    elif installed is not None:
        run.finish(verb.run_installed(installed, runner))
    else:
        upstream = upstream_of(run, upstream_git, source)
        if series is not None:
            run.finish(verb.run_series(series.absolute(), upstream, runner))
        else:
            run.finish(verb.run(tags, repo_of(repo), upstream, bare=unpatched, runner=runner))


@click.command(short_help="Releases x topics: what is proven.")
@click.argument("tags", metavar="[TAG...]", nargs=-1)
@click.option("--markdown", is_flag=True, help="Print Markdown, with what each cell rests on.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write one self-contained page to FILE.",
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Stored reports of vpatch smoke --report. [default: the repository's docs/reports]",
)
@click.option("--offline", is_flag=True, help="Ask no index and fetch nothing: what the cache has.")
@repo_option
@json_option
@click.pass_obj
def status(
    run: Run,
    tags: Sequence[str],
    markdown: bool,
    html: Path | None,
    reports: Path | None,
    offline: bool,
    repo: Path | None,
) -> None:
    """Show what each release of vLLM needs, has itself, gets from its series, and what is proven.

    Gates are asked of each release as it is and with its series; stored reports of vpatch smoke
    say what the engine did with which revision. With a TAG: what each cell rests on. Exit 1 where
    a release with a pin is broken.
    """
    from vpatch.status.collect import Wish
    from vpatch.verbs import status as verb

    if markdown and run.as_json:
        raise click.UsageError("--markdown or --json: not both")
    wish = Wish(tuple(tags), reports, offline)
    output = verb.Output("markdown" if markdown else "text", html)
    run.finish(verb.run(wish, output, repo_of(repo), upstream_of(run)))


@click.command(short_help="What an error means, and what mends it.")
@click.argument("error_text", metavar="ERROR_TEXT|-", nargs=-1, required=True)
@repo_option
@json_option
@click.pass_obj
def explain(run: Run, error_text: Sequence[str], repo: Path | None) -> None:
    """Explain an error of vLLM with Kimi-K2.5 and EAGLE-3: which gate, cause, releases, fix.

    ERROR_TEXT is the last line of a traceback or all of it; with - it is read from stdin. It is
    compared with the texts of gates, of preflight, of the series' own refusals, and with what
    unpatched releases are known to say: fixed parts exactly, whatever is filled in between. Exit 1
    where nothing has this text.
    """
    from vpatch.verbs import explain as verb

    run.finish(verb.run(" ".join(error_text), repo_or_none(repo)))
