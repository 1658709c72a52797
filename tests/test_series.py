"""Series folders: what is read, what is refused, what lint finds and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from series_lab import TAG, TRAILERS, Lab, Step, numbered, write_series
from vpatch.errors import HostError, UsageError
from vpatch.findings import FindingsError
from vpatch.patches.series import Series, lint

STEPS = [
    Step("0001-one.patch", {"vllm/a.py": numbered(9, changed={5: "five"})}),
    Step("0002-two.patch", {"vllm/b.py": b"b\n"}),
    Step("0003-three.patch", {"tests/test_a.py": b"t\n"}),
]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, {"vllm/a.py": numbered(9)})


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    lab.series(tmp_path / TAG, STEPS)
    return tmp_path / TAG


def found(folder: Path) -> list[tuple[str, int | None, str]]:
    return [
        (str(Path(finding.file).relative_to(folder)), finding.line, finding.code)
        for finding in lint(folder)
    ]


def test_a_good_series_is_read_in_order(folder: Path) -> None:
    series = Series.read(folder)
    assert series.tag == TAG
    assert [patch.file for patch in series.patches] == [step.file for step in STEPS]
    assert series.topics == ("eagle3-interface",)
    assert series.paths == ("tests/test_a.py", "vllm/a.py", "vllm/b.py")
    assert lint(folder) == ()


def test_comments_and_empty_lines_are_quilts(folder: Path) -> None:
    (folder / "series").write_text(
        "# first\n\n0001-one.patch  # why\n0002-two.patch\n\n0003-three.patch\n"
    )
    assert len(Series.read(folder).patches) == 3
    assert lint(folder) == ()
    (folder / "series").write_bytes(b"0001-one.patch\r\n0002-two.patch\n  \n 0003-three.patch")
    assert len(Series.read(folder).patches) == 3
    assert found(folder) == [
        ("series", 1, "series-blank"),
        ("series", 3, "series-blank"),
        ("series", 4, "series-blank"),
        ("series", 4, "series-end"),
    ]


def test_numbers_count_the_patches(lab: Lab, tmp_path: Path) -> None:
    steps = [Step(f"000{n}-{n}.patch", {f"f{n}": b"x\n"}, subject=str(n)) for n in (1, 3, 4)]
    lab.series(tmp_path / TAG, steps)
    assert found(tmp_path / TAG) == [("series", 2, "number")]
    assert "whose number is 0002" in lint(tmp_path / TAG)[0].message


def test_a_name_too_long_for_a_listing(lab: Lab, tmp_path: Path) -> None:
    lab.series(tmp_path / TAG, [Step(f"0001-{'a' * 90}.patch", {"f": b"x\n"}, subject="a")])
    assert found(tmp_path / TAG) == [("series", 1, "long-name")]


@pytest.mark.parametrize("name", ["0001-one.patch.rej", "a.orig", "0004-x.diff", "b~", "x.mbox"])
def test_leftovers_are_no_part_of_a_series(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    assert found(folder) == [(name, None, "stray-file")]
    (folder / name).rename(folder / "README")
    assert found(folder) == []


def test_the_hash_covers_names_bytes_and_order_only(folder: Path) -> None:
    before = Series.read(folder).sha256
    text = (folder / "series").read_text()
    (folder / "series").write_text(f"# a comment\n{text}")
    assert Series.read(folder).sha256 == before
    (folder / "0003-three.patch").rename(folder / "0003-four.patch")
    (folder / "series").write_text(text.replace("three", "four"))
    renamed = Series.read(folder).sha256
    assert renamed != before
    raw = (folder / "0001-one.patch").read_bytes()
    (folder / "0001-one.patch").write_bytes(raw.replace(b"five", b"FIVE"))
    assert len({before, renamed, Series.read(folder).sha256}) == 3


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_bytes()
        assert old.encode() in text
        (folder / name).write_bytes(text.replace(old.encode(), new.encode(), 1))

    return change


LISTING = [
    ("0002-two.patch\n", "", ("0002-two.patch", None, "not-listed")),
    ("0002-two.patch", "0001-one.patch", ("series", 2, "listed-twice")),
    ("0003-three.patch\n", "0003-three.patch\n0004-x.patch\n", ("series", 4, "no-such-file")),
    ("0002-two.patch", "0002-two.patch -p0", ("series", 2, "bad-name")),
    ("0002-two.patch", "../0002-two.patch", ("series", 2, "bad-name")),
    ("0002-two.patch", "-0002-two.patch", ("series", 2, "bad-name")),
    ("0001-one.patch\n0002-two.patch", "0002-two.patch\n0001-one.patch", ("series", 2, "order")),
]


@pytest.mark.parametrize(("old", "new", "finding"), LISTING)
def test_the_list_and_the_folder_must_agree(
    folder: Path, old: str, new: str, finding: tuple[str, int | None, str]
) -> None:
    edit("series", old, new)(folder)
    assert finding in found(folder)
    if finding[2] != "order":
        with pytest.raises(FindingsError) as caught:
            Series.read(folder)
        assert caught.value.exit_code == 1
        assert finding[2] in {one.code for one in caught.value.findings}


ONE = "0001-one.patch"
PATCHES = [
    ("Topic: eagle3-interface\n", "", "trailer-topic", 11),
    ("Topic: eagle3-interface", "Topic: EAGLE 3", "trailer-topic", 8),
    ("Topic: eagle3-interface", "topic: eagle3-interface", "trailer-topic", 8),
    ("Topic: eagle3-interface", "Topic: a\nTopic: b", "trailer-topic", 8),
    ("Upstream-Status: Pending\n", "", "trailer-upstream-status", 11),
    ("Status: Pending", "Status: Merged", "trailer-upstream-status", 9),
    ("Status: Pending", "Status: Submitted", "trailer-upstream-status", 9),
    ("Status: Pending", "Status: Submitted [soon]", "trailer-upstream-status", 9),
    ("Status: Pending", "Status: Denied [ ]", "trailer-upstream-status", 9),
    ("Status: Pending", "Status: Backport [ ]", "trailer-upstream-status", 9),
    ("Signed-off-by: A Tester <tester@example.com>\n", "", "trailer-signed-off-by", 11),
    ("<tester@example.com>\n\n", "<me>\n\n", "trailer-signed-off-by", 10),
    ("A Tester <tester@example.com>\n\n", "B <b@example.com>\n\n", "trailer-signed-off-by", 10),
    ("Topic:", "Forwarded: maybe\nTopic:", "trailer-forwarded", 8),
    ("[PATCH] one", "[PATCH] [x] one", "lost-prefix", 6),
    ("[PATCH] one", "[PATCH 1/3] re: one", "lost-prefix", 6),
    ("[PATCH] one", "[PATCH]", "no-subject", 6),
    ("Because the", "Because\r\nthe", "crlf", 6),
    ("+five", "+five\r", "crlf", 21),
]


@pytest.mark.parametrize(("old", "new", "code", "line"), PATCHES)
def test_the_form_of_a_patch(folder: Path, old: str, new: str, code: str, line: int) -> None:
    edit(ONE, old, new)(folder)
    assert (ONE, line, code) in found(folder)


@pytest.mark.parametrize(
    "trailers",
    [
        TRAILERS.replace("Pending", "Pending [waiting for a reviewer]"),
        TRAILERS.replace("Pending", "Submitted [https://example.com/pull/1]"),
        TRAILERS.replace("Pending", "Backport [v0.18.0,\n abcdef]"),
        TRAILERS.replace("Pending", "Denied [https://example.com/pull/1]"),
        TRAILERS.replace("Pending", "Inappropriate [only for old releases]"),
        f"Forwarded: https://example.com/pull/1\n{TRAILERS}",
        f"Forwarded: not-needed\n{TRAILERS}Signed-off-by: B <b@example.com>\n",
    ],
)
def test_good_trailers(lab: Lab, tmp_path: Path, trailers: str) -> None:
    lab.series(tmp_path / TAG, [Step("0001-x.patch", {"x": b"x\n"}, trailers=trailers)])
    assert lint(tmp_path / TAG) == ()


def test_a_trailer_that_is_lost_behind_a_cut_is_missed(folder: Path) -> None:
    # git am ends the message at a line of three dashes.
    edit(ONE, "Topic:", "---\nTopic:")(folder)
    codes = {code for _, _, code in found(folder)}
    assert codes >= {"trailer-topic", "trailer-upstream-status", "trailer-signed-off-by"}


def test_equal_subjects(lab: Lab, tmp_path: Path) -> None:
    steps = [
        Step("0001-a.patch", {"a": b"a\n"}, subject="Same"),
        Step("0002-b.patch", {"b": b"b\n"}, subject="Same"),
    ]
    lab.series(tmp_path / TAG, steps)
    assert found(tmp_path / TAG) == [("0002-b.patch", 6, "same-subject")]
    assert "0001-a.patch" in lint(tmp_path / TAG)[0].message


def test_diffs_that_not_all_tools_take(lab: Lab, tmp_path: Path) -> None:
    steps = [
        Step("0001-binary.patch", {"a.bin": bytes(range(256))}),
        Step("0002-both.patch", {"vllm/a.py": b"a\n", "tests/a.py": b"a\n"}),
    ]
    raws = {step.file: raw for step, raw in lab.patches(steps)}
    write_series(tmp_path / TAG, raws)
    assert [code for _, _, code in found(tmp_path / TAG)] == ["binary", "tests-apart"]


def test_short_blob_ids(folder: Path) -> None:
    raw = (folder / ONE).read_bytes()
    (line,) = (line for line in raw.split(b"\n") if line.startswith(b"index "))
    ids = line.removeprefix(b"index ").split(b" ")[0].split(b"..")
    (folder / ONE).write_bytes(raw.replace(ids[0], ids[0][:10]))
    assert found(folder) == [(ONE, 12, "short-id")]


def test_every_finding_is_told_at_once(folder: Path) -> None:
    edit(ONE, "Topic: eagle3-interface\n", "")(folder)
    edit("0002-two.patch", "From 0", "Fron 0")(folder)
    edit("series", "0003-three.patch\n", "")(folder)
    assert [code for _, _, code in found(folder)] == ["not-listed", "not-a-mail", "trailer-topic"]
    (text, *_) = (str(finding) for finding in lint(folder) if finding.code == "trailer-topic")
    assert text.startswith(f"{folder}/{ONE}:11: the message has no `Topic:` trailer")
    assert text.endswith("[trailer-topic]")


def test_a_folder_without_a_list(tmp_path: Path) -> None:
    (tmp_path / TAG).mkdir()
    for reader in (Series.read, lint):
        with pytest.raises(FindingsError, match="there is no series file"):
            reader(tmp_path / TAG)


def test_an_empty_series_is_a_series(tmp_path: Path) -> None:
    write_series(tmp_path / TAG, {})
    assert Series.read(tmp_path / TAG).patches == ()


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / ONE).rename(tmp_path / ONE)
    (folder / ONE).symlink_to(tmp_path / ONE)
    assert (ONE, None, "link") in found(folder)


def test_a_folder_in_place_of_a_patch(folder: Path) -> None:
    (folder / ONE).unlink()
    (folder / ONE).mkdir()
    with pytest.raises(HostError, match="cannot be read"):
        Series.read(folder)


def test_a_folder_that_is_no_tag_needs_one(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "draft")
    assert Series.read(tmp_path / "draft", TAG).tag == TAG
    with pytest.raises(UsageError):
        Series.read(tmp_path / "draft")
