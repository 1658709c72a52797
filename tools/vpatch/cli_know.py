"""The verbs that tell before anything is loaded, as commands: preflight."""

from __future__ import annotations

from pathlib import Path

import click

from vpatch.cli_run import Run, json_option, repo_of, repo_option


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
    help="Ids and numbering of aux layers, as `vllm serve` gets them.",
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
    run.finish(verb.run(wish, repo_of(repo) if needs_pin else None))
