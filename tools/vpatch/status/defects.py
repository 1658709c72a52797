"""docs/defects.md: which release has which defect, and which topic of its series mends it.

The page names a test for each defect; the patch that adds this test says the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import FindingError
from vpatch.patches.series import Series

PAGE = Path("docs/defects.md")
_MOST = 1 << 20
_TEST = re.compile(r"`(\w+)::(\w+)`")
_FILE = re.compile(r"\+\+\+ b/tests/v1/spec_decode/test_kimi_(?:eagle3_)?(\w+)\.py")
_FUNCTION = re.compile(r"\+def (test_\w+)")
_LEFT_ON = re.compile(r"left on ([^:]+)")
_CELLS = 5


@dataclass(frozen=True)
class Defect:
    """A row of the page.

    Attributes:
        number: As the page counts; a row below another one shares its number.
        releases: Those whose series mends it; where it is left, those that are named, or all.
        test: ``file::function``; empty where it is left.
    """

    number: str
    text: str
    now: str
    releases: tuple[str, ...]
    test: str

    @property
    def left(self) -> bool:
        """Whether no series mends it."""
        return not self.test

    @property
    def said(self) -> str:
        """It, on one line."""
        return f"defect {self.number}: {self.text}" + f" - {self.now}" * self.left


def read_defects(repo: Path, tags: Sequence[str]) -> tuple[Defect, ...]:
    """The page's rows; none where a repository has no such page.

    Args:
        repo: The folder that holds ``docs/``.
        tags: The releases that ``all`` means.

    Raises:
        FindingError: The page is not one.
    """
    path = repo / PAGE
    if not path.is_file():
        return ()
    data = path.read_bytes()
    if len(data) > _MOST:
        raise FindingError(f"{path} is larger than {_MOST} bytes", hint="Is it that page?")
    return tuple(_rows(data.decode("utf-8", "replace"), tags))


def _rows(page: str, tags: Sequence[str]) -> Iterator[Defect]:
    number, subject = "", ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != _CELLS or cells[0] in {"#", "---"}:
            continue
        if cells[0]:
            number, subject = cells[0], cells[1]
        text = cells[1] if cells[0] else f"{subject} ({cells[1]})"
        test = _TEST.fullmatch(cells[4])
        named = re.sub(r"\([^)]*\)", "", cells[3]).replace(",", " ").split()
        if not test:  # a row of what is left names its releases elsewhere
            left_on = _LEFT_ON.match(cells[2])
            words = (left_on[1] if left_on else cells[1]).replace(",", " ").split()
            named = [tag for tag in words if tag in tags] or ["all"]
        releases = tuple(tags) if named == ["all"] else tuple(named)
        yield Defect(number, text, cells[2], releases, f"{test[1]}::{test[2]}" if test else "")


def topics_of_tests(series: Series) -> Mapping[str, str]:
    """``file::function`` of each test that a series adds -> the topic of its patch."""
    found: dict[str, str] = {}
    for patch in series.patches:
        name = ""
        for line in patch.diff.decode("utf-8", "replace").splitlines():
            if line.startswith("+++ "):
                file = _FILE.fullmatch(line)
                name = file[1] if file else ""
            elif name and (test := _FUNCTION.match(line)):
                found[f"{name}::{test[1]}"] = patch.topic
    return found


def of_release(
    defects: Sequence[Defect], tag: str, tests: Mapping[str, Mapping[str, str]]
) -> tuple[tuple[str, Defect], ...]:
    """The defects of a release as it is, as the page has them, each with its topic.

    What is left has the topic of what is mended under the same number; where nothing is, none.

    Args:
        tests: Release -> ``topics_of_tests`` of its series.
    """
    everywhere = {test: topic for of in tests.values() for test, topic in of.items()}
    own = {**everywhere, **tests.get(tag, {})}
    numbers = {one.number: own[one.test] for one in defects if one.test in own}
    return tuple(
        (numbers.get(one.number, "") if one.left else own.get(one.test, ""), one)
        for one in defects
        if tag in one.releases
    )
