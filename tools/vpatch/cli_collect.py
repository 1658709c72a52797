"""``vpatch collect`` as a command: its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vpatch.cli_run import Run, json_option, upstream_of

if TYPE_CHECKING:
    from vpatch.smoke.env_host import Device


@click.command(short_help="Collect hidden states of a target.")
@click.argument("model", required=False)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON lines: prompt (text or token ids), prompt_token_ids or messages; id, max_tokens.",
)
@click.option("--out", metavar="DIR", help="The set: a folder, or a URL that fsspec knows.")
@click.option(
    "--layers",
    metavar="IDS",
    help="vLLM's ids, ascending: 2,30,58. Id i is what layer i takes in.",
)
@click.option(
    "--normed-last",
    is_flag=True,
    help="Keep what the final norm makes of the last layer's output, too: last_hidden_states.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts."
)
@click.option(
    "--resume", is_flag=True, help="Go on with the set in --out; more --samples make it larger."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Tokens to generate for a prompt. With 1 its rows are those of the prompt.",
)
@click.option(
    "--sampling",
    metavar="NAME=VALUE",
    multiple=True,
    help="An argument of SamplingParams(...): temperature=0.6, seed=1. Can be given again. "
    "[default: temperature=0]",
)
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    help="An argument of LLM(...): tensor_parallel_size=8, trust_remote_code=true. Can be given "
    "again.",
)
@click.option(
    "--installed",
    type=click.Path(path_type=Path),
    metavar="PYTHON",
    default="python3",
    show_default=True,
    help="The Python that has the patched vLLM (PYTHONPATH counts).",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where it runs. [default: cuda where there is a GPU, else cpu]",
)
@click.option(
    "--shard-size",
    metavar="SIZE",
    help="Write shards of about this size, as 4GiB, instead of a file a sample.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    help="Most prompts in the engine at a time.",
)
@click.option(
    "--backlog",
    metavar="SIZE",
    default="8GiB",
    show_default=True,
    help="No new prompt while files of this size wait to be checked and taken in.",
)
@click.option(
    "--verify",
    metavar="DIR",
    help="Collect nothing: prove that the set in DIR is complete; of files that a server wrote, "
    "that each is whole.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Files that are verified beside each other. [default: a core each, at most 4]",
)
@json_option
@click.pass_obj
def collect(
    run: Run,
    model: str | None,
    prompts: Path | None,
    out: str | None,
    layers: str | None,
    normed_last: bool,
    samples: int | None,
    resume: bool,
    max_tokens: int,
    sampling: Sequence[str],
    options: Sequence[str],
    installed: Path,
    device: Device | None,
    shard_size: str | None,
    in_flight: int,
    backlog: str,
    verify: str | None,
    jobs: int | None,
) -> None:
    """Collect the hidden states of MODEL as training data: prompts through a patched vLLM.

    MODEL is a checkpoint's folder, or its name on a hub. The set in --out survives a kill at any
    moment, and is verified at the end (docs/collect.md).
    """
    progress = upstream_of(run).progress
    if verify is not None:
        from vpatch.verbs import collect_verify

        if model is not None or prompts is not None or out is not None:
            raise click.UsageError("--verify DIR reads a set: no MODEL, --prompts or --out")
        run.finish(collect_verify.run(verify, progress, jobs))
        return
    if model is None or prompts is None or out is None or layers is None:
        raise click.UsageError("MODEL, --prompts, --out and --layers are needed, or --verify DIR")
    from vpatch.collect import options as given
    from vpatch.talk import ConsoleTally
    from vpatch.verbs import collect as verb

    wish = verb.Wish(
        model=model,
        prompts=prompts,
        out=out,
        samples=samples,
        resume=resume,
        python=installed,
        device=device,
        layers=given.read_layers(layers),
        norm=normed_last,
        sampling=given.read_sampling(sampling, max_tokens),
        options=given.read_engine_options(options),
        shard_bytes=None if shard_size is None else given.read_size("--shard-size", shard_size),
        in_flight=in_flight,
        backlog=given.read_size("--backlog", backlog),
        jobs=jobs,
    )

    def tally(name: str, total: int, done: int) -> ConsoleTally:
        return ConsoleTally(run.talk, name, total, done)

    run.finish(verb.run(wish, progress, tally))
