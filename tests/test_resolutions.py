"""Stored resolutions: kept as text, used where the key fits exactly, refused where broken."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpatch.findings import FindingsError
from vpatch.rebase.markers import Clash, left_markers, put_together, settled, taken_apart
from vpatch.rebase.resolution import ByLines, Edit, Resolution, Settled, Whole, edited, sha256
from vpatch.rebase.resolution_text import as_text, read_text

LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b"  c", b"=", b"| d", b"\\", b"e\r"]), max_size=5
)
TEXTS = st.builds(
    lambda lines, whole: b"\n".join(lines) + (b"\n" if whole and lines else b""),
    LINES,
    st.booleans(),
)
SIDES = st.sampled_from(["none", f"100644 {sha256(b'')}", f"100755 {sha256(b'x')}"])
PATHS = st.text(st.characters(exclude_characters="/\0"), min_size=1).filter(
    lambda text: text not in (".", "..", ".git")
)
CLASHES = st.builds(Settled, TEXTS, TEXTS, TEXTS, TEXTS)
BY_LINES = st.builds(
    lambda path, found: ByLines(path, tuple(found)),
    PATHS,
    st.lists(CLASHES, min_size=1, max_size=3),
)
EDITS = st.lists(
    st.builds(Edit, st.integers(1, 999), TEXTS, TEXTS), max_size=3, unique_by=lambda e: e.line
)
WHOLES = st.builds(
    lambda path, base, theirs, mode, edits: Whole(
        path,
        base,
        f"100644 {sha256(b'o')}",
        theirs,
        mode,
        tuple(sorted(edits, key=lambda e: e.line)),
    ),
    PATHS,
    SIDES,
    SIDES,
    st.sampled_from(["", "100644", "100755"]),
    EDITS,
)
HEADS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=9)
RESOLUTIONS = st.builds(
    lambda head, files: Resolution(*head, "v1", "v2", tuple(files)),
    st.tuples(HEADS, HEADS, HEADS),
    st.lists(BY_LINES | WHOLES, min_size=1, max_size=3, unique_by=lambda file: file.path),
)


@given(RESOLUTIONS)
def test_every_resolution_survives_as_text(resolution: Resolution) -> None:
    text = as_text(resolution)
    again = read_text("name", text)
    assert again == resolution
    assert again.name == resolution.name
    assert as_text(again) == text


@given(RESOLUTIONS, st.data())
def test_a_text_cut_short_is_refused(resolution: Resolution, data: st.DataObject) -> None:
    text = as_text(resolution)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(FindingsError) as caught:
        read_text("name", text[:cut])
    assert caught.value.code == "bad-resolution"


@given(RESOLUTIONS, st.data())
def test_another_side_is_another_key_or_refused(
    resolution: Resolution, data: st.DataObject
) -> None:
    """A byte that changes changes what is read, or what is said."""
    text = as_text(resolution)
    place = data.draw(st.integers(0, len(text) - 1))
    other = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
    with contextlib.suppress(FindingsError):
        assert read_text("name", other) != resolution


def marked(parts: list[bytes | Clash]) -> bytes:
    return b"".join(
        b"<<<<<<< o\n%s||||||| b\n%s=======\n%s>>>>>>> t\n" % (part.ours, part.base, part.theirs)
        if isinstance(part, Clash)
        else part
        for part in parts
    )


WHOLE_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\n"]), max_size=4).map(b"".join)


@given(
    WHOLE_LINES,
    st.lists(
        st.tuples(
            st.builds(Clash, WHOLE_LINES, WHOLE_LINES, WHOLE_LINES), WHOLE_LINES, WHOLE_LINES
        ),
        max_size=3,
    ),
)
def test_a_settled_file_is_put_together_again(
    first: bytes, more: list[tuple[Clash, bytes, bytes]]
) -> None:
    parts = taken_apart(
        marked([first, *(part for clash, common, _ in more for part in (clash, common))])
    )
    assert parts is not None
    assert [part.sides for part in parts if isinstance(part, Clash)] == [
        one.sides for one, _, _ in more
    ]
    result = put_together(parts, [text for _, _, text in more])
    texts = settled(parts, result)
    # Where lines repeat, another cut of the same file will do, or none.
    assert texts is None or put_together(parts, texts) == result


def test_an_edit_elsewhere_is_no_settled_file() -> None:
    parts = taken_apart(marked([b"1\n2\n3\n", Clash(b"o\n", b"b\n", b"t\n"), b"4\n5\n"]))
    assert parts is not None
    assert settled(parts, b"1\n2\n3\nnew\nlines\n4\n5\n") == (b"new\nlines\n",)
    assert settled(parts, b"1\n2\n3\n4\n5\n") == (b"",)
    assert settled(parts, b"0\n2\n3\nnew\n4\n5\n") is None
    assert settled(parts, b"1\n2\n3\nnew\n4\n6\n") is None


@pytest.mark.parametrize(
    "text",
    [
        marked([b"", Clash(b"o\n", b"=======\n", b"t\n"), b""]),
        marked([b">>>>>>> \n", Clash(b"o\n", b"b\n", b"t\n"), b""]),
        b"<<<<<<< o\n1\n||||||| b\n",
    ],
)
def test_text_that_looks_like_a_marker_is_not_guessed_at(text: bytes) -> None:
    assert taken_apart(text) is None


def test_markers_that_a_side_had_are_none() -> None:
    sides = (b"=======\n", b"<<<<<<< example\n")
    assert list(left_markers(b"=======\n<<<<<<< example\nx\n<<<<<<< o\n>>>>>>>\n", sides)) == [
        (4, "<<<<<<< o"),
        (5, ">>>>>>>"),
    ]


def test_edits_fit_at_their_lines_alone() -> None:
    edits = (Edit(1, b"a\n", b""), Edit(3, b"", b"x\ny\n"))
    assert edited(b"a\nb\nc\n", edits) == b"b\nx\ny\nc\n"
    assert edited(b"z\nb\nc\n", edits) is None
    assert edited(b"", edits) is None
