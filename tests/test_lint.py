"""The linter's whole list: what would be lost, what is personal, what a series and a pin promise.

The numbers are those of the research notes' cases. Where a rule says what git does, git does it
here.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from series_lab import TAG, Content, Lab, Step, numbered, plain_git, write_series
from test_cli import one_object, run
from test_three_tools import by_git_am, by_quilt
from vpatch.errors import UsageError
from vpatch.findings import Finding
from vpatch.patches import mend
from vpatch.patches.apply import apply_series
from vpatch.patches.check import check_series
from vpatch.patches.history import revision_findings
from vpatch.patches.mbox import read_mail
from vpatch.patches.patch import Patch
from vpatch.patches.pin import PIN, Pin, Source
from vpatch.patches.roundtrip import lost_on_the_way
from vpatch.patches.series import Series, lint
from vpatch.patches.swap import exchange

PACKAGE = Path(__file__).parent.parent / "tools/vpatch/patches"
BASE: dict[str, Content] = {"vllm/a.py": numbered(40), "vllm/b.py": b"b\n"}
STEPS = [
    Step("0001-one.patch", {"vllm/a.py": numbered(40, changed={5: "five"})}),
    Step("0002-two.patch", {"vllm/a.py": numbered(40, changed={5: "5"}), "vllm/new.py": b"1\n2\n"}),
    Step("0003-three.patch", {"vllm/new.py": b"1\nzwei\n"}),
]
ONE = STEPS[0].file


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BASE)


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    """A pinned series in a repository of its own, committed."""
    repo = tmp_path / "repo"
    series = lab.series(repo / "patches" / TAG, STEPS)
    write_pin(lab, series)
    (repo / "pyproject.toml").touch()
    plain_git("init", "--quiet", folder=repo)
    plain_git("add", ".", folder=repo)
    plain_git("commit", "--quiet", "-m", "first", folder=repo)
    return series.folder


def write_pin(lab: Lab, series: Series, revision: int = 1) -> None:
    patched = apply_series(lab.git, lab.base, series).tree
    pin = Pin(
        schema=1,
        tag=TAG,
        revision=revision,
        series_sha256=series.sha256,
        commit="a" * 40,
        sources={"git": Source("", "", lab.commit, lab.base, patched)},
        blobs=lab.git.blob_ids(lab.base, series.paths),
        wheels={},
    )
    (series.folder / PIN).write_bytes(pin.to_toml())


def found(folder: Path, **options: str) -> list[tuple[str, int | None, str]]:
    findings = check_series(folder, TAG, **options)
    assert all(finding.mend for finding in findings), findings
    return [
        (str(Path(finding.file).relative_to(folder)), finding.line, finding.code)
        for finding in findings
    ]


def edit(folder: Path, name: str, old: bytes, new: bytes) -> None:
    raw = (folder / name).read_bytes()
    assert old in raw
    (folder / name).write_bytes(raw.replace(old, new, 1))


def test_a_good_series(folder: Path) -> None:
    assert found(folder) == []


HEAD = b"Subject: [PATCH] one\n"
FORM = [
    ("commit-id", 1, b"From 0000", b"From 1111"),
    ("extra-header", 5, HEAD, HEAD + b"X-Hostile: yes\n  more\n"),
    ("extra-header", 4, HEAD, b"Message-Id: <1@b>\n" + HEAD),
    ("author", 2, b"From: A Tester <", b"From: A Tester Jr. <"),
    ("author", 2, b"From: A Tester <", b"From: <"),
    ("bad-date", 3, b"Fri, 2 Jan 2026", b"Fri, 32 Jan 2026"),
    ("bad-date", 3, b"Date: Fri, 2 Jan 2026 03:04:05 +0100", b"Date: yesterday"),
    ("message-blank", 6, b"Because the test", b"Because \nthe test"),
    ("message-blank", 6, b"Because the test", b"\nBecause the test"),
    ("message-blank", 8, b"Because the test", b"Because\n\n\nthe test"),
    ("scissors", 7, b"Because the test", b"Because\n-- >8 -- >8 --\nthe test"),
    ("lost-text", 12, b"\ndiff --git", b"---\nv2: better\n\ndiff --git"),
    ("lost-text", 11, b"\ndiff --git", b"diff -u a b\n\ndiff --git"),
    ("diffstat", 12, b"\ndiff --git", b"---\n vllm/a.py | 2 +-\n 1 file changed, 1\n\ndiff --git"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "line", "old", "new"), FORM)
def test_the_form_of_a_patch(folder: Path, code: str, line: int, old: bytes, new: bytes) -> None:
    edit(folder, ONE, old, new)
    assert (ONE, line, code) in found(folder)
    assert {c for _, _, c in found(folder)} <= {code, "series-changed", "trailer-topic"} | {
        "trailer-upstream-status", "trailer-signed-off-by"
    }  # fmt: skip


def test_a_pin_that_is_a_link_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "pin.toml").rename(tmp_path / "pin.toml")
    (folder / "pin.toml").symlink_to(tmp_path / "pin.toml")
    assert found(folder) == [("pin.toml", None, "link")]


def test_a_signature_is_somebodys_git_version(folder: Path) -> None:
    with (folder / ONE).open("ab") as stream:
        stream.write(b"-- \n2.39.5\n\n")
    assert found(folder)[0] == (ONE, (folder / ONE).read_bytes().count(b"\n") - 2, "signature")


# 1, 2, 5, 6 and their kin: a message, and what becomes of it under git am.
LOSSES = [
    ("Why.\n\n---\nMore of why.", "lost-text"),
    ("Why.\n\ndiff --git a/x b/x\nindex 1..2", "bad-diff"),
    ("Why.\n\ndiff -r old new", "lost-text"),
    ("Why.\n\nIndex: vllm/a.py\nmore", "second-diff"),
    ("From: Some Body <some@body.example>\n\nWhy.", "in-body-header"),
    ("Date: Thu, 1 Jan 1970 00:00:00 +0000\n\nWhy.", "in-body-header"),
    ("Subject: another\n\nWhy.", "in-body-header"),
    ("From nowhere on\nWhy.", "second-mail"),
]


@pytest.mark.parametrize(("body", "code"), LOSSES)
@pytest.mark.parametrize("subject", ["plain", "[x] in brackets"])
def test_a_message_that_git_am_loses_is_found(
    lab: Lab, tmp_path: Path, hostile_git_config: Path, subject: str, body: str, code: str
) -> None:
    """Whatever the user's settings, which are hostile here, git am makes another commit of it."""
    step = Step("0001-x.patch", {"vllm/b.py": b"B\n"}, subject=subject, body=body)
    ((_, raw),) = lab.patches([step])
    write_series(tmp_path / TAG, {step.file: raw})
    assert code in {finding.code for finding in lint(tmp_path / TAG)}
    assert by_am(lab, raw, tmp_path / "am") != plain_git(
        "stripspace", folder=tmp_path, stdin=step.message.encode()
    )


def by_am(lab: Lab, raw: bytes, folder: Path) -> bytes | None:
    """The commit that a plain `git am` makes: author, date and message, or None."""
    folder.mkdir()
    plain_git("init", "--quiet", "--template=", folder=folder)
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{lab.git.git_dir}/objects\n")
    quiet = (
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "commit.gpgSign=false",
        "-c",
        "core.autocrlf=false",
    )
    plain_git(*quiet, "reset", "--quiet", "--hard", lab.commit, folder=folder)
    try:
        plain_git(*quiet, "am", "--quiet", folder=folder, stdin=raw)
    except CalledProcessError:
        return None  # it refused: nothing was committed
    return plain_git(
        "-c", "i18n.logOutputEncoding=UTF-8", "log", "-1", "--format=%B", folder=folder
    )


def test_6_brackets_at_the_start_of_a_subject(lab: Lab, tmp_path: Path) -> None:
    ((step, raw),) = lab.patches([Step("0001-x.patch", {"f": b""}, subject="[x] y")])
    write_series(tmp_path / TAG, {step.file: raw})
    assert [finding.code for finding in lint(tmp_path / TAG)] == ["lost-prefix"]
    assert (by_am(lab, raw, tmp_path / "am") or b"").startswith(b"y\n")


def test_a_commit_that_git_cannot_mail_is_found(lab: Lab) -> None:
    """Were a rule missing: the commit is written as a mail again, and read again."""
    ((step, raw),) = lab.patches([STEPS[0]])
    patch = Patch.parse(step.file, raw)
    assert lost_on_the_way([patch]) == ()
    mail = replace(patch.mail, subject="[x] one")
    (lost,) = lost_on_the_way([replace(patch, mail=mail)])
    assert lost.code == "no-round-trip"
    assert "subject" in lost.message


@pytest.mark.parametrize(
    "name", ["0001-Grüße.patch", f"0001-{'lang-' * 60}.patch", "0001-x y.patch"]
)
def test_8_names_that_break(folder: Path, name: str) -> None:
    raw = (folder / ONE).read_bytes()
    (folder / ONE).unlink()
    if len(name) < 200:
        (folder / name).write_bytes(raw)
    edit(folder, "series", ONE.encode(), name.encode())
    assert {"bad-name", "no-such-file"} & {code for _, _, code in found(folder)}


def test_9_equal_subjects(lab: Lab, tmp_path: Path) -> None:
    steps = [Step(f"000{n}-x.patch", {f"f{n}": b"x\n"}, subject="Same") for n in (1, 2)]
    lab.series(tmp_path / TAG, steps)
    assert [finding.code for finding in lint(tmp_path / TAG)] == ["same-subject"]


# 11, 12, 19: every kind of change. None: three tools agree; else the finding.
KINDS: list[tuple[str, dict[str, Content], str | None]] = [
    ("link-added", {"l": ("120000", b"f")}, None),
    ("link-changed", {"ln": ("120000", b"e")}, None),
    ("link-deleted", {"ln": None}, None),
    ("file-to-link", {"f": ("120000", b"e")}, None),
    ("link-to-file", {"ln": b"hello\n"}, None),
    ("folder-to-file", {"d/x": None, "d": b"file\n"}, "file-and-folder"),
    ("file-to-folder", {"f": None, "f/x": b"q\n"}, "file-and-folder"),
    ("empty-added", {"new": b""}, None),
    ("empty-program", {"new": ("100755", b"")}, None),
    ("empty-deleted", {"gone": None}, None),
    ("emptied", {"f": b""}, None),
    ("filled", {"e": b"now\n"}, None),
    ("mode-only", {"f": ("100755", b"a\nb\n")}, None),
    ("mode-and-lines", {"f": ("100755", b"a\nB\n")}, None),
    ("renamed", {"f": None, "g": b"a\nb\n"}, None),
    ("newline-lost", {"f": b"a\nb"}, None),
    ("newline-gained", {"nonl": b"a\nb\n"}, None),
    ("newline-never", {"nonl": b"a\nc"}, None),
    ("not-utf8", {"f": b"a\n\xff\xfe\n"}, None),
    ("odd-separators", {"f": b"a\x0c\n\x85\n\xe2\x80\xa8b\n"}, None),
    ("name-not-ascii", {"caf\udce9": b"x\n", "über": b"y\n"}, None),
    ("name-with-quotes", {'a"b c': b"x\n"}, None),
    ("line-like-a-mail", {"f": b"a\nFrom " + b"0" * 40 + b" Mon\n-- \nb\n"}, None),
    ("crlf-edited", {"crlf": b"a\r\nB\r\n"}, "crlf"),
    ("crlf-removed", {"crlf": b"a\r\nb\n"}, "crlf"),
    ("binary", {"b.bin": bytes(range(256))}, "binary"),
]
KINDS_BASE: dict[str, Content] = {
    "f": b"a\nb\n", "e": b"", "ln": ("120000", b"f"), "d/x": b"x\n", "gone": b"",
    "crlf": b"a\r\nb\r\n", "nonl": b"a\nb",
}  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "code"), KINDS, ids=[kind[0] for kind in KINDS])
def test_11_12_19_changes_of_every_kind(
    tmp_path: Path, name: str, changes: dict[str, Content], code: str | None
) -> None:
    """What is not found makes the same tree with three tools; what is found does not."""
    lab = Lab(tmp_path, KINDS_BASE)
    series = lab.series(tmp_path / TAG, [Step("0001-x.patch", changes)])
    codes = [finding.code for finding in lint(tmp_path / TAG)]
    wanted = lab.tree(lab.base, changes)
    assert apply_series(lab.git, lab.base, series).tree == wanted
    if code is None:
        assert codes == []
        check_tools(lab, series, tmp_path, wanted)
        return
    assert set(codes) == {code}
    with pytest.raises((AssertionError, CalledProcessError)):
        check_tools(lab, series, tmp_path, wanted)


def check_tools(lab: Lab, series: Series, folder: Path, wanted: str) -> None:
    assert by_git_am(lab.git, lab.commit, series, folder / "am") == wanted
    assert by_quilt(lab.git, lab.base, series, folder / "quilt") == wanted


def test_a_submodule(tmp_path: Path) -> None:
    raw = (
        b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\n"
        b"Date: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: [PATCH] x\n\nTopic: x\n"
        b"Upstream-Status: Pending\nSigned-off-by: A <a@b>\n\ndiff --git a/s b/s\n"
        b"new file mode 160000\nindex " + b"0" * 40 + b".." + b"1" * 40 + b"\n--- /dev/null\n"
        b"+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit " + b"1" * 40 + b"\n"
    )  # fmt: skip
    write_series(tmp_path / TAG, {"0001-x.patch": raw})
    assert [finding.code for finding in lint(tmp_path / TAG)] == ["submodule"]


def test_17_an_empty_commit(lab: Lab, tmp_path: Path) -> None:
    commit = lab.commit_tree(lab.base, lab.commit, STEPS[0].message)
    raw = lab.git.output("format-patch", "--stdout", "--always", "--zero-commit", "-1", commit)
    write_series(tmp_path / TAG, {ONE: raw})
    assert [finding.code for finding in lint(tmp_path / TAG)] == ["no-diff"]


# 21: what a plain `git format-patch` of a user with such a setting writes.
SETTINGS = [
    ("format.attach", "true", "encoded"),
    ("format.headers", "X-Hostile: yes\n", "extra-header"),
    ("format.to", "a@b.example", "extra-header"),
    ("format.cc", "a@b.example", "extra-header"),
    ("format.thread", "deep", "extra-header"),
    ("format.from", "Some Body <some@body.example>", "in-body-header"),
    ("format.signOff", "true", None),
    ("format.encodeEmailHeaders", "false", None),
    ("format.subjectPrefix", "HOSTILE", "lost-prefix"),
    ("format.signature", "me", "signature"),
    ("format.notes", "true", "lost-text"),
    ("diff.noprefix", "true", "bad-diff"),
    ("diff.mnemonicPrefix", "true", None),
    ("diff.context", "0", None),
    ("diff.interHunkContext", "50", None),
    ("diff.algorithm", "patience", None),
    ("diff.suppressBlankEmpty", "true", None),
    ("core.quotePath", "false", None),
    ("core.abbrev", "5", None),
    ("i18n.logOutputEncoding", "ISO-8859-1", "encoded"),
    ("i18n.logOutputEncoding", "UTF-16", "no-from"),
]


@pytest.mark.parametrize(("key", "value", "code"), SETTINGS)
def test_21_a_users_settings_are_found_or_change_nothing(
    lab: Lab, tmp_path: Path, key: str, value: str, code: str | None
) -> None:
    """Found, or what the patch says is the same: message, author, date and tree."""
    step = Step(
        "0001-x.patch",
        {"vllm/a.py": numbered(40, changed={5: "five", 12: "", 20: "zwanzig"}), "über": b"x\n"},
        subject="Grüße an alle",
    )
    ((_, raw),) = lab.patches([step])
    tree = lab.tree(lab.base, step.changes)
    commit = lab.commit_tree(tree, lab.commit, step.message)
    plain_git("notes", "add", "-m", "a note", commit, folder=lab.git.git_dir)
    options = ("--stdout", "--zero-commit", "--full-index", "--no-stat", "-1", commit)
    quiet = () if key == "format.signature" else ("-c", "format.signature=")
    written = plain_git(
        *quiet, "-c", f"{key}={value}", "format-patch", *options, folder=lab.git.git_dir
    )
    write_series(tmp_path / TAG, {step.file: written})
    codes = {finding.code for finding in lint(tmp_path / TAG)}
    if code is not None:
        assert code in codes
        return
    assert codes == set()
    series = Series.read(tmp_path / TAG)
    assert series.patches[0].mail.message == read_mail(step.file, raw).message
    if key != "diff.context":  # git apply refuses a hunk without context, as it should
        assert apply_series(lab.git, lab.base, series).tree == tree


def test_21_lint_says_the_same_under_hostile_settings(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(folder, ONE, b"Topic:", b"topic:")
    edit(folder, "series", b"0002", b" 0002")
    before = check_series(folder, TAG)
    home = request.getfixturevalue("hostile_git_config")
    shutil.copy(home / ".gitconfig", folder.parent.parent / ".git/config")
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=0")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=true'")
    assert check_series(folder, TAG) == before
    assert {finding.code for finding in before} >= {"trailer-topic", "series-blank"}


def test_an_index_line_starts_from_the_file_that_is_there(folder: Path) -> None:
    """The pin has the file of the first patch, and the first patch that of the second."""
    for name in (ONE, "0002-two.patch"):
        raw = (folder / name).read_bytes()
        ids = raw.split(b"\nindex ")[1].split(b" ")[0].split(b"..")
        edit(folder, name, ids[0], b"1" * 40)
        assert [(file, line) for file, line, code in found(folder) if code == "blob-chain"] == [
            (name, 12)
        ]
        edit(folder, name, b"1" * 40, ids[0][:12])  # cut short: another rule
        assert {code for _, _, code in found(folder)} >= {"short-id"}
        assert "blob-chain" not in {code for _, _, code in found(folder)}
        (folder / name).write_bytes(raw)
    # Where one ends, the next one has to start.
    ids = (folder / ONE).read_bytes().split(b"\nindex ")[1].split(b" ")[0].split(b"..")
    edit(folder, ONE, ids[1], b"1" * 40)
    assert ("0002-two.patch", 12, "blob-chain") in found(folder)


def test_the_lines_of_new_files_make_the_blobs_that_are_named(folder: Path) -> None:
    edit(folder, "0002-two.patch", b"+2\n", b"+3\n")
    codes = [(name, code) for name, _, code in found(folder) if code == "blob-chain"]
    assert codes == [("0002-two.patch", "blob-chain")]


def test_a_file_that_is_not_there_or_is_there_already(folder: Path) -> None:
    pin = (folder / PIN).read_text()
    (folder / PIN).write_text(pin.replace('"vllm/a.py"', '"vllm/z.py"'))
    assert (ONE, 12, "blob-chain") in found(folder)
    (folder / PIN).write_text(pin + f'"vllm/new.py" = "{"1" * 40}"\n')
    assert [code for _, _, code in found(folder)] == ["blob-chain"]


def test_a_pin_is_read_with_the_line_at_fault(folder: Path) -> None:
    pin = (folder / PIN).read_text()
    (folder / PIN).write_text(pin.replace(f'tag = "{TAG}"', 'tag = "v9.9.8"'))
    assert found(folder) == [(PIN, 3, "other-tag")]
    (folder / PIN).write_text(pin.replace("revision = 1", "revision = 0"))
    assert found(folder) == [(PIN, 4, "bad-pin")]
    (folder / PIN).write_text(pin.replace("revision = 1", "revision = ="))
    assert found(folder) == [(PIN, 4, "bad-pin")]
    edit(folder, ONE, b"Because", b"While")
    (folder / PIN).write_text(pin)
    assert found(folder) == [(PIN, 5, "series-changed")]
    (folder / PIN).unlink()
    assert found(folder) == [(PIN, None, "no-pin")]


def repinned(lab: Lab, folder: Path, revision: int) -> None:
    edit(folder, ONE, b"Because", b"While")
    write_pin(lab, Series.read(folder), revision)


def test_changed_bytes_need_a_new_revision(
    lab: Lab, folder: Path, hostile_git_config: Path
) -> None:
    repo = folder.parent.parent
    shutil.copy(hostile_git_config / ".gitconfig", repo / ".git/config")
    repinned(lab, folder, 1)
    assert found(folder) == [(PIN, 4, "revision-reused")]
    write_pin(lab, Series.read(folder), 2)
    assert found(folder) == []
    (repo / ".git/config").unlink()
    for args in (
        ("add", "."),
        ("-c", "core.hooksPath=", "commit", "-qm", "second", "--no-gpg-sign"),
    ):
        plain_git(*args, folder=repo)
    assert found(folder) == found(folder, since="HEAD~1") == []
    write_pin(lab, Series.read(folder), 1)
    assert found(folder) == [(PIN, 4, "revision-lower")]
    assert found(folder, since="HEAD~1") == [(PIN, 4, "revision-reused")]


def test_a_folder_without_history_has_no_published_pin(lab: Lab, folder: Path) -> None:
    repinned(lab, folder, 1)
    pin = Pin.read(folder / PIN)
    assert [finding.code for finding in revision_findings(pin, folder)] == ["revision-reused"]
    with pytest.raises(UsageError, match="no revision nosuch"):
        check_series(folder, TAG, since="nosuch")
    with pytest.raises(UsageError, match="no revision --all"):
        check_series(folder, TAG, since="--all")
    shutil.rmtree(folder.parent.parent / ".git")
    assert revision_findings(pin, folder) == ()
    with pytest.raises(UsageError, match="in no git repository"):
        check_series(folder, TAG, since="HEAD~1")


def test_a_linked_worktree_has_a_history_too(lab: Lab, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    plain_git("worktree", "add", "-q", str(other), folder=folder.parent.parent)
    repinned(lab, other / "patches" / TAG, 1)
    assert found(other / "patches" / TAG) == [(PIN, 4, "revision-reused")]


def test_every_rule_says_how_to_mend() -> None:
    files = (
        "mbox",
        "patch",
        "diff",
        "lint",
        "form",
        "series",
        "chain",
        "roundtrip",
        "history",
        "check",
    )
    codes = {code for name in files for code in codes_of(PACKAGE / f"{name}.py")}
    codes |= {f"no-{key}" for key in ("from", "subject", "date")}
    codes |= {f"trailer-{key}" for key in ("topic", "upstream-status", "forwarded")}
    codes |= {"series-changed", "other-tag", "bad-pin"}
    assert codes - set(mend.MEND) == set()
    assert set(mend.MEND) - codes - mend.FIXABLE == set()
    assert codes >= mend.FIXABLE


def codes_of(file: Path) -> set[str]:
    """The literal codes of the findings that a module makes."""
    found: set[str] = set()
    for call in ast.walk(ast.parse(file.read_text())):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        place = {"Finding": 2, "_refused": 2, "self.refused": 1}.get(name)
        if place is None or len(call.args) < 2:
            continue
        if len(call.args) > place and isinstance(call.args[place], ast.Constant):
            found.add(str(ast.literal_eval(call.args[place])))
        elif name == "self.refused":
            found.add("bad-diff")
        elif len(call.args) > place and isinstance(call.args[place], ast.Name):
            found |= constants(file, call.args[place])
    return found


def constants(file: Path, name: ast.expr) -> set[str]:
    return {
        str(node.value.value)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and ast.unparse(node.targets[0]) == ast.unparse(name)
    }


def test_the_command_names_file_line_and_the_next_step(folder: Path) -> None:
    edit(folder, ONE, b"Topic:", b"topic:")
    ran = run("lint", TAG, cwd=folder)
    assert ran.returncode == 1
    first, second, *_ = ran.stdout.splitlines()
    assert first.startswith(f"{folder / ONE}:8: ")
    assert second.startswith("  -> ")
    answer = one_object(run("lint", "--json", cwd=folder))
    assert answer["tags"] == [TAG]
    assert list(answer["findings"][0]) == ["file", "line", "code", "message", "mend"]


def test_a_series_that_lies_anywhere(folder: Path, tmp_path: Path) -> None:
    """As a rebase writes it with --out: the pin names the release, not the folder."""
    made = tmp_path / "over there" / "made"
    shutil.copytree(folder, made)
    assert run("lint", "--series", "made", cwd=made.parent).stdout == f"{made}: nothing found\n"
    edit(made, ONE, b"Topic:", b"topic:")
    ran = run("lint", "--series", str(made), "--json", cwd=tmp_path)
    answer = one_object(ran)
    assert (ran.returncode, answer["tags"], answer["series"]) == (1, [TAG], str(made))
    found = {each["code"]: each for each in answer["findings"]}
    assert found.keys() == {"trailer-topic", "series-changed"}
    assert found["trailer-topic"]["file"] == str(made / ONE)
    assert found["series-changed"]["mend"].endswith(f"into its place: patches/{TAG}.")
    edit(made, "series", b"0002", b" 0002")
    ran = run("lint", "--series", str(made), cwd=tmp_path)
    assert f"-> vpatch lint --fix --series '{made}', then vpatch pin {TAG}." in ran.stdout
    ran = run("lint", "--fix", "--series", str(made), cwd=tmp_path)
    assert "fixed: made: " in ran.stdout
    assert b" 0002" not in (made / "series").read_bytes()
    (made / PIN).unlink()
    assert "no-pin" in run("lint", "--series", str(made), "--json", cwd=tmp_path).stdout
    # The other series of the repository is not looked at, nor written.
    assert run("lint", cwd=folder).returncode == 0
    for more in ([TAG], ["--repo", str(folder.parent.parent)]):
        ran = run("lint", "--series", str(made), *more, cwd=folder)
        assert ran.returncode == 2
        assert "--series is in the place of" in ran.stderr
    assert run("lint", "--series", str(tmp_path / "none"), cwd=folder).returncode == 2


def test_a_series_without_a_pin_is_linted_too(folder: Path) -> None:
    (folder / PIN).unlink()
    ran = run("lint", "--json", cwd=folder)
    assert [finding["code"] for finding in json.loads(ran.stdout)["findings"]] == ["no-pin"]
    assert f"vpatch pin {TAG}" in ran.stdout


def test_a_message_with_a_name_is_filled_in(folder: Path) -> None:
    finding = Finding(str(folder / ONE), 1, "blob-chain", "x")
    (told,) = mend.mended([finding], TAG)
    wanted = f"Mend the patch, or let vpatch refresh {TAG} {ONE} write its index line anew."
    assert told.mend == wanted


def test_lint_reads_one_whole_series(lab: Lab, folder: Path, tmp_path: Path) -> None:
    """While exports follow each other, half of one and half of the next is no finding."""
    copies = [tmp_path / "a", tmp_path / "b"]
    lab.series(copies[0], [*STEPS[:2], Step("0003-other.patch", {"vllm/z.py": b"z\n"})])
    write_pin(lab, Series.read(copies[0], TAG), 2)
    child = os.fork()
    if not child:
        while True:
            shutil.copytree(copies[0], copies[1])
            exchange(copies[1], folder)
            shutil.rmtree(copies[0])
            copies[1].rename(copies[0])
    try:
        seen = {check_series(folder, TAG) for _ in range(60)}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert {finding.code for findings in seen for finding in findings} <= {"revision-lower"}
