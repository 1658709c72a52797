"""What a rebase in session says: every next step is one that works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexserver import IndexServer, running
from project_lab import BASE, vpatch
from rebase_lab import NEXT
from series_lab import TAG, Content, Step, numbered
from session_lab import AFTER, FIFTH, TEN, Sessions, closed_index, said, write


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next release."""
    with running(IndexServer()) as server:
        server.files[f"vllm-{NEXT[1:]}-cp38-abi3-linux_x86_64.whl"] = b"wheel"
        closed_index(monkeypatch, server.url)
        yield


def test_a_series_in_the_way_is_told_before_anybody_resolves_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    assert project.begin() == 3
    assert "holds a series already" not in capsys.readouterr().out
    assert project.run("--abort") == 0
    assert f"{project.work} is gone" in capsys.readouterr().out
    project.next.mkdir()
    (project.next / "series").write_text("")
    for options, told in (((), True), (("--replace",), False), (("--out", "else"), False)):
        assert project.begin(*options) == 3
        assert (f"{project.next} holds a series already" in capsys.readouterr().out) == told
        assert project.run("--abort") == 0
        capsys.readouterr()


def test_an_empty_folder_is_empty_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Sessions(tmp_path)
    project.work.mkdir()
    project.begin()
    assert project.run("--abort") == 0
    assert f"{project.work} is empty, as it was" in capsys.readouterr().out
    assert list(project.work.iterdir()) == []


def test_a_series_written_elsewhere_is_looked_at_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    made = project.repo / "made"
    project.begin("--out", str(project.repo / "patches/../made"), "--keep", FIFTH)
    project.settle()
    told = capsys.readouterr().out
    assert f"\n{made}: " in told
    look = f"vpatch lint --series {made}; vpatch check --series {made}"
    assert f"-> {look}. Take it: cp -r {made} {project.next}; vpatch lint {NEXT}" in told
    assert vpatch("lint", "--series", str(made)) == 0
    assert capsys.readouterr().out == f"{made}: nothing found\n"
    project.next.mkdir()
    (project.next / "series").write_text("")
    project.begin("--out", str(made), "--replace")
    project.settle()
    assert f"{made}: as it was" in capsys.readouterr().out
    (made / "series").unlink()
    project.begin("--out", str(made), "--replace")
    project.settle()
    assert f"-> Compare: git diff --no-index {project.next} {made}" in capsys.readouterr().out


def test_a_question_at_the_end_does_not_send_anybody_into_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(*places: int) -> bytes:
        body = [f"    step({number})" for number in range(9)]
        for place in sorted(places, reverse=True):
            body.insert(place, "    flush(items)")
        return ("def f(items):\n" + "\n".join(body) + "\n").encode()

    # 0001 conflicts; 0002 merges by itself, and flushes a second time.
    base: dict[str, Content] = {**BASE, "vllm/c.py": code()}
    steps = [
        Step("0001-b-say-ten.patch", {"vllm/b.py": TEN}),
        Step("0002-say-more.patch", {"vllm/c.py": code(7)}),
    ]
    after = {**base, "vllm/b.py": AFTER["vllm/b.py"], "vllm/c.py": code(1)}
    project = Sessions(tmp_path, after, steps, base)
    assert project.begin() == 3
    write(project.work, {"vllm/b.py": TEN})
    capsys.readouterr()
    assert project.run("--continue") == 1
    told = capsys.readouterr().out
    assert f"Mend it in {project.work}" not in told
    assert "--accept 0002:already-nearby:vllm/c.py" in told
    assert f"vpatch edit {NEXT}" in told
    assert project.run("--status") == 0
    told = capsys.readouterr().out
    assert "ready" not in told
    assert f"no conflict is left: vpatch rebase --continue {NEXT} ends it, or asks" in told


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (("--continue",), "Say which: vpatch rebase --continue TO"),
        (("--abort",), "Say which: vpatch rebase --abort TO"),
        (("--skip", "0003"), "Say which: vpatch rebase --skip 0003 TO"),
    ],
)
def test_which_of_two_sessions_is_asked_for_what_was_wanted(
    given: tuple[str, ...], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    project.tree_of("v9.9.11", AFTER)
    assert [project.begin(), project.run(TAG, "v9.9.11")] == [3, 3]
    capsys.readouterr()
    assert project.run(*given, "--json") == 2
    error = said(capsys)["error"]
    assert (error["code"], error["hint"]) == ("which-session", hint)


def test_one_patch_is_one_patch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Step("0001-b-say-ten.patch", {"vllm/b.py": numbered(40, changed={10: "ten"})})]
    project = Sessions(tmp_path, BASE, steps)
    assert project.begin("--dry-run") == 0
    out, err = capsys.readouterr()
    assert f"carrying 1 patch from {TAG} to {NEXT}\n" in err
    assert f"{TAG} -> {NEXT}: 1 patch: 1 clean" in out
    assert "1 patches" not in out + err


def test_line_ends_that_an_editor_changed_are_told_before_anything_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    assert project.begin() == 3
    write(project.work, {"vllm/b.py": TEN.replace(b"\n", b"\r\n")})
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    answer = said(capsys)
    (finding,) = answer["findings"]
    assert (finding["code"], finding["line"]) == ("crlf", 1)
    assert finding["file"] == str(project.work / "vllm/b.py")
    assert "ends in CR LF" in finding["message"]
    write(project.work, {"vllm/b.py": TEN})
    assert project.run("--continue") == 3


def test_a_release_with_cr_lf_takes_no_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [Step("0001-b-say-ten.patch", {"vllm/b.py": numbered(40, changed={10: "ten"})})]
    after = {**BASE, "vllm/b.py": numbered(40).replace(b"\n", b"\r\n")}
    project = Sessions(tmp_path, after, steps)
    assert project.begin() == 3
    write(project.work, {"vllm/b.py": numbered(40, changed={10: "ten"}).replace(b"\n", b"\r\n")})
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    (finding,) = said(capsys)["findings"]
    assert finding["code"] == "crlf"
    assert finding["mend"] == "Leave the patch out: vpatch rebase --skip 0001-b-say-ten.patch"
    assert project.run("--skip", "1", "--discard") == 0
    assert project.contents()["vllm/b.py"] == after["vllm/b.py"]
