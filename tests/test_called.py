"""A patch is named alike for every verb: by its file, or its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpatch.errors import UsageError
from vpatch.patches.called import the_patch

NAMES = tuple(f"{number:04}-change-{number}.patch" for number in range(1, 52))


@pytest.mark.parametrize(
    "wanted",
    ["7", "0007", "0007-change-7", "0007-change-7.patch", "patches/v0.33.0/0007-change-7.patch"],
)
def test_every_way_to_name_a_patch(wanted: str) -> None:
    assert the_patch(wanted, NAMES, "v0.33.0") == "0007-change-7.patch"


@pytest.mark.parametrize("wanted", ["52", "0", "", "nosuch", "change", "\u0667", "-1"])
def test_no_such_patch_says_what_there_is_in_a_line(wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        the_patch(wanted, NAMES, "v0.33.0", "--after")
    assert caught.value.code == "no-such-patch"
    assert caught.value.message == f"--after names {wanted!r}, which is no patch of v0.33.0"
    assert len(caught.value.hint) < 200


def test_part_of_a_name_tells_those_that_have_it() -> None:
    with pytest.raises(UsageError) as caught:
        the_patch("change-3", NAMES, "v0.33.0")
    assert "0003-change-3.patch, 0030-change-30.patch" in caught.value.hint
    assert caught.value.hint.endswith(" and 6 more.")


def test_an_empty_series() -> None:
    with pytest.raises(UsageError, match=r"^v0\.33\.0 has no patch '1'$"):
        the_patch("1", (), "v0.33.0")


@given(st.text())
def test_any_text_is_a_patch_or_a_usage_error(wanted: str) -> None:
    try:
        found = the_patch(wanted, NAMES, "v0.33.0")
    except UsageError:
        found = NAMES[0]
    assert found in NAMES
