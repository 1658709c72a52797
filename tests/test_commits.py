"""Commits as mails: what git am makes the same commit of again, or a refusal that says why."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from series_lab import TRAILERS, Content, Lab, numbered, plain_git
from vpatch.errors import HostError, UsageError
from vpatch.findings import FindingsError
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.commits import Commit, read_commits
from vpatch.patches.repository import find_repository, scratch_repository
from vpatch.patches.series import Series

BASE: Mapping[str, Content] = {
    "vllm/a.py": numbered(60),
    "vllm/empty.py": b"",
    "vllm/folder/b.py": numbered(9),
    "tools/run.sh": b"#!/bin/sh\n",
    "latin1.txt": b"caf\xe9\n\x0c\n\x85\nend",
    "logo.png": bytes(range(256)),
    "link": ("120000", b"vllm/a.py"),
    "crlf.txt": b"a\r\nb\r\n",
}
CHANGED = {"vllm/a.py": numbered(60, changed={30: "thirty"})}
WHO = ("A Tester", "tester@example.com", "2026-01-02T03:04:05+0100")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BASE)


def commit(
    lab: Lab,
    message: str | bytes,
    changes: Mapping[str, Content] = CHANGED,
    *,
    parent: str = "",
    who: tuple[str, str, str] = WHO,
    encoding: str = "",
) -> str:
    """A commit object with exactly these bytes, as no polite tool would write it."""
    parent = parent or lab.commit
    tree = lab.tree(f"{parent}^{{tree}}", changes)
    text = message.encode() if isinstance(message, str) else message
    env = dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), who, strict=True))
    made = lab.git.run("commit-tree", tree, "-p", parent, stdin=b"x\n", env=env).stdout.decode()
    head = lab.git.output("cat-file", "commit", made.strip()).partition(b"\n\n")[0]
    extra = f"\nencoding {encoding}".encode() if encoding else b""
    return lab.git.line(
        "hash-object", "-t", "commit", "-w", "--literally", "--stdin",
        stdin=head + extra + b"\n\n" + text,
    )  # fmt: skip


def read(lab: Lab, head: str, base: str = "") -> tuple[Commit, ...]:
    with scratch_repository(lab.git.git_dir) as git:
        return read_commits(git, base or lab.commit, head)


def codes(caught: pytest.ExceptionInfo[FindingsError]) -> list[str]:
    return [finding.code for finding in caught.value.findings]


def by_git_am(lab: Lab, commit: Commit, folder: Path) -> str:
    """What the user's git am makes of the mail, as text to compare."""
    folder.mkdir()
    plain_git("init", "--quiet", folder=folder)
    (folder / ".git/objects/info/alternates").write_text(f"{lab.git.git_dir}/objects\n")
    plain_git("reset", "--quiet", "--hard", commit.parent, folder=folder)
    plain_git("am", "--quiet", folder=folder, stdin=commit.raw)
    return described(Git(folder / ".git"), "HEAD")


def described(git: Git, revision: str) -> str:
    form = "--format=%T%n%an%n%ae%n%ad%n%B"
    return git.output("show", "-s", "--date=raw", form, revision).decode().rstrip("\n")


GOOD = {
    "plain": f"add: a thing\n\nBecause.\n\n{TRAILERS}",
    "subject-only": "add a thing\n",
    "no-last-newline": "add a thing\n\nBecause.",
    "long-subject": "add " + "a long thing " * 12 + "here\n\nBecause.\n",
    "unicode": "add: Grüße und 日本語 " + "ß" * 90 + "\n\nÜber alles.\n",
    "indented-diff-words": "add: x\n\n  --- a/file\n  and +++, @@ too\n",
    "dashes": "add: x\n\n----\n--\n-- \nmore\n",
    "hash-lines": "add: x\n\n# no comment\n#1 is kept\n",
    "scissors": "add: x\n\n-- >8 --\nbelow\n",
    "colon": "From: nobody in particular\n\nBecause.\n",
    "from-inside": "add: x\n\nWe come\n>From afar\n",
    "date-inside": "add: x\n\nSomething.\nDate: today\nSubject: that\n",
    "equals": "add =?utf-8?q?x?= x\n\nBecause =20.\n",
    "quoted": 'add "a" <b> \\c (d)\n\nBecause.\n',
    "tab": "add: x\n\n\tindented\n",
    "trailing": "add: x\n\nline  \n\n\n\nmore\n\n\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_read_is_what_git_am_commits(name: str, lab: Lab, tmp_path: Path) -> None:
    head = commit(lab, GOOD[name])
    (made,) = read(lab, head)
    same = by_git_am(lab, made, tmp_path / "am")
    stripped = Git(lab.git.git_dir).output("stripspace", stdin=GOOD[name].encode()).decode()
    assert same.partition("\n")[0] == made.tree
    assert same == "\n".join(
        (made.tree, *described(lab.git, head).split("\n")[1:4], stripped.rstrip())
    )
    assert made.message == stripped
    assert made.is_made_by(made.patch.mail)


BAD: Mapping[str, tuple[str | bytes, str, int | None]] = {
    "case 1: a separator": ("s\n\nbody\n---\nlost\n", "cut-message", 4),
    "case 1: a diff's name": ("s\n\nbody\n--- a/file\nlost\n", "cut-message", 4),
    "case 2: a diff": ("s\n\nbody\ndiff --git a/x b/x\nlost\n", "cut-message", 4),
    "case 2: an index": ("s\n\nIndex: x\nlost\n", "cut-message", 3),
    "an indented diff": ("s\n\nbody\n  diff --git a/x b/x\n", "second-diff", 4),
    "an indented hunk": ("s\n\nbody\n    @@ -1,2 +1,2 @@\n", "second-diff", 4),
    "case 5: From:": ("s\n\nFrom: x <x@example.com>\n\nbody\n", "in-body-header", 3),
    "case 5: Date:": ("s\n\nDate: today\n\nbody\n", "in-body-header", 3),
    "case 5: subject:": ("s\n\nsubject: other\n", "in-body-header", 3),
    "case 6: a prefix": ("[x] s\n\nbody\n", "lost-prefix", 1),
    "case 6: PATCH": ("[PATCH] s\n\nbody\n", "lost-prefix", 1),
    "a fixup": ("fixup! s\n\nbody\n", "fixup", 1),
    "a squash": ("squash! s\n\nbody\n", "fixup", 1),
    "case 6: Re:": ("Re: s\n\nbody\n", "lost-prefix", 1),
    "a mail's start": ("s\n\nbody\nFrom here on\n", "second-mail", 4),
    "case 19: no message": ("", "no-subject", None),
    "only blanks": (" \n\n\t\n", "no-subject", None),
    "two lines of subject": ("one\ntwo\n\nbody\n", "long-subject", 2),
    "blanks in the subject": ("one  two\n\nbody\n", "message-lost", None),
    "a NUL": (b"s\n\nbo\0dy\n", "nul", None),
    "not UTF-8": (b"s\n\ncaf\xe9\n", "encoded", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_git_am_would_change_is_refused_by_the_commit(name: str, lab: Lab) -> None:
    message, code, line = BAD[name]
    head = commit(lab, message)
    with pytest.raises(FindingsError) as caught:
        read(lab, head)
    assert code in codes(caught)
    first = next(found for found in caught.value.findings if found.code == code)
    assert (first.file, first.line) == (f"commit {head[:12]}", line)
    assert caught.value.hint


def test_another_encoding_is_refused(lab: Lab) -> None:
    head = commit(lab, "s\n\ncaf\u00e9\n".encode("latin-1"), encoding="ISO-8859-1")
    with pytest.raises(FindingsError) as caught:
        read(lab, head)
    assert codes(caught) == ["encoded"]
    ascii_only = commit(lab, "s\n\nbody\n", encoding="ISO-8859-1")
    with pytest.raises(FindingsError, match="ISO-8859-1"):
        read(lab, ascii_only)
    assert read(lab, commit(lab, "s\n", encoding="UTF-8"))


@pytest.mark.parametrize(
    "who",
    [
        ("Jörg Müller-Lüdenscheidt von Ähren", "j@example.com", "2026-01-02T03:04:05+0545"),
        ("J. R. (Bob) O'Neil, Jr.", "j@example.com", "2026-07-02T03:04:05-0930"),
        ('The "Quoted" One', "q+a@example.com", "1970-01-02T03:04:05+1400"),
        ("日本 太郎", "n@example.com", "2038-01-19T03:14:08-0000"),
        ("x", "x", "2026-01-02T03:04:05+0100"),
    ],
)
def test_authors_and_time_zones(who: tuple[str, str, str], lab: Lab, tmp_path: Path) -> None:
    head = commit(lab, "s\n\nbody\n", who=who)
    (made,) = read(lab, head)
    assert by_git_am(lab, made, tmp_path / "am") == described(lab.git, head).replace(
        "-0000", "+0000"
    )
    assert made.is_made_by(made.patch.mail)


@pytest.mark.parametrize(
    "who", [("x", "not an address"), ("a name of many letters " * 3, "x@example.com")]
)
def test_an_author_whom_git_am_would_rename_is_refused(who: tuple[str, str], lab: Lab) -> None:
    head = commit(lab, "s\n\nbody\n", who=(*who, WHO[2]))
    with pytest.raises(FindingsError) as caught:
        read(lab, head)
    assert codes(caught)[0] in {"message-lost", "no-author"}


def test_a_path_with_a_control_character_is_refused(lab: Lab) -> None:
    with pytest.raises(FindingsError) as caught:
        read(lab, commit(lab, "s\n", {"a\tb": b"x\n"}))
    assert codes(caught) == ["unsafe-path"]


CONTENTS: Mapping[str, Mapping[str, Content]] = {
    "mode": {"tools/run.sh": ("100755", b"#!/bin/sh\n")},
    "mode and lines": {"tools/run.sh": ("100755", b"#!/bin/sh\nexit\n")},
    "rename": {"vllm/a.py": None, "vllm/c.py": numbered(60)},
    "rename and edit": {"vllm/a.py": None, "vllm/c.py": numbered(60, changed={9: "nine"})},
    "an empty file": {"vllm/none.py": b""},
    "an empty file goes": {"vllm/empty.py": None},
    "no newline": {"vllm/a.py": numbered(60) + b"end"},
    "a newline comes": {"latin1.txt": b"caf\xe9\n\x0c\n\x85\nend\n"},
    "odd bytes": {"latin1.txt": b"caf\xe9\n\x0c\n\x86\nend"},
    "a link": {"other": ("120000", b"vllm/a.py")},
    "a link moves": {"link": ("120000", b"vllm/empty.py")},
    "a link becomes a file": {"link": b"text\n"},
    "a file becomes a link": {"vllm/a.py": ("120000", b"empty.py")},
    "a folder becomes a file": {"vllm/folder/b.py": None, "vllm/folder": b"file\n"},
    "a file becomes a folder": {"vllm/empty.py": None, "vllm/empty.py/x.py": b"x\n"},
    "odd names": {'a "b"\\ü.txt': b"x\n", " lead": b"y\n", "-x": b"z\n"},
    "binary": {"logo.png": bytes(reversed(range(256)))},
    "CR LF": {"crlf.txt": b"a\r\nc\r\n"},
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_every_change_comes_back_exactly(name: str, lab: Lab, tmp_path: Path) -> None:
    head = commit(lab, f"{name}\n\n{TRAILERS}", CONTENTS[name])
    (made,) = read(lab, head)
    series = Series("v9.9.9", tmp_path, (made.patch,))
    assert apply_series(lab.git, lab.base, series).tree == made.tree
    if name != "CR LF":  # lint says that git am drops the CR
        assert by_git_am(lab, made, tmp_path / "am") == described(lab.git, head)


def test_many_commits_in_their_order(lab: Lab) -> None:
    heads, tip = [], lab.commit
    for number in range(120):
        changes = {"vllm/a.py": numbered(60, changed={number % 50 + 1: f"n{number}"})}
        tip = commit(lab, f"change {number}\n", changes, parent=tip)
        heads.append(tip)
    made = read(lab, tip)
    assert [one.id for one in made] == heads
    assert [one.subject for one in made] == [f"change {number}" for number in range(120)]
    assert [one.parent for one in made] == [lab.commit, *heads[:-1]]
    assert read(lab, tip, tip) == ()
    assert [one.id for one in read(lab, tip, heads[100])] == heads[101:]


def test_ranges_that_are_no_line_are_refused(lab: Lab) -> None:
    left, right = commit(lab, "left\n"), commit(lab, "right\n", {"vllm/x.py": b"x\n"})
    tree = lab.tree(f"{left}^{{tree}}", {"vllm/x.py": b"x\n"})
    merge = lab.git.line("commit-tree", tree, "-p", left, "-p", right, stdin=b"merge\n")
    tip = commit(lab, "behind\n", {"vllm/y.py": b"y\n"}, parent=merge)
    with pytest.raises(FindingsError) as caught:
        read(lab, tip)
    assert codes(caught) == ["merge"]
    assert f"commit {merge[:12]}" in caught.value.message
    with pytest.raises(UsageError) as no_ancestor:
        read(lab, left, right)
    assert no_ancestor.value.code == "not-an-ancestor"


def test_an_empty_commit_is_refused(lab: Lab) -> None:
    first = commit(lab, "first\n")
    empty = commit(lab, "nothing\n", {}, parent=first)
    tip = commit(lab, "third\n", {"vllm/y.py": b"y\n"}, parent=empty)
    with pytest.raises(FindingsError) as caught:
        read(lab, tip)
    assert [(found.code, found.file) for found in caught.value.findings] == [
        ("empty-commit", f"commit {empty[:12]}")
    ]


def test_every_bad_commit_is_named_at_once(lab: Lab) -> None:
    first = commit(lab, "s\n\n---\n")
    second = commit(lab, "[x] t\n", {"vllm/y.py": b"y\n"}, parent=first)
    with pytest.raises(FindingsError) as caught:
        read(lab, second)
    assert codes(caught) == ["cut-message", "lost-prefix"]


def test_two_equal_subjects_are_refused(lab: Lab) -> None:
    first = commit(lab, "same\n")
    second = commit(lab, "same\n", {"vllm/y.py": b"y\n"}, parent=first)
    with pytest.raises(FindingsError) as caught:
        read(lab, second)
    assert codes(caught) == ["same-subject"]
    assert first[:12] in caught.value.message


def test_a_submodule_is_named(lab: Lab) -> None:
    tree = lab.git.output("ls-tree", lab.base)
    entry = f"160000 commit {lab.commit}\tsub\n".encode()
    made = lab.git.line("mktree", stdin=tree + entry)
    head = lab.commit_tree(made, lab.commit, f"sub\n\n{TRAILERS}")
    (one,) = read(lab, head)
    assert (
        apply_series(lab.git, lab.base, Series("v9.9.9", lab.git.git_dir, (one.patch,))).tree
        == made
    )


def user_repository(lab: Lab, folder: Path) -> Path:
    """A clone with a commit, as a user has it."""
    plain_git("clone", "--quiet", str(lab.git.git_dir), str(folder), folder=folder.parent)
    plain_git("checkout", "--quiet", "--detach", lab.commit, folder=folder)
    (folder / "vllm/a.py").write_bytes(numbered(60, changed={30: "thirty", 50: "fifty"}))
    (folder / "vllm/new.py").write_bytes(
        b"".join(b"def f%d():\n    pass\n\n" % n for n in range(9))
    )
    plain_git("add", "--all", "--force", ".", folder=folder)
    plain_git("commit", "--quiet", "-m", f"change ü\n\n{TRAILERS}", folder=folder)
    return folder


def mails(folder: Path, base: str) -> list[bytes]:
    repository = find_repository(folder)
    assert repository is not None
    with scratch_repository(repository.common_dir) as git:
        return [made.raw for made in read_commits(git, base, repository.resolve("HEAD"))]


def test_no_setting_changes_a_byte(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder = user_repository(lab, tmp_path / "user")
    plain = mails(folder, lab.commit)
    home = request.getfixturevalue("hostile_git_config")
    # The same settings once more as the repository's own, with attributes, grafts, a replacement.
    with (folder / ".git/config").open("a") as own:
        own.write((home / ".gitconfig").read_text())
        own.write(
            '[diff "python"]\n    xfuncname = ^never$\n    textconv = false\n    binary = true\n'
        )
    (folder / ".git/info/attributes").write_text("*.py diff=python -text\n* binary\n")
    (folder / ".git/info/grafts").write_text(f"{lab.commit}\n")
    other = lab.commit_tree(lab.tree(None, {"evil": b"evil\n"}), None, "evil")
    plain_git("fetch", "--quiet", str(lab.git.git_dir), other, folder=folder)
    head = plain_git("rev-parse", "HEAD", folder=folder).decode().strip()
    for name in ("hooks", "replace"):
        (folder / ".git/refs" / name).mkdir(exist_ok=True)
    (folder / ".git/refs/replace" / head).write_text(f"{other}\n")
    for name, value in {
        "GIT_DIFF_OPTS": "--unified=0",
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIR": str(lab.git.git_dir),
        "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "diff.noprefix",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_PARAMETERS": "'diff.context=0'",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere",
        "GIT_NAMESPACE": "x",
        "TZ": "Asia/Kathmandu",
        "LC_ALL": "C",
    }.items():
        monkeypatch.setenv(name, value)
    assert mails(folder, lab.commit) == plain


def test_linked_worktrees_and_chained_alternates(lab: Lab, tmp_path: Path) -> None:
    folder = user_repository(lab, tmp_path / "user")
    plain = mails(folder, lab.commit)
    plain_git("worktree", "add", "-q", "--detach", "../linked", folder=folder)
    assert mails(tmp_path / "linked", lab.commit) == plain
    plain_git("clone", "-q", "--shared", "user", str(tmp_path / "shared"), folder=tmp_path)
    assert mails(tmp_path / "shared", lab.commit) == plain
    odd = tmp_path / 'odd "\n# name'
    shutil.copytree(folder, odd)
    assert mails(odd, lab.commit) == plain


def test_a_shallow_clone(lab: Lab, tmp_path: Path) -> None:
    before = lab.commit_tree(lab.base, None, "older")
    base = lab.commit_tree(lab.base, before, "the release")
    head = commit(lab, "change\n", parent=base)
    lab.git.run("update-ref", "refs/heads/tip", head)
    url = f"file://{lab.git.git_dir}"
    plain_git("clone", "-q", "--depth=2", "-b", "tip", url, str(tmp_path / "s"), folder=tmp_path)
    (made,) = mails(tmp_path / "s", base)
    assert made == read(lab, head, base)[0].raw
    with scratch_repository(tmp_path / "s/.git") as git:
        assert git.output("rev-list", head).decode().split() == [head, base]


def test_objects_of_another_kind_and_damage(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/.git").write_text("nonsense\n")
    with pytest.raises(HostError, match="no git repository"):
        find_repository(tmp_path / "bad")
    plain_git("init", "-q", "--object-format=sha256", "other", folder=tmp_path)
    other = tmp_path / "other"
    (other / "f").write_text("x")
    plain_git("add", "f", folder=other)
    plain_git("commit", "-q", "-m", "x", folder=other)
    repository = find_repository(other)
    assert repository is not None
    with pytest.raises(UsageError):
        repository.resolve("HEAD")


def test_repositories_are_found(lab: Lab, tmp_path: Path) -> None:
    folder = user_repository(lab, tmp_path / "user")
    found = find_repository(folder / "vllm")
    assert found is not None
    assert found.work_tree == folder
    assert find_repository(folder / "vllm", upwards=False) is None
    bare = find_repository(lab.git.git_dir)
    assert bare is not None
    assert (bare.git_dir, bare.work_tree) == (lab.git.git_dir, None)
    assert find_repository(tmp_path / "home") is None
    assert found.find("HEAD") == plain_git("rev-parse", "HEAD", folder=folder).decode().strip()
    for wrong in ("", "nothing", "--help", "HEAD:vllm", "a\nb", "x\0y", "HEAD^{tree}"):
        assert found.find(wrong) is None
        with pytest.raises(UsageError) as caught:
            found.resolve(wrong)
        assert caught.value.exit_code == 2


PIECES = (
    "a line", "Topic: x", "Signed-off-by: A <a@b.c>", "", "", " indented", "---", "--- a/x",
    "-- ", "diff --git a/x b/x", "  diff --git a/x b/x", "Index: x", "From: a <a@b.c>", "From x",
    ">From x", "Date: today", "Subject: y", "[PATCH] z", "Re: z", "@@ -1 +1 @@", "+++ x", "# c",
    "-- >8 --", "=?utf-8?q?x?=", "ü\u00a0", "\u2028", "a\tb", "trailing  ", "\\", "x" * 90,
    "é" * 50, "cherry: \r", "\f", "(cherry picked from commit 1234)", "***", "~~~", "\x01",
    "Co-authored-by: ü <u@b.c>", "\x7f",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_any_message_is_refused_or_comes_back(seed: int, lab: Lab, tmp_path: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same messages each time
    accepted = 0
    for number in range(40):
        lines = chance.choices(PIECES, k=chance.randint(1, 6))
        message = "\n".join([chance.choice(("subject", "s: y", *PIECES)), "", *lines])
        head = commit(lab, message, who=(chance.choice(("A B", "ü", 'x "y"')), *WHO[1:]))
        try:
            (made,) = read(lab, head)
        except FindingsError:
            continue
        accepted += 1
        again = by_git_am(lab, made, tmp_path / f"am-{number}")
        want = described(lab.git, head).split("\n")
        text = lab.git.output("stripspace", stdin=message.encode()).decode().rstrip("\n")
        assert again == "\n".join((*want[:4], text)), message
    assert accepted > 4
