from __future__ import annotations

import pytest

from vpatch.errors import UsageError
from vpatch.tags import parse_tag, version_of


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("0.17.1", "v0.17.1"),
        ("v0.17.1", "v0.17.1"),
        ("v0.18.0rc1", "v0.18.0rc1"),
        ("0.9.0.1", "v0.9.0.1"),
        ("0.8.5.post1", "v0.8.5.post1"),
    ],
)
def test_a_tag_is_read_with_or_without_its_v(text: str, tag: str) -> None:
    assert parse_tag(text) == tag


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v",
        "17",
        "main",
        "--upload-pack=x",
        "-v0.17.1",
        "v0.17.1 ",
        "v0.17.1\n",
        "v0.17.1/../x",
        "v0.17.1^{}",
        "V0.17.1",
        "v0.17.1+kimi.1",
        "v\u0660.\u0661",
        "v0..1",
    ],
)
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_tag(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_versions_compare_as_versions() -> None:
    assert version_of("v0.9.2") < version_of("v0.17.1") < version_of("v0.18.0")
    assert version_of("v0.18.0rc1") < version_of("v0.18.0")
