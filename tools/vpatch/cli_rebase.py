"""``vpatch rebase`` and ``vpatch blame`` as commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vpatch.cli_run import Run, json_option, repo_of, repo_option, upstream_of
from vpatch.errors import UsageError

if TYPE_CHECKING:
    from vpatch.upstream.mirror import ArchiveKind


@click.command(short_help="A series moves to another release.")
@click.argument("source", metavar="FROM", required=False)
@click.argument("target", metavar="TO", required=False)
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
@click.option(
    "--worktree",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where a conflict is resolved; or which session is meant. [default: ../vllm-TO-rebase]",
)
@click.option("--status", is_flag=True, help="Say what a session waits for.")
@click.option("--continue", "go_on", is_flag=True, help="Take what was resolved, and go on.")
@click.option("--skip", metavar="PATCH", help="Leave out the patch that conflicts, and go on.")
@click.option("--abort", is_flag=True, help="Take a session back.")
@click.option(
    "--store",
    is_flag=True,
    help="With --continue: keep what was resolved in patches/resolutions, to be used again.",
)
@click.option("--discard", is_flag=True, help="With --skip, --abort: let edits of the conflict go.")
@click.option("--no-resolutions", is_flag=True, help="Use nothing of patches/resolutions.")
@click.option("--markdown", is_flag=True, help="The report as Markdown, for a pull request.")
@click.option(
    "--between",
    is_flag=True,
    help="Download the releases between FROM and TO (with --upstream-git the commits), to say "
    "which one changed a conflict's lines. [default: the releases in the mirror are looked at]",
)
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
    source: str | None,
    target: str | None,
    dry_run: bool,
    accept: Sequence[str],
    keep: Sequence[str],
    out: Path | None,
    replace: bool,
    commit: bool,
    worktree: Path | None,
    status: bool,
    go_on: bool,
    abort: bool,
    skip: str | None,
    store: bool,
    discard: bool,
    no_resolutions: bool,
    markdown: bool,
    between: bool,
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

    A conflict begins a session: a worktree beside the repository, with markers in diff3 style, in
    which git's own tools work. --continue takes the files and goes on, in the end as if there had
    been no conflict. Where several sessions exist, name one by its TO.
    """
    from vpatch.verbs import rebase as verb
    from vpatch.verbs import rebase_continue as verb_continue
    from vpatch.verbs import rebase_held as verb_held
    from vpatch.verbs import rebase_session as verb_session
    from vpatch.verbs import rebase_session_report as verb_report

    wish = verb.Wish(
        accept=tuple(accept),
        keep=tuple(keep),
        dry_run=dry_run,
        out=out,
        replace=replace,
        commit=commit,
        markdown=markdown,
        resolutions=not no_resolutions,
        worktree=worktree,
        between=between,
        onto_git=onto_git,
        here=Path.cwd(),
    )
    upstream = upstream_of(run, upstream_git, kind)
    place = _repo(repo)
    names = tuple(tag for tag in (source, target) if tag is not None)
    given = {"status": status, "continue": go_on, "skip": skip is not None, "abort": abort}
    words = [word for word, there in given.items() if there]
    _check(names, words, store=store, discard=discard, dry_run=dry_run)
    if not words:
        run.finish(verb_session.start(names[0], names[1], place, upstream, wish))
        return
    ask = verb_held.Ask(names, worktree or _worktree(names), skip or "", store, discard)
    if words == ["status"]:
        run.finish(verb_report.status(place, names, ask.worktree))
    elif words == ["abort"]:
        run.finish(verb_session.abort(place, ask))
    else:
        run.finish(verb_continue.go_on(place, upstream, ask, wish))


def _check(
    names: Sequence[str], words: Sequence[str], *, store: bool, discard: bool, dry_run: bool
) -> None:
    going = set(words) & {"continue", "skip"}
    for wrong, why in (
        (len(words) > 1, "--status, --continue, --skip and --abort exclude each other"),
        (not words and not names[1:], "FROM and TO are missing: the release that has the series, "
         "and the one that it is to move to"),
        (words and dry_run, "--dry-run is for FROM TO"),
        (store and not going, "--store is for --continue"),
        (discard and not set(words) & {"skip", "abort"}, "--discard is for --skip and --abort"),
    ):  # fmt: skip
        if wrong:
            raise UsageError(why, hint="vpatch rebase --help", code="usage")


def _repo(repo: Path | None) -> Path:
    """The repository; in the worktree of a session, that of the session."""
    from vpatch.rebase.session_tree import home_of

    home = home_of(Path.cwd()) if repo is None else None
    return home[0] if home is not None else repo_of(repo)


def _worktree(names: Sequence[str]) -> Path | None:
    """The worktree of the session that the current folder lies in, where no other is named."""
    from vpatch.rebase.session_tree import home_of

    home = home_of(Path.cwd())
    return home[2] if home is not None and not names else None


@click.command(short_help="Which release breaks which patch.")
@click.argument("patch", required=False)
@click.option(
    "--from",
    "source",
    metavar="TAG",
    help="The pinned release. [default: every pinned series, on the pinned releases]",
)
@click.option("--to", "target", metavar="TAG", help="The last release. [default: the newest]")
@click.option("--fetch", is_flag=True, help="Download the releases that are not in the mirror.")
@click.option("--markdown", is_flag=True, help="The tables as Markdown.")
@repo_option
@json_option
@click.pass_obj
def blame(
    run: Run,
    patch: str | None,
    source: str | None,
    target: str | None,
    fetch: bool,
    markdown: bool,
    repo: Path | None,
) -> None:
    """Try a series on every release behind its own: a verdict for each patch on each.

    PATCH, a file or its number, shows that patch alone, with what its verdicts rest on. Releases
    that are not in the mirror are named, and not looked at without --fetch. Stored resolutions are
    left out: what is shown is what upstream did to the patches.
    """
    from vpatch.verbs import blame as verb

    wish = verb.Wish(patch=patch, source=source, target=target, fetch=fetch, markdown=markdown)
    run.finish(verb.run(repo_of(repo), upstream_of(run), wish))
