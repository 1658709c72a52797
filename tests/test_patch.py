"""Patches as bytes, and what is read from them: compared with what git itself reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from series_lab import Lab, Step, numbered, plain_git
from vpatch.findings import FindingsError
from vpatch.patches.diff import FileChange
from vpatch.patches.diffpath import read_spelled, spelled
from vpatch.patches.mbox import read_trailers, strip_space
from vpatch.patches.patch import Patch

DIFF = b"""\
diff --git a/f b/f
index 0000000000000000000000000000000000000001..0000000000000000000000000000000000000002 100644
--- a/f
+++ b/f
@@ -1 +1 @@
-a
+b
"""
MODE = b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
BINARY = b"""\
diff --git a/f b/f
index 0000000000000000000000000000000000000001..0000000000000000000000000000000000000002 100644
GIT binary patch
literal 1
IcmZPo000310RR91

literal 1
IcmZPw00033009610RR91

"""
SEPARATOR = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
HEADERS = b"""\
From: A Tester <tester@example.com>
Date: Fri, 2 Jan 2026 03:04:05 +0100
Subject: [PATCH] Say what
"""
MESSAGE = b"""
Why.

Topic: eagle3-interface
Signed-off-by: A Tester <tester@example.com>
---

"""


def mail(
    *, headers: bytes = HEADERS, message: bytes = MESSAGE, diff: bytes = DIFF, extra: bytes = b""
) -> bytes:
    return SEPARATOR + headers + extra + message + diff


def refusal(raw: bytes) -> tuple[str, int | None]:
    with pytest.raises(FindingsError) as caught:
        Patch.parse("0001-x.patch", raw)
    assert caught.value.exit_code == 1
    finding = caught.value.findings[0]
    assert finding.file == "0001-x.patch"
    return finding.code, finding.line


def test_a_plain_patch() -> None:
    raw = mail()
    patch = Patch.parse("0001-x.patch", raw)
    assert patch.raw == raw
    assert patch.subject == "Say what"
    assert patch.author == "A Tester <tester@example.com>"
    assert patch.topic == "eagle3-interface"
    assert patch.trailers["Signed-off-by"] == ("A Tester <tester@example.com>",)
    assert patch.trailer("topic") == ("eagle3-interface",)
    assert patch.diff == DIFF
    assert raw.split(b"\n")[patch.diff_line - 1] == b"diff --git a/f b/f"
    (change,) = patch.files
    assert (change.kind, change.path_old, change.path_new) == ("modify", "f", "f")
    (hunk,) = change.hunks
    assert (hunk.before, hunk.after) == ((b"a\n",), (b"b\n",))
    assert hunk.header == "@@ -1,1 +1,1 @@"
    assert raw.split(b"\n")[hunk.line - 1] == b"@@ -1 +1 @@"


@pytest.mark.parametrize(
    ("raw", "code", "line"),
    [
        (b"", "not-a-mail", 1),
        (DIFF, "not-a-mail", 1),
        (SEPARATOR + b"nonsense\n", "not-a-mail", 2),
        (SEPARATOR + HEADERS, "not-a-mail", 5),
        (mail(headers=HEADERS.replace(b"From:", b"X-From:")), "no-from", 1),
        (mail(headers=HEADERS.replace(b"<tester@", b"tester@")), "no-author", 1),
        (mail(headers=HEADERS.replace(b"Date:", b"X-Date:")), "no-date", 1),
        (mail(extra=b"Content-Transfer-Encoding: base64\n"), "encoded", 1),
        (mail(extra=b"Content-Transfer-Encoding: quoted-printable\n"), "encoded", 1),
        (mail(extra=b"Content-Type: multipart/mixed; boundary=x\n"), "encoded", 1),
        (mail(extra=b"Content-Type: text/plain; charset=latin-1\n"), "encoded", 1),
        (mail(message=b"\nfirst\n\xff\n---\n"), "encoded", 7),
        (mail(headers=HEADERS.replace(b"Say", b"=?no-such?q?a?=")), "encoded", 1),
        (mail(headers=HEADERS.replace(b"Say", b"=?utf-8?b?a?=")), "encoded", 1),
        (mail(message=b"\nFrom: B <b@example.com>\n\nWhy.\n---\n"), "in-body-header", 6),
        (mail(message=b"\n\n\nsubject: other\n---\n"), "in-body-header", 8),
        (mail(message=b"\nWhy.\nFrom here on\n---\n"), "second-mail", 7),
        (mail(message=b"\nWhy.\n\n    diff --git a/g b/g\n---\n"), "second-diff", 8),
        (mail(message=b"\nWhy.\n---\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n"), "second-diff", 9),
        (mail(diff=b""), "no-diff", 10),
        (mail(diff=DIFF.replace(b"-1 +1", b"-1,3 +1,3")), "bad-diff", 12),
        (mail(diff=DIFF + b"+more\n"), "bad-diff", 19),
        (mail(diff=DIFF + b"\n+more\n"), "bad-diff", 20),
        (mail(diff=DIFF + b"\n" + DIFF.replace(b"/f", b"/g") + b"+more\n"), "bad-diff", 27),
        (mail(diff=DIFF.removesuffix(b"\n")), "bad-diff", 18),
        (mail(diff=DIFF + b"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n"), "bad-diff", 12),
        (mail(diff=DIFF.replace(b"+++ b/f", b"+++ b/g")), "bad-diff", 12),
        (mail(diff=DIFF.replace(b"b/f\nindex", b"b/g\nindex")), "bad-diff", 12),
        (mail(diff=b"diff --git a/f b/f\nBinary files a/f and b/f differ\n"), "bad-diff", 12),
        (mail(diff=DIFF + DIFF), "bad-diff", 19),
        (mail(diff=DIFF + MODE), "bad-diff", 19),
        (mail(diff=MODE + b"+more\n"), "bad-diff", 15),
        (mail(diff=MODE.replace(b"b/f", b"b/g")), "bad-diff", 12),
        (mail(diff=BINARY + b"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n"), "bad-diff", 12),
        (mail(diff=DIFF.replace(b"/f", b"/../f")), "unsafe-path", 12),
        (mail(diff=DIFF.replace(b"/f", b"//f")), "unsafe-path", 12),
        (mail(diff=DIFF.replace(b"/f", b"/.GIT/f")), "unsafe-path", 12),
        (
            mail(diff=DIFF.replace(b"a/f", b'"a/f\\n"').replace(b"b/f", b'"b/f\\n"')),
            "unsafe-path",
            12,
        ),
    ],
)
def test_what_tools_would_read_differently_is_refused(raw: bytes, code: str, line: int) -> None:
    assert refusal(raw) == (code, line)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (b"/../f", "has a path that leads out of the tree: '../f'"),
        (b"/.GIT/f", "has a path that leads into .git: '.GIT/f'"),
        (b"/a\\tb", "has a path that has a control character in it: 'a\\tb'"),
    ],
)
def test_a_path_that_cannot_be_says_why(path: bytes, why: str) -> None:
    quoted = DIFF.replace(b"a/f", b'"a' + path + b'"').replace(b"b/f", b'"b' + path + b'"')
    with pytest.raises(FindingsError) as caught:
        Patch.parse("0001-x.patch", mail(diff=quoted))
    assert [each.code for each in caught.value.findings] == ["unsafe-path"]
    assert caught.value.findings[0].message.endswith(why)


@given(st.binary(min_size=1, max_size=12))
@example(b'"a')
@example(b'"a"')
@example(b"\xe9")
def test_every_path_can_be_spelled_in_utf8(raw: bytes) -> None:
    path = raw.decode("utf-8", "surrogateescape")
    text = spelled(path)
    assert text.encode("utf-8")
    assert read_spelled(text) == path
    assert text == path or '"' in path[:1] or r"\udc" in ascii(path)


def test_subjects_are_decoded_as_git_am_does(tmp_path: Path) -> None:
    subjects = [
        b"[PATCH] Plain",
        b"[PATCH 3/12] Re: [x] brackets and all",
        b"=?UTF-8?q?Gr=C3=BC?=\n =?UTF-8?q?=C3=9Fe_an_alle?=",
        b"[PATCH] =?utf-8?B?w5xiZXI=?= den\n  Rand",
        b"re:  [a][b]: spaced   out",
        b"[PATCH] mid [word] Re: kept",
        b"=?utf-8?q?[PATCH]_in_a_word?=",
        b"[open",
        b"[PATCH] caf\xc3\xa9 raw",
    ]
    for subject in subjects:
        raw = mail(headers=HEADERS.replace(b"[PATCH] Say what", subject))
        info = git_mailinfo(raw, tmp_path)
        assert Patch.parse("0001-x.patch", raw).subject == info["Subject"], subject


@pytest.mark.parametrize(
    "name", ["A Tester", '"Tester, A."', "=?utf-8?q?J=C3=B6rg?= M", '"A \\"T\\" B"', "李 四"]
)
def test_authors_are_read_as_git_am_does(tmp_path: Path, name: str) -> None:
    raw = mail(headers=HEADERS.replace(b"A Tester", name.encode()))
    patch = Patch.parse("0001-x.patch", raw)
    info = git_mailinfo(raw, tmp_path)
    assert patch.author == f"{info['Author']} <{info['Email']}>"
    assert patch.mail.date == info["Date"]


def git_mailinfo(raw: bytes, folder: Path) -> dict[str, str]:
    files = (str(folder / "message"), str(folder / "patch"))
    lines = (
        line
        for line in plain_git("mailinfo", *files, folder=folder, stdin=raw).decode().split("\n")
        if ": " in line
    )
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    "message",
    [
        "s\n\nTopic: a\nSigned-off-by: A <a@b>\n",
        "s\n\nbody\n\nTopic: a\n b\n\tc\nUpstream-Status: Pending [why\n  so]\n",
        "s\n\nbody\nTopic: a\n",
        "Topic: a\nSigned-off-by: A <a@b>\n",
        "s\n\nbody\n\nTopic: a\nnot a trailer\n",
        "s\n\nbody\n\nnot\none\nSigned-off-by: A <a@b>\ntwo\n",
        "s\n\nbody\n\nnot\none\nnor\ntwo\nSigned-off-by: A <a@b>\n",
        "s\n\nTopic: a\n\nSigned-off-by: A <a@b>\n",
        "s\n\nTopic : a\nnot a topic: b\nSigned-off-by:A\n",
        "s\n\nTopic: a\ntopic: b\nTOPIC:\n",
        "s\n\nTopic: a\n\n\n",
        "s\n\n  Topic: a\nB: c\n",
        "s\n\n# a comment\nTopic: a\n",
        "s\n\nhttps://example.com/x\n",
        "s\n\n(cherry picked from commit abc)\nword\nTopic: a\n",
        "s\n\nno trailer at all\n",
        "s",
    ],
)
def test_trailers_are_those_that_git_parses(message: str, tmp_path: Path) -> None:
    assert flat(read_trailers(message)) == git_trailers(message, tmp_path)


words = st.sampled_from(
    [
        "Topic: a",
        "Signed-off-by: A <a@b>",
        "word",
        " indented",
        "",
        "two words: x",
        "A-b:c",
        "x:",
        ":x",
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(words, max_size=8))
def test_trailers_of_any_message_are_those_that_git_parses(
    lines: list[str], tmp_path: Path
) -> None:
    message = strip_space("\n".join(["title", "", *lines]))
    assert flat(read_trailers(message)) == git_trailers(message, tmp_path)


def flat(trailers: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return sorted((key.lower(), value) for key, values in trailers.items() for value in values)


def git_trailers(message: str, folder: Path) -> list[tuple[str, str]]:
    found = plain_git("interpret-trailers", "--parse", folder=folder, stdin=message.encode())
    pairs = (line.split(":", 1) for line in found.decode().split("\n") if ":" in line)
    return sorted((key.strip().lower(), value.strip()) for key, value in pairs)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(alphabet="a \t\n\r\f\vü", max_size=30))
def test_messages_are_cleaned_as_git_does(text: str, tmp_path: Path) -> None:
    cleaned = plain_git("stripspace", folder=tmp_path, stdin=text.encode())
    assert strip_space(text) == cleaned.decode()


BASE = {
    "mod.py": numbered(40),
    "gone.py": b"bye\n",
    "tool.sh": b"#!/bin/sh\n",
    "old name.py": numbered(30),
    "latin1.txt": b"caf\xe9\n\x85\x0c\nend\n",
    "no-newline": b"one\ntwo",
    "data.bin": bytes(range(256)),
    "über/\tx": b"tab\n",
}


def test_every_kind_of_change_is_seen(tmp_path: Path) -> None:
    lab = Lab(tmp_path, BASE)
    step = Step(
        "0001-everything.patch",
        {
            "mod.py": numbered(40, changed={3: "three", 30: "thirty"}),
            "gone.py": None,
            "new.py": b"hello\n",
            "empty": b"",
            "tool.sh": ("100755", b"#!/bin/sh\n"),
            "old name.py": None,
            "new name.py": numbered(30, changed={10: "ten"}),
            "latin1.txt": b"caf\xe9s\n\x85\x0c\nend\n",
            "no-newline": b"one\nTWO",
            "data.bin": bytes(range(255, -1, -1)),
            "über/café": b"tab\n",
        },
    )
    ((_, raw),) = lab.patches([step])
    patch = Patch.parse(step.file, raw)
    kinds = {change.path: change.kind for change in patch.files}
    assert kinds == {
        "mod.py": "modify",
        "gone.py": "delete",
        "new.py": "add",
        "empty": "add",
        "tool.sh": "mode",
        "new name.py": "rename",
        "latin1.txt": "modify",
        "no-newline": "modify",
        "data.bin": "modify",
        "über/café": "add",
    }
    changes = {change.path: change for change in patch.files}
    assert [hunk.old_start for hunk in changes["mod.py"].hunks] == [1, 27]
    assert changes["new name.py"].path_old == "old name.py"
    assert changes["data.bin"].binary
    assert not changes["data.bin"].hunks
    assert (changes["tool.sh"].mode_old, changes["tool.sh"].mode_new) == ("100644", "100755")
    assert changes["new.py"].path_old is None
    assert changes["gone.py"].path_new is None
    assert changes["latin1.txt"].hunks[0].after[:2] == (b"caf\xe9s\n", b"\x85\x0c\n")
    assert changes["no-newline"].hunks[0].after == (b"one\n", b"TWO")
    assert changes["mod.py"].blob_old == lab.files(lab.base)["mod.py"].split()[1]
    old, new = (lab.files(tree) for tree in (lab.base, lab.tree(lab.base, step.changes)))
    for change in patch.files:
        check_sides(lab, change, old, new)
        lines = raw.split(b"\n")
        assert lines[change.line - 1].startswith(b"diff --git ")
        assert all(lines[hunk.line - 1].startswith(b"@@ ") for hunk in change.hunks)


def check_sides(lab: Lab, change: FileChange, old: dict[str, str], new: dict[str, str]) -> None:
    """Every line of a small file's diff is one of the file's lines, in order."""
    for path, files, side in (
        (change.path_old, old, "before"),
        (change.path_new, new, "after"),
    ):
        blob = lab.git.output("cat-file", "blob", files[path].split()[1]) if path else b""
        for hunk in change.hunks:
            assert b"".join(getattr(hunk, side)) in blob
        if len(change.hunks) == 1 and change.kind in {"add", "delete"}:
            assert b"".join(getattr(change.hunks[0], side)) == blob


def test_messages_are_those_that_git_am_commits(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"f": b"a\n"})
    step = Step("0001-x.patch", {"f": b"b\n"}, subject="Grüße [not lost]", body="a  \n\n\n\n  b\n")
    ((_, raw),) = lab.patches([step])
    patch = Patch.parse(step.file, raw)
    assert patch.mail.message == strip_space(step.message)


def test_a_signature_and_a_diffstat_are_no_part_of_the_diff() -> None:
    stat = b" f | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
    raw = mail(message=MESSAGE + stat, diff=DIFF + b"-- \n2.39.5\n\n")
    patch = Patch.parse("0001-x.patch", raw)
    assert patch.files[0].hunks[0].body == (("-", b"a\n"), ("+", b"b\n"))


def test_importing_patches_stays_light() -> None:
    heavy = "{'requests', 'rich', 'pypi_simple', 'urllib3', 'git'} & set(sys.modules)"
    modules = "vpatch.patches.apply, vpatch.patches.repo, vpatch.patches.worktree"
    code = f"import sys, {modules}; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


@pytest.mark.parametrize(
    ("lead", "code"),
    [
        (
            b"---\nFrom 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001\n",
            "second-mail",
        ),
        (b"---\nsome\0thing\n", "nul"),
    ],
)
def test_what_stands_between_message_and_diff_is_read_as_git_am_reads_it(
    lead: bytes, code: str
) -> None:
    raw = PLAIN_MAIL.replace(b"---\n", lead, 1)
    assert raw != PLAIN_MAIL
    with pytest.raises(FindingsError) as caught:
        Patch.parse("0001-a.patch", raw)
    assert code in caught.value.findings[0].code


PLAIN_MAIL = b"""\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A Tester <tester@example.com>
Date: Fri, 2 Jan 2026 03:04:05 +0000
Subject: [PATCH] change a

Topic: eagle3-interface
---

diff --git a/a b/a
index 257cc5642cb1a054f08cc83f2d943e56fd3ebe99..5716ca5987cbf97d6bb54920bea6adde242d87e6 100644
--- a/a
+++ b/a
@@ -1 +1 @@
-foo
+bar
"""
