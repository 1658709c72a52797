"""docs/blame.md, held against the real releases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vpatch.files import cache_dir
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.verbs import blame as verb

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "blame.md"


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(("tag", "target"), [("v0.16.0", "v0.17.1"), ("v0.32.0", "v0.33.0")])
def test_the_page_is_true(release_cache: Path, tag: str, target: str) -> None:
    """A column of the page, tried again."""
    upstream = Upstream(cache_dir(), None, None, SilentProgress())
    found = {one.tag: one for one in verb.blamed(REPO, upstream, verb.Wish())}[tag]
    column = found.releases.index(target)
    section = PAGE.read_text().partition(f"### The series of {tag}\n")[2].partition("\n### ")[0]
    table = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    place = table[0].index(target)
    shown = {re.sub(r"[`| ]", "", row[0]): row[place].strip("`") for row in table[1:]}
    now = {row.file: row.cells[column].letter for row in found.rows}
    assert shown == now, "run python ci/blame.py"
