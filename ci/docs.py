"""Writes what the docs can show of themselves: the command reference and the sample outputs.

    python ci/docs.py                      rewrite docs/cli.md, tables and samples
    python ci/docs.py --check              exit 1 where they are not what is printed now
    python ci/docs.py --check-smoke FILE   exit 1 where README's sample of `vpatch smoke` has other
                                           checks or verdicts than FILE, its output or --json

A sample is a fenced block below a comment ``<!-- output of: vpatch ... -->``; several commands are
joined by ``&&``; ``| grep PATTERN`` shows some lines of the last one, and ``output of, exit 1:``
says that it finds something. Only stdout is shown. Samples run in a folder that has the target and
a public drafter of tests/fixtures, without weights, as target/ and drafter/. Samples that build
download a wheel once, into the cache.
A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``: docs_smoke.py makes it, or
docs_collection.py. A smoke takes minutes: its sample, below
``<!-- part of the output of: vpatch smoke ... -->``, is not rewritten.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import click

import docs_collection
import docs_smoke
from vpatch.cli import cli

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import preflight_lab  # noqa: E402

DRAFTER = "cm00cm--Kimi-K2.7-Code-EAGLE3"
REFERENCE = ROOT / "docs" / "cli.md"
README = ROOT / "README.md"
SAMPLED = (README,)
TABLED = tuple(ROOT / "docs" / f"{name}.md" for name in ("smoke", "gpu", "collection"))
TABLES: Mapping[str, Callable[[], str]] = {
    "checks": docs_smoke.checks,
    "own checks": docs_smoke.own_checks,
    "drafters": docs_smoke.drafters,
    "releases": docs_smoke.releases,
    "known errors": docs_smoke.known,
    "collection kernels": docs_collection.kernels,
    "collection answers": docs_collection.answers,
    "collection throughput": docs_collection.throughput,
    "collection trace": docs_collection.trace,
}

_SAMPLE = re.compile(
    r"(<!-- output of(?:, exit (?P<exit>\d))?: (?P<commands>[^\n]+?) -->\n```[a-z]*\n)"
    r"(?P<shown>.*?)(?=```)",
    re.DOTALL,
)
_TABLE = re.compile(
    r"(<!-- table: (?P<name>[^\n]+?) -->\n)(?P<shown>.*?)(?=<!-- end -->)", re.DOTALL
)
_SMOKE = re.compile(
    r"<!-- part of the output of: vpatch smoke [^\n]+? -->\n```[a-z]*\n(?P<shown>.*?)```", re.DOTALL
)
_HEADING = """# The `vpatch` command

Written by `ci/docs.py` from the command itself.
"""


def reference() -> str:
    """docs/cli.md: the help of the command and of each verb."""
    context = click.Context(cli, info_name="vpatch", **cli.context_settings)
    parts = [_HEADING, _block(cli.get_help(context))]
    for name in cli.list_commands(context):
        verb = cli.commands[name]
        inner = click.Context(verb, info_name=name, parent=context)
        parts.append(f"## vpatch {name}\n\n{_block(verb.get_help(inner))}")
    return "\n".join(parts)


def with_samples(text: str) -> str:
    """A page with its samples as the commands print them now."""
    with tempfile.TemporaryDirectory() as folder:
        _checkpoints(Path(folder))
        return _SAMPLE.sub(lambda found: found[1] + _outputs(found, folder), text)


def with_tables(text: str) -> str:
    """A page with its tables as the code makes them now; NAME.json is a report of a run."""

    def table(found: re.Match[str]) -> str:
        name = found["name"]
        made = docs_smoke.run(name) if name.endswith(".json") else TABLES[name]()
        return f"{found[1]}\n{made}\n"

    return _TABLE.sub(table, text)


def pages() -> dict[Path, str]:
    """What is written here, as it has to be now."""
    return {
        REFERENCE: reference(),
        **{page: with_tables(page.read_text()) for page in TABLED},
        **{page: with_samples(page.read_text()) for page in SAMPLED},
    }


def stale() -> list[Path]:
    """The pages that are not what the commands print now."""
    return [
        path for path, text in pages().items() if not path.is_file() or path.read_text() != text
    ]


def check_smoke(report: Path) -> list[str]:
    """Where README's sample of a smoke is not what a run said."""
    found = _SMOKE.search(README.read_text())
    if found is None:
        return ["README.md has no sample of vpatch smoke"]
    return list(docs_smoke.differences(found["shown"], report.read_text()))


def _checkpoints(folder: Path) -> None:
    """A target's and a drafter's config, and headers over holes."""
    drafter = preflight_lab.public(DRAFTER)
    weights = preflight_lab.weights_of(drafter["config"], drafter["states"], drafter["own"])
    preflight_lab.write(folder / "drafter", drafter["config"], weights)
    preflight_lab.write(folder / "target", preflight_lab.public("target-kimi-k2.5")["config"])


def _outputs(found: re.Match[str], folder: str) -> str:
    commands, _, pattern = found["commands"].partition(" | grep ")
    wanted = int(found["exit"] or 0)
    shown = "".join(
        _output(shlex.split(command), folder, wanted) for command in commands.split(" && ")
    )
    lines = shown.splitlines(keepends=True)
    return "".join(line for line in lines if re.search(pattern.strip("'"), line))


def _output(command: list[str], folder: str, wanted: int) -> str:
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
    if ran.returncode != wanted:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
    return ran.stdout.replace(str(ROOT) + "/", "")


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def main() -> None:
    """Rewrites the pages, or names what is stale."""
    match sys.argv[1:]:
        case []:
            for path, text in pages().items():
                path.write_text(text)
            wrong = []
        case ["--check"]:
            wrong = [
                f"{page.relative_to(ROOT)} is stale: run python ci/docs.py" for page in stale()
            ]
        case ["--check-smoke", report]:
            wrong = [f"README.md: {line}" for line in check_smoke(Path(report))]
        case _:
            raise SystemExit(__doc__)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
