"""vpatch status cuts nothing off: piped, as Markdown, as JSON, and in a narrow terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from vpatch.patches.repo import pinned, series_tags
from vpatch.patches.series import Series
from vpatch.status.collect import Status
from vpatch.status.defects import of_release, read_defects, topics_of_tests
from vpatch.status.markdown import escaped, to_markdown
from vpatch.status.matrix import Facts, make_row
from vpatch.status.topics import BY_NAME
from vpatch.verbs.status import text_of

REPO = Path(__file__).resolve().parent.parent


def shown(status: Status, *, width: int | None) -> str:
    """What a terminal of some width shows of a release; None: it is piped."""
    out = io.StringIO()
    console = Console(
        file=out, width=width or 80, force_terminal=width is not None, soft_wrap=True, no_color=True
    )
    console.print(text_of(status, detailed=True, html=None))
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def a_status() -> Status:
    """v0.26.0 by its pin, its series and the page, without gates."""
    pin, series = pinned(REPO, "v0.26.0")
    patches: dict[str, tuple[str, ...]] = {}
    for patch in series.patches:
        patches[patch.topic] = (*patches.get(patch.topic, ()), patch.subject)
    tests = {tag: topics_of_tests(Series.read(REPO / "patches" / tag)) for tag in series_tags(REPO)}
    defects = of_release(read_defects(REPO, series_tags(REPO)), "v0.26.0", tests)
    facts = Facts("v0.26.0", revision=pin.revision, patches=patches, defects=defects)
    topics = tuple(BY_NAME)
    return Status(topics, (make_row(facts, topics),), (), (), (), (), ())


@pytest.mark.parametrize("width", [None, 60, 80, 120])
def test_a_release_tells_all_its_defects_and_patches(width: int | None) -> None:
    status = a_status()
    (row,) = status.pinned
    told = shown(status, width=width)
    whole = " ".join(told.split())
    assert len(row.defects) > 30
    for topic, defect in row.defects:
        line = f"{defect.number} ({topic or 'no topic'}) {defect.text} -> {defect.now}"
        assert " ".join(line.split()) in whole
    for cell in row.cells:
        assert all(" ".join(subject.split()) in whole for subject in cell.patches)
    assert not re.search(r"^ +and \d+ more$", told, re.MULTILINE)
    lines = told.splitlines()
    if width is None:
        assert lines[0].split()[:2] == ["release", "revision"]
        assert max(map(len, lines)) > 200  # nothing is folded
    else:
        assert lines[0].split() == ["release", "v0.26.0"]
        assert max(len(line) for line in lines if " " in line.strip()) <= width


def test_markdown_tells_all_of_a_release() -> None:
    status = a_status()
    (row,) = status.pinned
    told = to_markdown(status)
    for _, defect in row.defects:
        assert f"| {escaped(defect.text)} | " in told
    for cell in row.cells:
        assert all(escaped(subject) in told for subject in cell.patches)


def test_json_tells_all_of_a_release() -> None:
    (row,) = a_status().pinned
    told = row.as_dict()["defects"]
    assert [(one["number"], one["text"]) for one in told] == [
        (defect.number, defect.text) for _, defect in row.defects
    ]
