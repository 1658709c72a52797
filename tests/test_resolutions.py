"""Stored resolutions: kept as text, used where the key fits exactly, refused where broken."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexserver import IndexServer, running
from project_lab import BASE, STEPS, git, vpatch
from rebase_lab import NEXT
from series_lab import Content, Step, numbered
from session_lab import AFTER, ONE, TEN, THIRD, Sessions, closed_index, said, write
from vpatch.findings import FindingsError
from vpatch.patches.swap import read_folder
from vpatch.rebase.markers import Clash, left_markers, put_together, settled, taken_apart
from vpatch.rebase.resolution import ByLines, Edit, Resolution, Settled, Whole, edited, sha256
from vpatch.rebase.resolution_text import as_text, read_text
from vpatch.rebase.resolutions import Resolutions

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
    lambda path, base, ours, theirs, mode, edits: Whole(
        path,
        base,
        ours,
        theirs,
        mode,
        tuple(sorted(edits, key=lambda e: e.line)),
    ),
    PATHS,
    SIDES,
    SIDES,
    SIDES,
    st.sampled_from(["", "100644", "100755"]),
    EDITS,
)
HEADS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=9)
RESOLUTIONS = st.builds(
    lambda subject, topic, patch_id, files: Resolution(
        subject, topic, patch_id, "v1", "v2", tuple(files)
    ),
    HEADS,
    HEADS,
    HEADS,
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


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next release."""
    with running(IndexServer()) as server:
        server.files["vllm-9.9.10-cp38-abi3-linux_x86_64.whl"] = b"wheel"
        closed_index(monkeypatch, server.url)
        yield


@pytest.fixture
def project(tmp_path: Path, index: None) -> Sessions:
    return Sessions(tmp_path)


def stored(project: Sessions, b: bytes = TEN, c: bytes = ONE) -> list[Path]:
    """Resolves both conflicts, and keeps how."""
    assert project.begin() == 3
    write(project.work, {"vllm/b.py": b})
    assert project.run("--continue", "--store") == 3
    write(project.work, {"vllm/c.py": c})
    assert project.run("--continue", "--store") == 0
    found = sorted((project.repo / "patches/resolutions").iterdir())
    assert [path.name.rpartition("-")[0] for path in found] == ["b-say-ten", "c-say-one"]
    return found


def test_what_is_stored_makes_one_command_of_it(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b, _ = stored(project)
    by_hand = read_folder(project.next)
    assert b.read_bytes().split(b"\n")[5:] == [
        b'file "vllm/b.py"',
        b"clash",
        f"ours {sha256(b'dix' + bytes([10]))}".encode(),
        b"|dix",
        f"base {sha256(b'line 10' + bytes([10]))}".encode(),
        b"|line 10",
        f"theirs {sha256(b'ten' + bytes([10]))}".encode(),
        b"|ten",
        b"resolved",
        b"|dix is ten",
        b"end",
        b"",
    ]
    assert vpatch("lint", "--repo", str(project.repo)) == 0
    capsys.readouterr()
    again = tmp_path / "again" / NEXT
    assert project.begin("--json", "--out", str(again)) == 0
    answer = said(capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "resolved": 2}
    place = f"patches/resolutions/{b.name}"
    patch = answer["patches"][2]
    assert patch["evidence"] == [{"file": place, "line": 6, "text": "vllm/b.py"}]
    used = answer["resolutions"]["used"][0]
    assert (used["file"], used["patch"]) == (place, THIRD)
    # What was asked, on all three sides, and what was answered.
    assert used["diff"].split("\n") == [
        "--- a/vllm/b.py",
        "+++ b/vllm/b.py",
        "@@ -7,13 +7,7 @@",
        " line 7",
        " line 8",
        " line 9",
        f"-<<<<<<< {NEXT}",
        "-dix",
        f"-||||||| before {THIRD}",
        "-line 10",
        "-=======",
        "-ten",
        f"->>>>>>> {THIRD}",
        "+dix is ten",
        " line 11",
        " line 12",
        " line 13",
    ]
    assert answer["resolutions"]["unused"] == []
    assert {name: entry[2] for name, entry in read_folder(again).items()} == {
        name: entry[2] for name, entry in by_hand.items()
    }
    assert not project.work.exists()
    assert project.begin("--dry-run", "--markdown") == 0
    assert f"#### Resolutions\n\n    {THIRD}: resolved as {place} says:" in capsys.readouterr().out
    assert project.begin("--dry-run", "--no-resolutions") == 3


def next_is(project: Sessions, changes: Mapping[str, Content]) -> None:
    shutil.rmtree(project.next, ignore_errors=True)
    project.tree_of(NEXT, {**AFTER, **changes})


def dry(project: Sessions, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    project.begin("--dry-run", "--json")
    return said(capsys)


def test_it_fits_where_the_same_lines_clash_and_nowhere_else(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    b, _ = stored(project)
    next_is(project, {"vllm/b.py": b"zero\n" + numbered(40, changed={10: "dix", 30: "30"})})
    answer = dry(project, capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "resolved": 2}
    next_is(project, {"vllm/b.py": numbered(40, changed={10: "DIX"})})
    answer = dry(project, capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "resolved": 1, "conflict": 1}
    (unused,) = answer["resolutions"]["unused"]
    assert unused == {
        "file": f"patches/resolutions/{b.name}",
        "why": f"{THIRD} has other conflicts",
    }


def test_another_patch_has_another_key(
    tmp_path: Path, index: None, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    kept = [path.read_bytes() for path in stored(project)]
    more = {"vllm/b.py": numbered(40, changed={10: "ten", 20: "twenty"})}
    steps = [Step(step.file, more) if step.file == THIRD else step for step in STEPS]
    other = tmp_path / "other"
    other.mkdir()
    shutil.rmtree(project.cache)
    project = Sessions(other, steps=steps)
    folder = project.repo / "patches/resolutions"
    folder.mkdir()
    for data in kept:
        (folder / read_text("", data).name).write_bytes(data)
    answer = dry(project, capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "resolved": 1, "conflict": 1}
    assert [one["why"] for one in answer["resolutions"]["unused"]] == [
        f"{THIRD} is another patch by now"
    ]


def marker_in_it(text: bytes) -> bytes:
    return text.replace(b"|dix is ten\n", b"|dix\n|=======\n|ten\n")


def other_side(text: bytes) -> bytes:
    return text.replace(b"|dix\n", b"|DIX\n")


def truncated(text: bytes) -> bytes:
    return text.removesuffix(b"end\n")


def conflicted(text: bytes) -> bytes:
    return b"<<<<<<< HEAD\n" + text


@pytest.mark.parametrize("do", [marker_in_it, other_side, truncated, conflicted])
def test_a_broken_one_is_found_and_not_used(
    do: Callable[[bytes], bytes], project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    b, _ = stored(project)
    b.write_bytes(do(b.read_bytes()))
    capsys.readouterr()
    assert vpatch("lint", "--repo", str(project.repo)) == 1
    assert b.name in capsys.readouterr().out
    answer = dry(project, capsys)
    assert answer["counts"]["conflict"] == 1
    (broken,) = answer["resolutions"]["broken"]
    assert (broken["code"], broken["file"]) == ("bad-resolution", str(b))


def test_one_under_another_name_or_beside_them_is_found(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    b, c = stored(project)
    b.rename(b.with_name("mine.resolution"))
    c.with_name("notes.txt").write_text("mine\n")
    known = Resolutions.read(project.repo)
    assert list(known.stored) == [c.name]
    assert len(known.findings) == 2


def function(value: str, name: str = "one") -> bytes:
    return f"def {name}():\n    return {value}\n".encode()


def test_what_does_not_parse_is_not_used(
    tmp_path: Path, index: None, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [Step("0001-say-two.patch", {"vllm/c.py": function("2")})]
    base = {**BASE, "vllm/c.py": function("1")}
    project = Sessions(tmp_path, {**BASE, "vllm/c.py": function("3")}, steps, base)
    assert project.begin() == 3
    write(project.work, {"vllm/c.py": function("2 +")})
    capsys.readouterr()
    assert project.run("--continue", "--json", "--store") == 1
    name = said(capsys)["questions"][0]["name"]
    assert project.run("--continue", "--json", "--store", "--accept", name) == 1
    assert said(capsys)["error"]["code"] == "bad-resolution"
    write(project.work, {"vllm/c.py": function("2 + 3")})
    assert project.run("--continue", "--store") == 0
    (path,) = (project.repo / "patches/resolutions").iterdir()
    path.write_bytes(path.read_bytes().replace(b"2 + 3", b"2 +"))
    answer = dry(project, capsys)
    assert answer["counts"] == {"conflict": 1}
    assert "is not used: vllm/c.py:2: the merged file does not parse" in answer["patches"][0]["why"]


def test_edits_elsewhere_make_the_whole_file_the_key(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    also = TEN.replace(b"line 30\n", b"thirty\n")
    b, _ = stored(project, b=also)
    assert b"whole\n" in b.read_bytes()
    assert b"-line 30\n+thirty\n" in b.read_bytes()
    shutil.rmtree(project.next)
    (used, _) = dry(project, capsys)["resolutions"]["used"]
    for line in ("-dix", "-line 10", "-ten", "-line 30", "+thirty"):
        assert line in used["diff"].split("\n")
    assert project.begin() == 0
    assert project.contents()["vllm/b.py"] == also
    next_is(project, {"vllm/b.py": numbered(40, changed={10: "dix", 40: "40"})})
    assert dry(project, capsys)["counts"]["conflict"] == 1


def test_a_file_that_goes_and_one_more_that_comes_are_stored_too(
    tmp_path: Path, index: None, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {path: data for path, data in AFTER.items() if path != "vllm/c.py"}
    steps = [
        Step(
            "0001-c-say-one.patch",
            {"vllm/c.py": numbered(40, changed={1: "1"}), "vllm/d.py": b"d\n"},
        )
    ]
    project = Sessions(tmp_path, after, steps)
    assert project.begin() == 3
    git(project.work, "rm", "--quiet", "vllm/c.py")
    write(project.work, {"vllm/e.py": b"no_end"})
    git(project.work, "add", "vllm/e.py")
    assert project.run("--continue", "--store") == 0
    by_hand = project.contents()
    assert "vllm/c.py" not in by_hand
    assert (by_hand["vllm/d.py"], by_hand["vllm/e.py"]) == (b"d\n", b"no_end")
    shutil.rmtree(project.next)
    assert project.begin() == 0
    assert project.contents() == by_hand
    answer = dry(project, capsys)
    assert answer["counts"] == {"resolved": 1}
    shown = answer["resolutions"]["used"][0]["diff"].split("\n")
    first = "vllm/c.py: the file is not there any more. What the patch does there, and the answer:"
    assert shown[0] == first
    assert shown[1:3] == ["--- a/vllm/c.py", "+++ b/vllm/c.py"]
    assert {"-line 1", "+1"} < set(shown)
    assert shown[-1] == "vllm/e.py: edited too"


NO_END = b"one\ntwo\n%s"
LATIN = b"one\n\xe9 %s\nthree\n"
HEADING = b"Title\n=======\n\n%s\n\nEnd\n=======\n"


def test_markers_of_a_file_with_carriage_returns() -> None:
    clash = Clash(b"o\r\n", b"b\r\n", b"t\r\n", 2, 8)
    text = marked([b"x\r\n", clash, b"y\r\n"]).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert taken_apart(text) == (b"x\r\n", clash, b"y\r\n")


@pytest.mark.parametrize("shape", [NO_END, LATIN, HEADING])
def test_bytes_of_all_kinds_come_back_as_they_were(
    shape: bytes, tmp_path: Path, index: None
) -> None:
    base = {**BASE, "vllm/c.txt": shape % b"two"}
    steps = [Step("0001-say-more.patch", {"vllm/c.txt": shape % b"two, three"})]
    project = Sessions(tmp_path, {**base, "vllm/c.txt": shape % b"2"}, steps, base)
    assert project.begin() == 3
    assert b"<<<<<<< v9.9.10" in (project.work / "vllm/c.txt").read_bytes()
    write(project.work, {"vllm/c.txt": shape % b"2, 3"})
    assert project.run("--continue", "--store") == 0
    assert project.contents()["vllm/c.txt"] == shape % b"2, 3"
    (path,) = (project.repo / "patches/resolutions").iterdir()
    # Markers bring a newline: where a side has none, its lines are not all that it is known by.
    assert (b"\nwhole\n" if shape == NO_END else b"\nclash\n") in path.read_bytes()
    shutil.rmtree(project.next)
    assert project.begin() == 0
    assert project.contents()["vllm/c.txt"] == shape % b"2, 3"


ENDINGS = [
    (b"\n", b"\n", b"\n"),
    (b"", b"\n", b"\n"),
    (b"\n", b"", b"\n"),
    (b"\n", b"\n", b""),
    (b"", b"", b""),
]


@pytest.mark.parametrize("made", ENDINGS[:2])
@pytest.mark.parametrize("used", ENDINGS)
def test_a_clash_at_the_end_of_a_file_is_known_by_how_the_file_ends(
    made: tuple[bytes, bytes, bytes],
    used: tuple[bytes, bytes, bytes],
    tmp_path: Path,
    index: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Endings of the old release, the patch and the new release."""

    def project_of(folder: Path, ends: tuple[bytes, bytes, bytes]) -> Sessions:
        folder.mkdir()
        base, mine, after = (
            b"one\n" + text + end for text, end in zip((b"two", b"2", b"zwei"), ends, strict=True)
        )
        steps = [Step("0001-say-2.patch", {"vllm/c.txt": mine})]
        files = {**BASE, "vllm/c.txt": base}
        return Sessions(folder, {**files, "vllm/c.txt": after}, steps, files)

    project = project_of(tmp_path / "made", made)
    assert project.begin() == 3
    write(project.work, {"vllm/c.txt": b"one\nzwei, 2\n"})
    assert project.run("--continue", "--store") == 0
    folder = project.repo / "patches/resolutions"
    shutil.rmtree(project.cache)
    other = project_of(tmp_path / "used", used)
    shutil.copytree(folder, other.repo / "patches/resolutions")
    counts = dry(other, capsys)["counts"]
    assert counts == ({"resolved": 1} if made == used else {"conflict": 1})
