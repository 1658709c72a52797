"""vpatch import: mails and branches become patches, and the series stays whole."""

from __future__ import annotations

import base64
import json
import quopri
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kill_lab import contents
from project_lab import STEPS, Project, committed, git, objects, vpatch, write
from series_lab import TAG, Content, Lab, Step, numbered, plain_git
from vpatch.patches.series import Series, lint

MAIL = (
    "format-patch", "--stdout", "--full-index", "--binary", "--no-signature", "--no-stat",
    "--zero-commit",
)  # fmt: skip
TOPIC = ("--topic", "eagle3-interface")
SIGN = ("--sign-off", "A Tester <tester@example.com>")
A = "vllm/a.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    monkeypatch.chdir(made.repo)
    return made


@pytest.fixture
def work(project: Project) -> Path:
    """The series as commits, a branch `colleague` at its tip."""
    folder = project.worktree()
    git(folder, "checkout", "-q", "-b", "colleague")
    return folder


def mails(work: Path, since: str = f"vpatch/{TAG}", *options: str) -> bytes:
    return plain_git(*MAIL, *options, f"{since}..HEAD", folder=work)


def line(number: int, text: str, start: Mapping[int, str] | None = None) -> bytes:
    return numbered(60, changed={5: "five", 50: "fifty", **(start or {}), number: text})


def imported(project: Project, source: bytes | str, *options: str) -> int:
    if isinstance(source, bytes):
        (project.repo / "box").write_bytes(source)
        source = "box"
    return vpatch("import", TAG, source, *TOPIC, *options)


def error(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_a_mail_becomes_a_patch(
    project: Project, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = project.raws()
    committed(work, {A: line(30, "thirty")}, "a: say thirty\n\nBecause.\n")
    tree = git(work, "rev-parse", "HEAD^{tree}")
    assert imported(project, mails(work), *SIGN) == 0
    project.check()
    assert project.tree() == tree
    assert project.names[-1] == "0006-a-say-thirty.patch"
    assert project.raws().items() > before.items()
    patch = project.series.patches[-1]
    assert patch.body == (
        "Because.\n\nTopic: eagle3-interface\nUpstream-Status: Pending\n"
        "Signed-off-by: A Tester <tester@example.com>\n"
    )
    assert project.pin.revision == 2
    out = capsys.readouterr().out
    assert "clean" in out
    assert "mail 1 of box" in out
    assert "revision 1 -> 2" in out
