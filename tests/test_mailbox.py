"""Mails as people save them: whatever carried it, the same draft comes out."""

from __future__ import annotations

import base64
import contextlib
import quopri
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from series_lab import Content, Lab, Step, numbered, plain_git
from test_parsers import TOKENS
from vpatch.errors import FindingError
from vpatch.findings import FindingsError
from vpatch.git import Git
from vpatch.patches.draft import Draft, Trailers, complete
from vpatch.patches.mailbox import Mailbox, read_mailbox
from vpatch.patches.mbox import read_trailers

BASE: dict[str, Content] = {"vllm/a.py": numbered(40), "crlf": b"a\r\nb\r\n"}
BODY = "Grüße. A line = that a transfer encoding changes,\nand one.\n\nEnd."


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, BASE)


def step(number: int, **changes: Content) -> Step:
    what = {"vllm/a.py": numbered(40, changed={number * 9: f"neu: ü{number}"}), **changes}
    return Step(f"000{number}-s{number}.patch", what, subject=f"Größe {number}", body=BODY)


def read(lab: Lab, data: bytes) -> Mailbox:
    return read_mailbox(lab.git, data, "box")


def only(lab: Lab, data: bytes) -> Draft:
    (draft,) = read(lab, data).drafts
    return draft


@pytest.fixture
def mail(lab: Lab) -> bytes:
    ((_, raw),) = lab.patches([step(1)])
    return raw


def parts(mail: bytes) -> tuple[list[bytes], bytes]:
    head, _, body = mail.partition(b"\n\n")
    return head.split(b"\n"), body


def encoded(mail: bytes, how: str, *, crlf: bool = False) -> bytes:
    head, body = parts(mail)
    body = body.replace(b"\n", b"\r\n") if crlf else body
    kept = [line for line in head if not line.startswith(b"Content-Transfer-Encoding")]
    if how == "base64":
        text = base64.encodebytes(body)
    else:
        text = quopri.encodestring(body).replace(b"=\r\n", b"=\n")
        text = text.replace(b"\r\n", b"=0D\n")
    return b"\n".join([*kept, b"Content-Transfer-Encoding: " + how.encode(), b"", text])


@pytest.mark.parametrize(
    "way",
    ["plain", "no From line", "crlf", "base64", "base64 crlf", "qp", "qp crlf", "attach", "inline",
     "signature", "stat", "short ids", "headers", "latin-1", "notes"],
)  # fmt: skip
def test_one_draft_whatever_carried_it(lab: Lab, mail: bytes, way: str) -> None:
    want = only(lab, mail)
    assert want.subject == "Größe 1"
    assert want.message == step(1).message
    assert (want.author_name, want.author_email) == ("A Tester", "tester@example.com")
    assert want.date == "Fri, 2 Jan 2026 03:04:05 +0100"
    got = only(lab, carried(lab, mail, way))
    assert (got.message, got.author_name, got.date) == (want.message, want.author_name, want.date)
    assert got.patch("x").files[0].hunks[0].body == want.patch("x").files[0].hunks[0].body
    if way != "short ids":
        assert got.diff.rstrip(b"\n") == want.diff.rstrip(b"\n")


def carried(lab: Lab, mail: bytes, way: str) -> bytes:
    name, _, crlf = way.partition(" ")
    if name in ("base64", "qp"):
        how = "quoted-printable" if name == "qp" else name
        return encoded(mail, how, crlf=bool(crlf))
    head, body = parts(mail)
    commit = lab.commit_tree(lab.tree(lab.base, step(1).changes), lab.commit, step(1).message)
    plain_git("notes", "add", "-m", "a note", commit, folder=lab.git.git_dir)
    options = {
        "attach": ("--attach", "--full-index"),
        "inline": ("--inline", "--full-index"),
        "stat": ("--stat", "--full-index"),
        "short ids": (),
        "notes": ("--notes", "--full-index"),
    }
    if way in options:
        written = ("format-patch", "--stdout", "-1", *options[way], commit)
        return plain_git(*written, folder=lab.git.git_dir)
    return {
        "plain": mail,
        "no From line": mail.partition(b"\n")[2],
        "crlf": mail.replace(b"\n", b"\r\n"),
        "signature": mail + b"-- \n2.51.0\n\n",
        "headers": b"\n".join([*head, b"List-Id: x", b"X-Spam: no\n\tmore", b"", body]),
        "latin-1": mail.replace(b"charset=UTF-8", b"charset=ISO-8859-1").replace(
            BODY.encode(), BODY.encode("latin-1")
        ),
    }[way]


def test_crs_of_single_lines_are_the_patchs(lab: Lab) -> None:
    ((_, raw),) = lab.patches([Step("0001-c.patch", {"crlf": b"a\r\nB\r\n"})])
    assert b"+B\r\n" in only(lab, raw).diff
    assert b"+B\r\n" in only(lab, encoded(raw, "base64")).diff


def test_who_wrote_it_is_who_the_mail_says_wrote_it(lab: Lab, mail: bytes) -> None:
    sent = mail.replace(b"From: A Tester <tester@example.com>", b"From: List <list@example.com>")
    head, body = parts(sent)
    told = b"\n".join([*head, b"", "From: Jörg M. <j@example.com>\n".encode(), body])
    draft = only(lab, told)
    assert (draft.author_name, draft.author_email) == ("Jörg M", "j@example.com")
    assert draft.message == step(1).message


def thread(lab: Lab, count: int = 3) -> list[bytes]:
    made = lab.patches([step(n) for n in range(1, count + 1)])
    return [
        raw.replace(b"Subject: [PATCH] ", b"Subject: [PATCH v2 %d/%d] " % (n, count))
        for n, (_, raw) in enumerate(made, start=1)
    ]


COVER = b"""\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A Tester <tester@example.com>
Date: Fri, 2 Jan 2026 03:04:05 +0100
Subject: [PATCH v2 0/3] What it is about

Text.
"""


def test_a_thread_is_in_the_order_of_its_numbers(lab: Lab) -> None:
    one, two, three = thread(lab)
    box = read(lab, b"".join([three, COVER, one, two]))
    assert [draft.subject for draft in box.drafts] == ["Größe 1", "Größe 2", "Größe 3"]
    assert box.skipped == ("mail 2 of box: What it is about",)


def test_a_thread_with_a_gap_or_two_versions_is_refused(lab: Lab) -> None:
    one, two, three = thread(lab)
    with pytest.raises(FindingError, match="box lacks patch 2 of 3") as caught:
        read(lab, one + three)
    assert caught.value.code == "mail-missing"
    with pytest.raises(FindingError, match="has a patch of 3 twice"):
        read(lab, one + two + three + two)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"diff --git", b"diff --gut", "no-diff"),
        (b"Date: ", b"X-Date: ", "no-date"),
        (b"From: A Tester <tester@example.com>", b"X-From: x", "no-author"),
        (b"charset=UTF-8", b"charset=no-such", "not-a-mail"),
        (b"\nBecause", b"\n\xff", "encoded"),
    ],
)
def test_what_is_no_patch_is_refused_by_its_number(
    lab: Lab, old: bytes, new: bytes, code: str
) -> None:
    made = lab.patches([Step("0001-a.patch", {"x": b"x\n"}), Step("0002-ü.patch", {"y": b"y\n"})])
    first, second = (raw for _, raw in made)
    assert old in second or old == b"\nBecause"
    with pytest.raises(FindingsError) as caught:
        read(lab, first + second.replace(old, new))
    (finding,) = caught.value.findings
    assert (finding.code, finding.file) == (code, "mail 2 of box")


def test_a_nul_in_a_message_is_named(lab: Lab, mail: bytes) -> None:
    with pytest.raises(FindingsError) as caught:
        read(lab, mail.replace(b"and one.", b"and\0one."))
    assert [(one.code, one.file) for one in caught.value.findings] == [("nul", "mail 1 of box")]


def test_a_mail_that_git_cannot_read_has_a_next_step(lab: Lab, mail: bytes) -> None:
    with pytest.raises(FindingsError) as caught:
        read(lab, mail.replace(b"charset=UTF-8", b"charset=no-such"))
    assert caught.value.hint


@pytest.mark.parametrize("sign", [(), ("--signature=2.39.5",), ("--signature=A Tester\nCompany",)])
def test_what_says_where_a_mail_is_made_is_no_diff(
    lab: Lab, sign: tuple[str, ...], tmp_path: Path
) -> None:
    ((_, raw),) = lab.patches([step(1)])
    want = only(lab, raw)
    tree = lab.tree(lab.base, step(1).changes)
    head = lab.commit_tree(tree, lab.commit, step(1).message)
    (sign_file := tmp_path / "signature").write_text(sign[0].partition("=")[2] if sign else "")
    options = ("--stdout", "--full-index", f"--signature-file={sign_file}" if sign else "-1")
    made = lab.git.output("format-patch", *options, f"--base={lab.commit}", "-1", head)
    assert b"\nbase-commit: " in made
    assert only(lab, made).diff.rstrip(b"\n") == want.diff.rstrip(b"\n")
    # As b4 sends one patch.
    by_b4 = (
        raw + b"\n---\nbase-commit: " + lab.commit.encode() + b"\nchange-id: 2026-x\n"
        b"\nBest regards,\n-- \nA Tester <tester@example.com>\n"
    )
    assert only(lab, by_b4).diff.rstrip(b"\n") == want.diff.rstrip(b"\n")


def test_a_base_in_a_file_is_content(lab: Lab) -> None:
    told = b"--\n\nbase-commit: " + b"1" * 40 + b"\n"
    ((_, raw),) = lab.patches([Step("0001-a.patch", {"x": told})])
    assert b"\n+base-commit: " in only(lab, raw).diff
    lab.base = lab.tree(lab.base, {"x": told})
    lab.commit = lab.commit_tree(lab.base, None, "with x")
    ((_, raw),) = lab.patches([Step("0001-a.patch", {"x": None, "y": b"y\n"})])
    assert only(lab, raw).diff.count(b"diff --git") == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b"no mail\n", bytes(range(256)), b"\0" * 99])
def test_what_is_no_mailbox(lab: Lab, data: bytes) -> None:
    with pytest.raises(FindingError) as caught:
        read(lab, data)
    assert caught.value.code == "not-a-mailbox"


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("s\n", "s\n\nTopic: t\nUpstream-Status: Pending\nSigned-off-by: A <a@b.c>\n"),
        ("s\n\nb\n", "s\n\nb\n\nTopic: t\nUpstream-Status: Pending\nSigned-off-by: A <a@b.c>\n"),
        (
            "s\n\nTopic: u\nSigned-off-by: A <a@b.c>\n",
            "s\n\nUpstream-Status: Pending\nTopic: u\nSigned-off-by: A <a@b.c>\n",
        ),
        (
            "s\n\nb\n---\nb\n",
            "s\n\nb\n---\nb\n\nTopic: t\nUpstream-Status: Pending\nSigned-off-by: A <a@b.c>\n",
        ),
    ],
)
def test_trailers_are_added_where_git_adds_them(
    lab: Lab, hostile_git_config: Path, message: str, wanted: str
) -> None:
    with (hostile_git_config / ".gitconfig").open("a") as config:
        config.write("[trailer]\n where = before\n ifexists = replace\n separators = #\n")
    subject, _, body = message.partition("\n")
    draft = Draft("x", subject, body, "A", "a@b.c", "", b"")
    made = complete(lab.git, draft, Trailers("t", "Pending", "A <a@b.c>"))
    assert made.message == wanted
    assert read_trailers(made.message)["Upstream-Status"] == ("Pending",)


FUZZ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(
    data=st.lists(st.sampled_from(TOKENS) | st.binary(max_size=9), max_size=20).map(b"".join),
    whole=st.booleans(),
    where=st.floats(0, 1),
)
def test_any_mailbox(lab: Lab, mail: bytes, data: bytes, whole: bool, where: float) -> None:
    at = int(where * len(mail))
    data = data if whole else mail[:at] + data + mail[at:]
    with contextlib.suppress(FindingError):
        for draft in read(lab, data).drafts:
            with contextlib.suppress(FindingsError):
                draft.patch("x")
    assert isinstance(lab.git, Git)
