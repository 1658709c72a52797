"""docs/conflicts.md's moves of the project's own series: ci/moves.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import moves  # noqa: E402

# Half a minute each; one of them for every change.
QUICK = "v0.32.0 -> v0.33.0"


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == QUICK else pytest.mark.nightly)
        for name in moves.moves()
    ],
)
def test_the_page_is_true(name: str) -> None:
    text = moves.PAGE.read_text()
    assert moves.page([name]) == text, "run python ci/moves.py"


def test_each_move_has_a_table_and_each_table_a_move() -> None:
    there = re.findall(r"<!-- table: move (.+?) -->", moves.PAGE.read_text())
    assert sorted(there) == sorted(moves.moves())


def test_a_reason_for_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_rebased", lambda *_, **__: ANSWER)
    leg = moves.Leg("v0.32.0", "v0.33.0")
    told = moves.shown(moves.Move("a", (leg,), patches={"0001": "left"}))
    assert "| 0001 a \\| b | absorbed | all; x.py:3: &lt;b> | left |" in told
    assert "v0.32.0 -> v0.33.0: 2 patches: 1 clean, 1 absorbed." in told
    with pytest.raises(SystemExit, match="knows no patch 0009"):
        moves.shown(moves.Move("a", (leg,), patches={"0009": "left"}))


@pytest.mark.parametrize(
    ("ends", "topic", "told"),
    [
        (("v0.16.0", "v0.33.0"), "collection", ", which v0.16.0 does not have yet."),
        (("v0.33.0", "v0.34.0"), "collection", ", which v0.34.0 does not have yet."),
        (("v0.26.0", "v0.33.0"), "collection", ", which v0.33.0's series has of its own."),
        (("v0.26.0", "v0.33.0"), "no-topic", None),
    ],
)
def test_a_topic_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[str, str], topic: str, told: str | None
) -> None:
    monkeypatch.setattr(moves, "_rebased", lambda *_, **__: ANSWER)
    monkeypatch.setattr(moves, "_leave_out", lambda *_: None)
    move = moves.Move("a", (moves.Leg(*ends),), without=topic)
    if told is None:
        with pytest.raises(SystemExit, match=r"no patch of .* has the topic no-topic"):
            moves.shown(move)
    else:
        assert moves.shown(move).startswith(f"Without the topic {topic}{told}\n")


def test_each_differing_file_needs_a_reason_and_each_reason_a_file() -> None:
    rows = {"vllm/a.py": "1 / 2", "vllm/b.py": "3 / 0"}
    assert list(moves.explained("a", {"vllm/?.py": "both"}, dict(rows))) == [
        "| `vllm/a.py`, `vllm/b.py` | 1 / 2, 3 / 0 | both |"
    ]
    with pytest.raises(SystemExit, match=r"why these differ: vllm/b\.py"):
        list(moves.explained("a", {"vllm/a.py": "one"}, dict(rows)))
    with pytest.raises(SystemExit, match="nothing differs in tests/"):
        list(moves.explained("a", {"vllm/*": "all", "tests/*": "none"}, dict(rows)))


ANSWER = {
    "from": "v0.32.0",
    "to": "v0.33.0",
    "counts": {"clean": 1, "absorbed": 1},
    "patches": [
        {
            "file": "0001-a.patch",
            "subject": "a | b",
            "verdict": "absorbed",
            "why": "all",
            "evidence": [{"file": "x.py", "line": 3, "text": "<b>"}],
            "conflicts": [],
            "upstream_changes": [],
        },
        {
            "file": "0002-b.patch",
            "subject": "b",
            "verdict": "clean",
            "why": "",
            "evidence": [],
            "conflicts": [],
            "upstream_changes": [],
        },
    ],
}
