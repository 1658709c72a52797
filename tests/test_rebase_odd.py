"""A rebase of what is odd: series that end empty, links, lines that no compiler takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from project_lab import vpatch
from rebase_lab import Move, kinds, words
from series_lab import Content, Step, numbered
from session_lab import Sessions, listing
from vpatch.patches.pin import PIN, Pin

NAME = "0001-say-five.patch"
A = numbered(40)
FIVE = numbered(40, changed={5: "five"})


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next release."""
    with listing(monkeypatch, "9.9.10"):
        yield


def test_a_series_of_which_upstream_has_all_ends_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, after = {"vllm/a.txt": A}, {"vllm/a.txt": b"zero\n" + FIVE}
    project = Sessions(tmp_path, after, [Step(NAME, {"vllm/a.txt": FIVE})], base)
    assert project.begin("--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [patch["verdict"] for patch in answer["patches"]] == ["absorbed"]
    assert "< -:" in answer["range_diff"]
    assert project.contents() == after
    _, series = project.check_next()
    assert series.patches == ()


@pytest.mark.parametrize(
    ("before", "patched", "after"),
    [
        (("120000", b"one"), ("120000", b"two"), b"one"),
        (b"one", b"two", ("120000", b"one")),
        (b"one", ("120000", b"one"), b"three"),
        (("120000", b"one"), b"one", ("120000", b"three")),
    ],
)
def test_a_link_and_a_file_do_not_merge(
    tmp_path: Path, before: Content, patched: Content, after: Content
) -> None:
    steps = [Step(NAME, {"vllm/a": patched})]
    rebased = Move(tmp_path, {"vllm/a": before}, steps, {"vllm/a": after}).go()
    reasons = [one.reason for one in rebased.patches[0].carried.conflicts]
    assert (words(rebased), reasons) == (["conflict"], ["mode"])


CALL = "def f():\n    return dict(\n        a=1,\n        b=2,\n        c=3,\n    )\n"
LOOP = "def f(x):\n    for _ in x:\n        a = 1\n        b = 2\n        c = 3\n    return x\n"


@pytest.mark.parametrize(
    ("before", "patch", "upstream"),
    [
        (CALL, ("a=1,", "a=1,\n        n=0,"), ("c=3,", "c=3,\n        n=5,")),
        (LOOP, ("c = 3", "break"), ("for _ in x:", "if x:")),
    ],
)
def test_what_parses_and_does_not_compile_is_asked(
    tmp_path: Path, before: str, patch: tuple[str, str], upstream: tuple[str, str]
) -> None:
    steps = [Step(NAME, {"vllm/a.py": before.replace(*patch).encode()})]
    after: dict[str, Content] = {"vllm/a.py": before.replace(*upstream).encode()}
    move = Move(tmp_path, {"vllm/a.py": before.encode()}, steps, after)
    rebased = move.go()
    assert rebased.exit_code == 1
    assert "does-not-parse" in kinds(rebased)
    with pytest.raises(SyntaxError):
        compile(move.contents["vllm/a.py"], "a.py", "exec")


BODY = "\n\n\ndef f(x):\n    a = 1\n    return a\n"
CHECKED = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import re\n"


@pytest.mark.parametrize(
    ("upstream", "line", "asked"),
    [
        (CHECKED, "a = re.escape(x)", ["name-gone"]),
        (CHECKED, "a: re.Pattern = x", []),
        (f"{CHECKED}else:\n    re = None\n", "a = re.escape(x)", []),
        ("import re\n\nimport typing\n", "a = re.escape(x)", []),
    ],
)
def test_an_import_that_is_for_type_checkers_alone_now(
    tmp_path: Path, upstream: str, line: str, asked: list[str]
) -> None:
    before = f"import os\nimport re\n{BODY}".encode()
    steps = [Step(NAME, {"vllm/a.py": before.replace(b"a = 1", line.encode())})]
    after: dict[str, Content] = {"vllm/a.py": f"import os\n{upstream}{BODY}".encode()}
    rebased = Move(tmp_path, {"vllm/a.py": before}, steps, after).go()
    assert kinds(rebased) == asked
    assert rebased.exit_code == len(asked)


LATIN, QUOTED = "vllm/caf\udce9.txt", 'vllm/a"\udcff'


def test_paths_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are pinned, carried, asked about, named and written."""
    base: dict[str, Content] = {"vllm/a.py": A, LATIN: A, QUOTED: A}
    five: dict[str, Content] = {LATIN: FIVE, QUOTED: FIVE}
    steps = [
        Step(NAME, five),
        Step("0002-say-thirty.patch", {LATIN: numbered(40, changed={5: "five", 30: "dirty"})}),
    ]
    after = {**base, LATIN: numbered(40, changed={5: "five", 30: "dreissig"}), QUOTED: FIVE}
    project = Sessions(tmp_path, after, steps, base)
    assert Pin.read(project.folder / PIN).blobs.keys() >= {LATIN, QUOTED}
    assert project.begin("--json", "--dry-run") == 3
    answer = json.loads(capsys.readouterr().out)
    assert [patch["verdict"] for patch in answer["patches"]] == ["absorbed", "conflict"]
    assert project.begin() == 3
    assert "caf" in capsys.readouterr().out
    both = numbered(40, changed={5: "five", 30: "dirty"})
    (tmp_path / "vllm-v9.9.10-rebase" / LATIN).write_bytes(both)
    assert project.run("--continue", "--store") == 0
    assert project.contents()[LATIN] == both
    pin, _ = project.check_next()
    assert pin.origin is not None
    assert [left.patch for left in pin.origin.left] == [NAME]
    assert vpatch("lint", "--repo", str(project.repo)) == 0
    shutil.rmtree(project.next)
    assert project.begin("--markdown") == 0
