"""Writes docs/blame.md: which release breaks which patch of the pinned series.

    python ci/blame.py [TAG ...] [--out docs/blame.md]

Each pinned series is tried on every release behind its own that the index has (about 40 MB a
release, once, into the cache).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from vpatch.errors import VpatchError
from vpatch.files import cache_dir
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import pinned_tags, series_folder
from vpatch.pipeline import Upstream
from vpatch.rebase.blame import Blamed
from vpatch.talk import ConsoleProgress
from vpatch.verbs.blame import Wish, blamed
from vpatch.verbs.blame_report import page

ROOT = Path(__file__).resolve().parent.parent


def text(found: Sequence[Blamed]) -> str:
    """The page."""
    return "\n".join([*_head(found), *page(found)]).rstrip("\n") + "\n"


def _head(found: Sequence[Blamed]) -> Iterator[str]:
    yield "# Which release breaks which patch"
    yield ""
    yield (
        "`python ci/blame.py` wrote this, as `vpatch blame --from TAG --fetch --markdown` says it. "
        "Each series is tried on each release in one step from its own, without stored resolutions "
        "and without the gates: what upstream alone did to the patches. A conflict is no loss: the "
        "series of the later releases are in patches/. *Breaks* is the first release on which a "
        "person has to look at a patch, or on which it may leave."
    )
    yield ""
    yield "| series | revision | patches | fit | need a person, or may leave |"
    yield "|---|---|---|---|---|"
    for one in found:
        pin = Pin.read(series_folder(ROOT, one.tag) / PIN)
        last = [row.cells[-1] for row in one.rows]
        looks = sum(not cell.fits for cell in last)
        fit = f"{len(last) - looks} of {len(last)} on {one.releases[-1]}"
        yield f"| {one.tag} | {pin.revision} | {len(last)} | {fit} | {looks} |"
    yield ""


@click.command(help=__doc__)
@click.argument("tags", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "blame.md")
def main(tags: tuple[str, ...], out: Path) -> None:
    """Tries all series and writes the page."""
    upstream = Upstream(cache_dir(), None, None, ConsoleProgress(Console(stderr=True)))
    # The newest one has no release behind it.
    wanted = tags or pinned_tags(ROOT)[:-1]
    try:
        found = [
            one for tag in wanted for one in blamed(ROOT, upstream, Wish(source=tag, fetch=True))
        ]
    except VpatchError as error:
        click.echo(f"error: {error.message}\n{error.hint}", err=True)
        sys.exit(error.exit_code)
    out.write_text(text(found))


if __name__ == "__main__":
    main()
