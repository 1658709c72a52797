"""Upstream's release tags."""

from __future__ import annotations

import re

from packaging.version import Version

from vpatch.errors import UsageError

_TAG = re.compile(
    r"v?(\d{1,4}(?:\.\d{1,4}){1,3}(?:(?:a|b|rc)\d{1,4})?(?:\.post\d{1,4})?)", re.ASCII
)


def parse_tag(text: str) -> str:
    """The tag as upstream writes it.

    Args:
        text: ``v0.17.1`` or ``0.17.1``; pre-releases (``v0.18.0rc1``) and post-releases too.

    Returns:
        The tag with its ``v``: safe as part of a ref name, a file name or a git argument.

    Raises:
        UsageError: The text is not a release tag.
    """
    match = _TAG.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text[:80]!r} is not a release tag of vLLM",
            hint="Write it as upstream does, for example v0.17.1; `vpatch releases` lists them.",
            code="bad-tag",
        )
    return f"v{match[1]}"


def version_of(tag: str) -> Version:
    """The version that a tag names, for comparing and for the package index.

    Raises:
        UsageError: The text is not a release tag.
    """
    return Version(parse_tag(tag).removeprefix("v"))


def is_tag(text: str) -> bool:
    """Whether a text is a release tag, spelled as upstream spells it."""
    try:
        return parse_tag(text) == text
    except UsageError:
        return False
