"""`vpatch check` asks a tree once: what is kept is its own, whole, and of these gates."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gates_lab import SMALL, write
from vpatch.errors import UsageError
from vpatch.gates import answers
from vpatch.gates.answers import checked_of
from vpatch.gates.check import Checked, check_tree
from vpatch.gates.engine import Runner
from vpatch.gates.tree import Tree, of_folder
from vpatch.git import Git


class Mirror:
    """A repository with trees of the small vLLM, and how often gates were asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.git = Git(folder / "mirror.git")
        self.git.git_dir.mkdir()
        self.git.run("init", "--quiet", "--bare")
        self.kept = folder / "cache"
        self.asked = 0
        monkeypatch.setattr(answers, "check_tree", self._ask)

    def _ask(self, tree: Tree, runner: Runner | None = None) -> Checked:
        self.asked += 1
        return check_tree(tree, runner=runner)

    def tree(self, **changes: str) -> str:
        """A tree of it; ``config_model="..."`` is put behind config/model.py."""
        with self.git.temporary_index() as index:
            for name, text in SMALL.items():
                more = changes.get(name.removesuffix(".py").replace("/", "_"), "")
                blob = index.line("hash-object", "-w", "--stdin", stdin=(text + more).encode())
                place = f"100644,{blob},vllm/{name}"
                index.run("update-index", "--add", "--cacheinfo", place)
            return index.line("write-tree")

    def check(self, tree: str, name: str = "small", runner: Runner | None = None) -> Checked:
        """What the gates say of a tree."""
        return checked_of(self.git, tree, name, self.kept, runner)

    def file(self) -> Path:
        """Where the only answer is kept."""
        (file,) = (self.kept / "gates").iterdir()
        return file


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """One."""
    return Mirror(tmp_path, monkeypatch)


def test_a_tree_is_asked_once_and_says_the_same(mirror: Mirror, tmp_path: Path) -> None:
    tree = mirror.tree()
    first = mirror.check(tree)
    again = mirror.check(tree)
    assert mirror.asked == 1
    assert again == first
    assert json.dumps(again.as_dict()) == json.dumps(first.as_dict())
    folder = check_tree(of_folder(write(tmp_path / "folder", {}), "small"))
    assert again.as_dict() == folder.as_dict()


def test_what_is_kept_has_no_name(mirror: Mirror) -> None:
    tree = mirror.tree()
    assert [mirror.check(tree, name).name for name in ("v1.0", "v1.0 unpatched")] == [
        "v1.0",
        "v1.0 unpatched",
    ]
    assert mirror.asked == 1


def test_a_runner_has_answers_of_its_own(mirror: Mirror) -> None:
    tree = mirror.tree()
    default, chosen = mirror.check(tree), mirror.check(tree, runner="v2")
    assert (default.runner, default.default, chosen.runner, chosen.default) == (
        "v1", True, "v2", False,
    )  # fmt: skip
    assert mirror.check(tree, runner="v2") == chosen
    assert mirror.check(tree) == default
    assert mirror.asked == 2


def test_another_content_is_another_tree(mirror: Mirror) -> None:
    first = mirror.check(mirror.tree())
    broken = mirror.check(mirror.tree(config_speculative="\nraise RuntimeError('no')\n"))
    assert mirror.asked == 2
    assert "parts" in {one.gate.name for one in broken.failed} - {
        one.gate.name for one in first.failed
    }


def sealed(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"fail"', b'"pass"', 1),
        lambda data: data.replace(b'"v1"', b'"v2"', 1),
        lambda data: data.partition(b"\n")[2],
        lambda _: sealed(b"[]"),
        lambda _: sealed(b"{}"),
        lambda _: sealed(b"[" * 100_000),
        lambda _: sealed(b'{"runner": "v1", "verdicts": []}'),
        lambda data: sealed(data.partition(b"\n")[2].replace(b'"target"', b'"tarjet"', 1)),
        lambda data: sealed(data.partition(b"\n")[2].replace(b'"note"', b'"nota"', 1)),
    ],
)  # fmt: skip
def test_a_damaged_answer_is_made_anew(mirror: Mirror, damage: object) -> None:
    tree = mirror.tree()
    first = mirror.check(tree)
    whole = mirror.file().read_bytes()
    assert callable(damage)
    changed = damage(whole)
    assert changed != whole
    mirror.file().write_bytes(changed)
    assert mirror.check(tree) == first
    assert mirror.asked == 2
    assert mirror.file().read_bytes() == whole


def test_other_gates_ask_again(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = mirror.tree()
    mirror.check(tree)
    monkeypatch.setattr(answers, "code_of_gates", lambda: "f" * 16)
    mirror.check(tree)
    assert mirror.asked == 2


def test_a_cache_that_cannot_be_written_costs_time_alone(mirror: Mirror) -> None:
    mirror.kept.write_text("a file")
    tree = mirror.tree()
    assert mirror.check(tree) == mirror.check(tree)
    assert mirror.asked == 2


def test_a_tree_without_vllm_is_never_an_answer(mirror: Mirror) -> None:
    empty = mirror.git.line("mktree", stdin=b"")
    for _ in range(2):
        with pytest.raises(UsageError, match="holds no vllm"):
            mirror.check(empty)
    assert not mirror.kept.exists()
