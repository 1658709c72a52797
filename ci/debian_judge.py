"""Debian's maintainers as judges of `vpatch rebase`.

    python ci/debian_judge.py [PACKAGE ...] [--markdown docs/debian.md] [--json FILE] [--show]

For each package of debian_packages.toml the old suite's series is carried to the new suite's
upstream by tools/vpatch/rebase, and held against what the maintainers shipped.

Patch by patch: each old patch is carried onto the tree on which its counterpart stands in the
maintainers' new series (a dropped one: behind the counterpart of the patch before it), and what
comes out has to be the tree behind the counterpart, to the byte. So every patch is judged on the
ground that the maintainers gave it, whatever became of the ones before it. At once: the whole
series in one run, as a user meets it; what comes out without a question has to do the same there.

A patch that conflicts or asks something stops a rebase: a person looks at it. One that does not and
comes out otherwise than the maintainers' is a difference, and debian_explained.toml has to explain
it and to say whether it is wrong. Exit 1: a difference is wrong, or not explained.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import tomli

import debian_page
from debian_lines import Judged, Once, judge, judge_at_once
from debian_quilt import make_line, make_repository
from debian_source import Package, fetch, read_packages
from vpatch.errors import VpatchError

CI = Path(__file__).resolve().parent
PACKAGES = CI / "debian_packages.toml"
EXPLAINED = CI / "debian_explained.toml"


@dataclass(frozen=True)
class Result:
    """A package's patches, judged; and its series carried at once."""

    package: Package
    patches: tuple[Judged, ...]
    at_once: Once


def judged(package: Package) -> Result:
    """Fetches, unpacks and judges a package.

    Raises:
        HostError: an archive is not to be had, or a series does not apply.
    """
    store = fetch(package)
    with tempfile.TemporaryDirectory(prefix="vpatch-debian-") as folder:
        scratch = Path(folder)
        git = make_repository(scratch / "lines.git")
        old = make_line(git, package, package.old, store, scratch)
        new = make_line(git, package, package.new, store, scratch)
        return Result(package, tuple(judge(git, old, new)), judge_at_once(git, old, new))


def read_explained(path: Path = EXPLAINED) -> dict[str, debian_page.Explained]:
    """PACKAGE/PATCH -> why it differs."""
    data = tomli.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: debian_page.Explained(one["why"], one["wrong"]) for name, one in data.items()}


def problems(
    found: Sequence[Result], explained: Mapping[str, debian_page.Explained]
) -> Iterator[str]:
    """What has to be looked at: differences without an explanation, and wrong ones."""
    for result in found:
        names = {one.name for one in result.patches if one.outcome == "differs"}
        names |= set(result.at_once.differ)
        for name in sorted(names):
            key = f"{result.package.name}/{name}"
            if key not in explained:
                yield f"{key} differs from what the maintainers shipped, and nothing explains it"
            elif explained[key].wrong:
                yield f"{key} is wrong, and nobody is asked: {explained[key].why}"
        for key in explained:
            package, _, name = key.partition("/")
            if package == result.package.name and name not in names:
                yield f"{key} is explained, and does not differ"


@click.command(help=__doc__)
@click.argument("packages", nargs=-1)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the page here.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all here.")
@click.option("--show", is_flag=True, help="Print what differs, line by line.")
def main(
    packages: tuple[str, ...], markdown: Path | None, json_file: Path | None, *, show: bool
) -> None:
    """Judges, prints, and exits 1 where a difference is wrong or not explained."""
    chosen = [one for one in read_packages(PACKAGES) if not packages or one.name in packages]
    found = []
    try:
        for package in chosen:
            result = judged(package)
            found.append(result)
            sys.stdout.writelines(f"{line}\n" for line in debian_page.shown(result, full=show))
    except VpatchError as error:
        click.echo(f"error: {error.message}\n{error.hint}", err=True)
        sys.exit(error.exit_code)
    explained = read_explained()
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(debian_page.page(found, explained))
    wrong = list(problems(found, explained))
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
