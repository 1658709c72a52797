"""``vpatch rebase`` as a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vpatch.cli_run import Run, json_option, repo_of, repo_option, upstream_of

if TYPE_CHECKING:
    from vpatch.upstream.mirror import ArchiveKind


@click.command(short_help="A series moves to another release.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Write nothing: verdicts and questions alone.")
@click.option(
    "--accept",
    metavar="NAME",
    multiple=True,
    help="Let this question stand, as the report names it. Can be given again.",
)
@click.option("--markdown", is_flag=True, help="The report as Markdown, for a pull request.")
@click.option(
    "--onto-git",
    metavar="REV",
    help="Try the series on this commit of the repository of the current folder, in the place of "
    "TO: a dry run.",
)
@click.option(
    "--source",
    "kind",
    type=click.Choice(["sdist", "wheel"]),
    help="Take this kind of archive of TO. [default: the sdist, the wheel where there is none]",
)
@click.option(
    "--upstream-git", metavar="URL", help="Take TO from this git remote instead of the index."
)
@repo_option
@json_option
@click.pass_obj
def rebase(
    run: Run,
    source: str,
    target: str,
    dry_run: bool,
    accept: Sequence[str],
    markdown: bool,
    onto_git: str | None,
    kind: ArchiveKind | None,
    upstream_git: str | None,
    repo: Path | None,
) -> None:
    """Carry the series of FROM to the release TO, with a verdict for every patch.

    Each patch is put on TO by a three-way merge with the exact files that it was made on. What
    upstream has by now is found by where it stands, hunk by hunk, and named with its evidence.
    """
    from vpatch.verbs import rebase as verb

    wish = verb.Wish(tuple(accept), dry_run, markdown, onto_git, Path.cwd())
    upstream = upstream_of(run, upstream_git, kind)
    run.finish(verb.run(source, target, repo_of(repo), upstream, wish))
