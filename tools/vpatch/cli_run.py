"""What every verb of the command shares: how a run talks and ends, and options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vpatch.errors import VpatchError
from vpatch.files import cache_dir
from vpatch.patches.repo import find_repo

if TYPE_CHECKING:
    from rich.console import Console

    from vpatch.pipeline import Upstream
    from vpatch.report import Report
    from vpatch.upstream.mirror import ArchiveKind

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


def upstream_of(run: Run, git_url: str | None = None, kind: ArchiveKind | None = None) -> Upstream:
    from vpatch.pipeline import Upstream
    from vpatch.talk import ConsoleProgress

    progress = ConsoleProgress(run.talk)
    return Upstream(cache=cache_dir(), git_url=git_url, kind=kind, progress=progress)


def repo_of(folder: Path | None) -> Path:
    return find_repo(Path.cwd(), folder)


def repo_or_none(folder: Path | None) -> Path | None:
    """The folder that holds ``patches/``; None where nobody named one and there is none."""
    from vpatch.errors import UsageError

    try:
        return repo_of(folder)
    except UsageError:
        if folder is not None:
            raise
        return None  # in a container: what a repository would add is left out


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


def series_option(command: Command) -> Command:
    """``--series DIR``."""
    option = click.option(
        "--series",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="DIR",
        help="The series in this folder, as vpatch rebase --out writes it; its pin names the "
        "release.",
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
