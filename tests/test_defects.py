"""docs/defects.md names tests that lie in the series that it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vpatch.patches.repo import series_tags
from vpatch.patches.series import Series

REPO = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\|[^|]*\|[^|]*\|(?P<now>[^|]*)\|(?P<releases>[^|]*)\|(?P<test>[^|]*)\|$")
TAGS = tuple(series_tags(REPO))


def rows() -> list[tuple[str, str, str]]:
    found = [ROW.match(line) for line in (REPO / "docs/defects.md").read_text().splitlines()]
    cells = [
        (row["now"].strip(), row["releases"].strip(), row["test"].strip()) for row in found if row
    ]
    return [one for one in cells if one[0] not in ("now", "---")]


def functions_of(tag: str) -> dict[str, set[str]]:
    """Test functions that the series adds, by what stands in their file's name."""
    functions: dict[str, set[str]] = {}
    for patch in Series.read(REPO / "patches" / tag).patches:
        name = ""
        for line in patch.diff.decode().splitlines():
            if line.startswith("+++ "):
                file = re.fullmatch(
                    r"\+\+\+ b/tests/v1/spec_decode/test_kimi_(?:eagle3_)?(\w+)\.py", line
                )
                name = file[1] if file else ""
            elif name and (test := re.match(r"\+def (test_\w+)", line)):
                functions.setdefault(name, set()).add(test[1])
    return functions


def test_every_defect_has_a_row() -> None:
    numbers = re.findall(r"^\| (\d+) \|", (REPO / "docs/defects.md").read_text(), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 44)]


def test_what_is_mended_has_a_test_and_what_is_left_has_none() -> None:
    for now, releases, test in rows():
        assert bool(test) == bool(releases) == (not now.startswith("left")), (now, test)


@pytest.mark.parametrize("tag", TAGS)
def test_named_tests_lie_in_the_series(tag: str) -> None:
    functions = functions_of(tag)
    named = 0
    for _, releases, test in rows():
        outside = re.sub(r"\([^)]*\)", "", releases)
        if outside.strip() == "all" or tag in outside.replace(",", " ").split():
            match = re.fullmatch(r"`(\w+)::(\w+)`", test)
            assert match, test
            assert match[2] in functions.get(match[1], set()), test
            named += 1
    assert named
