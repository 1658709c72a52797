"""`vpatch rebase`: what it writes, when it writes nothing, and what it says."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from indexserver import IndexServer, running
from project_lab import BASE, SHA, STEPS, Project, git, vpatch
from rebase_lab import NEXT
from series_lab import TAG, TRAILERS, Content, Step, numbered, plain_git
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.pinning import check_pin
from vpatch.patches.series import Series, lint
from vpatch.patches.swap import read_folder
from vpatch.upstream.importer import Provenance
from vpatch.upstream.mirror import ArchiveKind, Mirror

AFTER: Mapping[str, Content] = {
    **BASE,
    "vllm/a.py": b"zero\n" + numbered(60),
    "vllm/b.py": numbered(40, changed={10: "ten", 30: "thirty"}),
    "vllm/more.py": b"more\n",
}

# The series and the patched tree that come out, on every machine.
SEEN = ("1656cd4332e1", "8bfa015d41ca")


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[IndexServer]:
    """An index with two wheels of the next release."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    with running(IndexServer()) as server:
        for arch in ("x86_64", "aarch64"):
            server.files[f"vllm-9.9.10-cp38-abi3-linux_{arch}.whl"] = b"wheel " + arch.encode()
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        yield server


class Rebase(Project):
    """A pinned series on one release, and the next release in the mirror."""

    def __init__(self, folder: Path, after: Mapping[str, Content] = AFTER, **more: Any) -> None:
        super().__init__(folder, **more)
        package = {path: data for path, data in after.items() if path.startswith("vllm/")}
        for kind in self.kinds:
            self.import_next(kind, after if kind == "sdist" else package)
        self.next = self.repo / "patches" / NEXT

    def import_next(self, kind: ArchiveKind, files: Mapping[str, Content]) -> None:
        name = {"sdist": "vllm-9.9.10.tar.gz", "wheel": "vllm-9.9.10-cp38-abi3-linux_x86_64.whl"}
        tree = self.lab.tree(None, files)
        message = Provenance(NEXT, kind, name[kind], SHA, "fedcba9").message()
        commit = self.lab.commit_tree(tree, None, message)
        self.lab.git.run("update-ref", f"refs/vpatch/{kind}/{NEXT}", commit)

    def run(self, *args: str) -> int:
        return vpatch("rebase", TAG, NEXT, "--repo", str(self.repo), *args)

    def check_next(self) -> tuple[Pin, Series]:
        """The new series holds together, on every source."""
        assert lint(self.next) == ()
        pin, series = Pin.read(self.next / PIN), Series.read(self.next, NEXT)
        mirror = Mirror.open(self.cache)
        releases = [mirror.find(NEXT, kind) for kind in self.kinds]
        found = [release for release in releases if release is not None]
        assert check_pin(self.lab.git, pin=pin, series=series, releases=found) == ()
        assert set(pin.sources) == {release.kind for release in found}
        beside = {path.name for path in self.next.parent.iterdir()}
        assert beside == {TAG, NEXT}
        return pin, series


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    answer: dict[str, Any] = json.loads(out)
    assert answer["schema"] == "vpatch/rebase/1"
    return answer


def test_the_new_series_is_written_with_its_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    old = project.raws()
    before = read_folder(project.folder)
    assert project.run("--json") == 0
    answer = said(capsys)
    assert answer["counts"] == {"clean": 2, "offset": 2, "absorbed": 1}
    assert (answer["written"], answer["folder"]) == (True, str(project.next))
    rows = [line.split() for line in answer["range_diff"].splitlines() if line[:1] != " "]
    assert [row[2] for row in rows] == ["=", "=", "<", "=", "="]
    pin, series = project.check_next()
    assert [patch.file for patch in series.patches] == [
        "0001-a-say-five.patch",
        "0002-tests-five-is-said.patch",
        "0003-a-say-fifty.patch",
        "0004-c-say-one.patch",
    ]
    new = {patch.subject: patch.raw for patch in series.patches}
    assert [new[name] == old[name] for name in new] == [False, True, False, True]
    assert pin.tag == NEXT
    assert set(pin.wheels) == {"aarch64", "x86_64"}
    assert pin.origin is not None
    assert (pin.origin.tag, pin.origin.series_sha256) == (TAG, project.series.sha256)
    (left,) = pin.origin.left
    assert (left.patch, left.verdict) == ("0003-b-say-ten.patch", "absorbed")
    assert left.evidence == ("vllm/b.py:10: ten",)
    assert (series.sha256[:12], pin.sources["sdist"].patched_tree[:12]) == SEEN
    assert read_folder(project.folder) == before
    assert project.run("--json") == 0
    assert said(capsys)["written"] is False


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Rebase(tmp_path)
    assert project.run("--dry-run", "--json") == 0
    assert said(capsys)["written"] is False
    assert not project.next.exists()


def test_a_conflict_is_told_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Rebase(tmp_path, {**AFTER, "vllm/a.py": numbered(60, changed={5: "cinq"})})
    assert other.run("--json") == 3
    answer = said(capsys)
    assert (answer["ok"], answer["tree"], answer["error"]["code"]) == (False, None, "conflict")
    assert not other.next.exists()
    first = answer["patches"][0]
    assert first["verdict"] == "conflict"
    assert first["conflicts"] == [{"file": "vllm/a.py", "was": "vllm/a.py", "reason": "content"}]


def test_an_open_question_stops_it_and_its_name_lets_it_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = TRAILERS.replace("Pending", "Inappropriate [upstream has its own from v9.9.10 on]")
    steps = [
        *STEPS[:4],
        Step("0005-c-say-one.patch", {"vllm/c.py": numbered(40, changed={1: "1"})}, trailers=gone),
    ]
    project = Rebase(tmp_path, steps=steps)
    assert project.run("--json") == 1
    answer = said(capsys)
    (question,) = answer["questions"]
    assert answer["error"]["code"] == "question"
    assert answer["error"]["hint"].endswith("--accept 0005:obsolete")
    assert not project.next.exists()
    assert project.run("--accept", "0009-nothing.patch:obsolete") == 2
    assert "which nothing asks" in capsys.readouterr().err
    assert project.run("--json", "--accept", question["name"]) == 0
    pin, series = project.check_next()
    assert pin.origin is not None
    assert [each.verdict for each in pin.origin.left] == ["absorbed", "obsolete"]
    assert len(series.patches) == 3
    capsys.readouterr()
    assert project.run("--keep", "5", "--replace", "--json") == 0
    assert len(Series.read(project.next, NEXT).patches) == 4
    assert Pin.read(project.next / PIN).revision == 2


def test_another_series_is_not_overwritten_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    assert project.run() == 0
    patch = project.next / "0001-a-say-five.patch"
    patch.write_bytes(patch.read_bytes().replace(b"Because", b"Since"))
    (project.next / "notes.txt").write_text("mine\n")
    assert vpatch("pin", NEXT, "--repo", str(project.repo)) == 0
    before = read_folder(project.next)
    assert project.run() == 2
    assert "holds another series already" in capsys.readouterr().err
    assert read_folder(project.next) == before
    elsewhere = tmp_path / "elsewhere" / NEXT
    assert project.run("--out", str(elsewhere)) == 0
    assert lint(elsewhere) == ()
    assert read_folder(project.next) == before
    assert project.run("--replace") == 0
    assert (project.next / "notes.txt").read_text() == "mine\n"
    pin, _ = project.check_next()
    assert pin.revision == 3


def test_what_leaves_leaves_in_a_commit_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    repo = project.repo
    git(repo, "init", "--quiet")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "Start")
    (repo / "mine.txt").write_text("staged\n")
    git(repo, "add", "mine.txt")
    assert project.run("--commit", "--json") == 0
    assert len(said(capsys)["commits"]) == 3
    project.check_next()
    titles = git(repo, "log", "--reverse", "--format=%s").splitlines()
    assert titles[1:] == [
        f"patches: {NEXT} starts as a copy of {TAG}",
        f"patches: {NEXT} drops what it has no need of",
        f"patches: {NEXT}, carried from {TAG}",
    ]
    dropped = git(repo, "show", "--name-status", "--format=%b", "HEAD~1")
    assert f"D\tpatches/{NEXT}/0003-b-say-ten.patch" in dropped
    assert f"M\tpatches/{NEXT}/series" in dropped
    assert "vllm/b.py:10: ten" in dropped
    status = git(repo, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert status == ["A  mine.txt"]
    assert (
        plain_git("show", f"HEAD:patches/{NEXT}/pin.toml", folder=repo)
        == (project.next / PIN).read_bytes()
    )
    assert git(repo, "log", "-1", "--format=%an <%ae>") == "A Tester <tester@example.com>"


def test_commits_are_refused_where_they_would_mix_with_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    assert project.run("--commit") == 2
    assert "is in no git worktree" in capsys.readouterr().err
    git(project.repo, "init", "--quiet")
    git(project.repo, "commit", "--quiet", "--allow-empty", "-m", "Start")
    project.next.mkdir()
    (project.next / "series").write_text("")
    git(project.repo, "add", f"patches/{NEXT}")
    assert project.run("--commit", "--replace") == 1
    assert "are staged already" in capsys.readouterr().err
    assert project.run("--commit", "--dry-run") == 2
    shutil.rmtree(project.next)


def test_a_release_without_an_sdist_sets_tests_aside_and_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    project.lab.git.run("update-ref", "-d", f"refs/vpatch/sdist/{NEXT}")
    project.kinds = ("wheel",)
    assert project.run("--json") == 0
    answer = said(capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "absorbed": 1, "set-aside": 1}
    _, series = project.check_next()
    assert "0002-tests-five-is-said.patch" in [patch.file for patch in series.patches]
    assert {patch.raw for patch in series.patches} & set(project.raws().values())


def test_the_report_reads_as_a_table_and_as_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Rebase(tmp_path)
    assert project.run("--dry-run") == 0
    table = capsys.readouterr().out
    assert "absorbed  0003-b-say-ten.patch" in table
    assert "0003 absorbed: vllm/b.py:10: ten" in table
    assert project.run("--dry-run", "--markdown") == 0
    markdown = capsys.readouterr().out
    assert "| `0003-b-say-ten.patch` | absorbed |" in markdown
    assert markdown.startswith(f"### Rebase {TAG}")


def test_a_commit_of_a_clone_can_be_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Rebase(tmp_path)
    clone = tmp_path / "clone"
    plain_git("init", "--quiet", str(clone), folder=tmp_path)
    for path, data in AFTER.items():
        (clone / path).parent.mkdir(exist_ok=True)
        assert isinstance(data, bytes)
        (clone / path).write_bytes(data)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "main")
    monkeypatch.chdir(clone)
    assert project.run("--onto-git", "HEAD", "--dry-run", "--json") == 0
    assert said(capsys)["counts"] == {"clean": 2, "offset": 2, "absorbed": 1}
    assert project.run("--onto-git", "HEAD") == 2
    assert project.run("--onto-git", "nothing", "--dry-run") == 2


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((TAG, TAG), "is rebased to itself"),
        (("v9.9.8", NEXT), "has no pin"),
        ((TAG, "next"), "is not a release tag"),
        ((TAG, NEXT, "--keep", "0009-x.patch"), "which is no patch"),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], word: str
) -> None:
    project = Rebase(tmp_path)
    assert vpatch("rebase", *args, "--repo", str(project.repo)) == 2
    assert word in capsys.readouterr().err


@pytest.mark.usefixtures("hostile_git_config")
def test_a_users_settings_change_no_byte(tmp_path: Path) -> None:
    project = Rebase(tmp_path)
    assert project.run() == 0
    pin, series = project.check_next()
    assert (series.sha256[:12], pin.sources["sdist"].patched_tree[:12]) == SEEN
