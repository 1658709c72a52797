"""The verbs that change a series, as commands: export, edit, refresh, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vpatch.cli_run import Run, json_option, repo_of, repo_option, upstream_of

_check_option = click.option(
    "--check", is_flag=True, help="Write nothing; exit 1 if something would change."
)
_pinned_git_option = click.option(
    "--upstream-git",
    metavar="URL",
    help="Where the tag is, if the pin has a git source that is not in the mirror.",
)


@click.command(short_help="Commits become the series.")
@click.argument("tag")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="BRANCH|WORKTREE",
    help="A worktree (its HEAD), or a branch of the repository of the current folder.",
)
@click.option(
    "--base",
    metavar="REV",
    help="The commit below the first patch. [default: what `vpatch edit` noted, the pinned tree, "
    "upstream's tag]",
)
@click.option(
    "--drop",
    metavar="NAME",
    multiple=True,
    help="A patch of the series that may go. Can be given again.",
)
@_check_option
@_pinned_git_option
@repo_option
@json_option
@click.pass_obj
def export(
    run: Run,
    tag: str,
    source: str,
    base: str | None,
    drop: Sequence[str],
    check: bool,
    upstream_git: str | None,
    repo: Path | None,
) -> None:
    """Make the series of TAG from commits.

    A patch keeps its bytes where they still make its commit and its index lines name the files
    that are there. The new series is applied to every pinned source before it takes the old one's
    place, in one step. A patch that is no commit any more is refused unless --drop names it.
    """
    from vpatch.verbs import export as verb

    wish = verb.Wish(source, Path.cwd(), base, tuple(drop), check)
    run.finish(verb.run(tag, repo_of(repo), upstream_of(run, upstream_git), wish))


@click.command(short_help="The series as commits, to work in.")
@click.argument("tag")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--discard",
    is_flag=True,
    help="Write an existing worktree anew, if nothing is in it that the series does not have.",
)
@click.option("--upstream-git", metavar="URL", help="Take the tag from this git remote.")
@repo_option
@json_option
@click.pass_obj
def edit(
    run: Run,
    tag: str,
    folder: Path | None,
    discard: bool,
    upstream_git: str | None,
    repo: Path | None,
) -> None:
    """Open a worktree with the series of TAG as commits, ready for vpatch export.

    DIR is vllm-TAG beside the repository where it is not given. What the series does not have is
    never thrown away: changed and untracked files, commits, stashes, branches.
    """
    from vpatch.verbs import edit as verb

    run.finish(
        verb.run(tag, repo_of(repo), upstream_of(run, upstream_git), folder, discard=discard)
    )


@click.command(short_help="Write one patch anew.")
@click.argument("tag")
@click.argument("name", metavar="NAME")
@_check_option
@_pinned_git_option
@repo_option
@json_option
@click.pass_obj
def refresh(
    run: Run, tag: str, name: str, check: bool, upstream_git: str | None, repo: Path | None
) -> None:
    """Write the patch NAME of TAG anew on the tree before it: positions, blob ids, context.

    NAME is its file, or its number. Its message stays byte for byte. Patches behind it that fit
    only at an offset follow.
    """
    from vpatch.verbs import refresh as verb

    run.finish(verb.run(tag, repo_of(repo), upstream_of(run, upstream_git), name, check=check))


@click.command("import", short_help="Mails or a branch become patches.")
@click.argument("tag")
@click.argument("source", metavar="MBOX|BRANCH")
@click.option("--topic", required=True, metavar="TOPIC", help="The purpose that they belong to.")
@click.option(
    "--after",
    metavar="NAME",
    help="Place them behind this patch, a file or its number. "
    "[default: behind the topic's last one, else at the end]",
)
@click.option(
    "--base",
    metavar="REV",
    help="The commit below a branch's first one. [default: what `vpatch edit` noted, else where "
    "the branch left HEAD]",
)
@click.option(
    "--upstream-status",
    metavar="TEXT",
    default="Pending",
    show_default=True,
    help="Upstream-Status of patches that have none: Backport [https://...].",
)
@click.option(
    "--sign-off", metavar="'NAME <MAIL>'", help="Who signs the patches off, besides their authors."
)
@_pinned_git_option
@repo_option
@json_option
@click.pass_obj
def import_(
    run: Run,
    tag: str,
    source: str,
    topic: str,
    after: str | None,
    base: str | None,
    upstream_status: str,
    sign_off: str | None,
    upstream_git: str | None,
    repo: Path | None,
) -> None:
    """Put a colleague's patches, or a backport, into the series of TAG.

    MBOX is what git format-patch writes, one mail or many, as files or as mail programs save
    them; - reads it from standard input. BRANCH is a branch of the repository of the current
    folder, or the folder of a worktree. Each patch is placed by its lines or by a three-way merge,
    the later ones follow, and everything is verified before the new series takes the old one's
    place. Missing trailers are added; tests and package are set apart.
    """
    from vpatch.patches.draft import Trailers
    from vpatch.verbs import import_ as verb

    trailers = Trailers(topic, upstream_status, sign_off)
    wish = verb.Wish(source, Path.cwd(), trailers, after, base)
    run.finish(verb.run(tag, repo_of(repo), upstream_of(run, upstream_git), wish))
