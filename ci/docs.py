"""Writes what the docs can show of themselves: the command reference and the sample outputs.

    python ci/docs.py           rewrite docs/cli.md and the samples in README.md
    python ci/docs.py --check   exit 1 where they are not what the commands print now

A sample is a fenced block below a comment ``<!-- output of: vpatch ... -->``; several commands are
joined by ``&&``. Only stdout is shown. Samples that build download a wheel once, into the cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from vpatch.cli import cli

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "cli.md"
SAMPLED = (ROOT / "README.md",)

_SAMPLE = re.compile(
    r"(<!-- output of: (?P<commands>[^\n]+?) -->\n```[a-z]*\n)(?P<shown>.*?)(?=```)", re.DOTALL
)
_HEADING = """# The `vpatch` command

Written by `ci/docs.py` from the command itself.
"""


def reference() -> str:
    """docs/cli.md: the help of the command and of each verb."""
    context = click.Context(cli, info_name="vpatch", max_content_width=100)
    parts = [_HEADING, _block(cli.get_help(context))]
    for name in cli.list_commands(context):
        verb = cli.commands[name]
        inner = click.Context(verb, info_name=name, parent=context, max_content_width=100)
        parts.append(f"## vpatch {name}\n\n{_block(verb.get_help(inner))}")
    return "\n".join(parts)


def with_samples(text: str) -> str:
    """A page with its samples as the commands print them now."""
    with tempfile.TemporaryDirectory() as folder:
        return _SAMPLE.sub(lambda found: found[1] + _outputs(found["commands"], folder), text)


def stale() -> list[Path]:
    """The pages that are not what the commands print now."""
    pages = {REFERENCE: reference(), **{page: with_samples(page.read_text()) for page in SAMPLED}}
    return [page for page, text in pages.items() if not page.is_file() or page.read_text() != text]


def _outputs(commands: str, folder: str) -> str:
    return "".join(_output(command.split(), folder) for command in commands.split(" && "))


def _output(command: list[str], folder: str) -> str:
    if command[0] != "vpatch":
        raise SystemExit(f"a sample runs vpatch, not {command[0]!r}")
    ran = subprocess.run(
        [sys.executable, "-m", "vpatch", *command[1:]],
        cwd=folder,
        env={**os.environ, "VPATCH_REPO": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
    return ran.stdout.replace(str(ROOT) + "/", "")


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def main() -> None:
    """Rewrites the pages, or with ``--check`` names the stale ones."""
    if sys.argv[1:] == ["--check"]:
        pages = stale()
        for page in pages:
            sys.stderr.write(f"{page.relative_to(ROOT)} is stale: run python ci/docs.py\n")
        sys.exit(1 if pages else 0)
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    REFERENCE.parent.mkdir(exist_ok=True)
    REFERENCE.write_text(reference())
    for page in SAMPLED:
        page.write_text(with_samples(page.read_text()))


if __name__ == "__main__":
    main()
