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
@click.option(
    "--keep",
    metavar="PATCH",
    multiple=True,
    help="Carry this patch, though it may have nothing to do in TO. Can be given again.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the series to this folder. [default: patches/TO]",
)
@click.option("--replace", is_flag=True, help="Let another series that is there go.")
@click.option(
    "--commit",
    is_flag=True,
    help="Commit patches/TO; what leaves the series leaves in a commit of its own.",
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
    keep: Sequence[str],
    out: Path | None,
    replace: bool,
    commit: bool,
    markdown: bool,
    onto_git: str | None,
    kind: ArchiveKind | None,
    upstream_git: str | None,
    repo: Path | None,
) -> None:
    """Carry the series of FROM to the release TO, with a verdict for every patch.

    Each patch is put on TO by a three-way merge with the exact files that it was made on. What
    upstream has by now is found by where it stands, hunk by hunk, and named with its evidence.
    Without conflicts and open questions the new series is verified on every source of TO and
    written, with its pin.
    """
    from vpatch.verbs import rebase as verb

    wish = verb.Wish(
        accept=tuple(accept),
        keep=tuple(keep),
        dry_run=dry_run,
        out=out,
        replace=replace,
        commit=commit,
        markdown=markdown,
        onto_git=onto_git,
        here=Path.cwd(),
    )
    upstream = upstream_of(run, upstream_git, kind)
    run.finish(verb.run(source, target, repo_of(repo), upstream, wish))
