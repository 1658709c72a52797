"""What a rebase in session says: every next step is one that works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from indexserver import IndexServer, running
from project_lab import BASE
from rebase_lab import NEXT
from series_lab import Content, Step
from session_lab import AFTER, FIFTH, TEN, Sessions, closed_index, write


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


def test_a_series_written_elsewhere_is_compared_not_linted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Sessions(tmp_path)
    made = project.repo / "made"
    project.begin("--out", str(project.repo / "patches/../made"), "--keep", FIFTH)
    project.settle()
    told = capsys.readouterr().out
    assert f"\n{made}: " in told
    assert f"-> Take it: cp -r {made} {project.next}; vpatch lint {NEXT}" in told
    assert "vpatch check" not in told
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
