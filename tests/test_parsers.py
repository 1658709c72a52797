"""Whatever bytes the readers are given: a value or a finding, never another exception."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from series_lab import TAG, Content, Lab, Step, numbered
from test_pin import PIN
from vpatch.findings import Finding, FindingsError
from vpatch.git import blob_id
from vpatch.patches.form import lint_form
from vpatch.patches.lint import lint_patch
from vpatch.patches.patch import Patch
from vpatch.patches.pin import Pin
from vpatch.patches.place import applied_in_place
from vpatch.patches.roundtrip import lost_on_the_way
from vpatch.patches.series import Series, lint

NAME = "0001-x.patch"
# Pieces that mean something to one of the readers, or to git.
TOKENS = (
    b"\n", b"\r\n", b"\0", b"---\n", b"--- a/f\n", b"+++ b/f\n", b"@@ -1 +1 @@\n", b"-- \n2.39.5\n",
    b"diff --git a/f b/f\n", b"diff --git ", b"diff -u x y\n", b"Index: f\n", b"From ", b"From: ",
    b">From ", b"Subject: ", b"Date: ", b"[PATCH] ", b"=?utf-8?q?=C3?=", b"=?utf-8?b?a?=",
    b"=?x?q?a?=", b"index 0..1\n", b"new file mode 100644\n", b"deleted file mode 100644\n",
    b"rename from f\n", b"rename to g\n", b"copy from f\n", b"GIT binary patch\nliteral 1\n",
    b"\\ No newline at end of file\n", b"\xff", b"\xc3\xa9", b"\x85", b"\xe2\x80\xa8", b"\x0c",
    b" ",
    b"+a\n", b"-a\n", b" a\n", b'"a/\\303"', b"Content-Type: text/plain; charset=latin-1\n",
    b"Content-Transfer-Encoding: base64\n", b"-- >8 --\n", b"Topic: x\n", b"(cherry picked from ",
    b"@@ -99999999999999999999,1 +1 @@\n", b"Date: Fri, 99 Jan 2026 03:04:05 +9999\n",
)  # fmt: skip
CHEAP = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WITH_GIT = settings(CHEAP, max_examples=25)


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A patch with everything in it."""
    base: dict[str, Content] = {
        "m": numbered(40), "gone": b"bye\n", "t": b"#!/bin/sh\n", "old name": numbered(30),
        "odd": b"caf\xe9\n\x85\x0c\nend", "b.bin": bytes(range(256)), "ln": ("120000", b"m"),
    }  # fmt: skip
    changes: dict[str, Content] = {
        "m": numbered(40, changed={3: "three", 30: "thirty"}), "gone": None, "new": b"hello\n",
        "empty": b"", "t": ("100755", b"#!/bin/sh\n"), "old name": None,
        "new name": numbered(30, changed={10: "ten"}), "odd": b"caf\xe9s\n\x85\x0c\nend\n",
        "b.bin": b"\0\1", "ln": ("120000", b"t"), "über/café": b"tab\n",
    }  # fmt: skip
    lab = Lab(tmp_path_factory.mktemp("parsers"), base)
    ((_, patch),) = lab.patches([Step(NAME, changes, subject="Grüße an alle")])
    return patch


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[float, int, bytes]]:
    """(where, how many bytes to drop, what to put there), some of each."""
    edit = st.tuples(
        st.floats(0, 1),
        st.sampled_from([0, 0, 1, 7, 40]),
        st.sampled_from(TOKENS) | st.binary(max_size=4),
    )
    return draw(st.lists(edit, min_size=1, max_size=4))


def edited(raw: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for where, dropped, put in changes:
        at = int(where * len(raw))
        raw = raw[:at] + put + raw[at + dropped :]
    return raw


def test_the_patch_that_is_edited_is_good(raw: bytes) -> None:
    codes = {finding.code for finding in lint_patch(Patch.parse(NAME, raw))}
    assert codes == {"binary"}


def read(raw: bytes) -> Patch | None:
    try:
        return Patch.parse(NAME, raw)
    except FindingsError as error:
        lost = [finding for finding in error.findings if not placed(finding, raw)]
    if lost:
        pytest.fail(f"findings without a place: {lost}")
    return None


def placed(finding: Finding, raw: bytes) -> bool:
    return finding.line is not None and 1 <= finding.line <= raw.count(b"\n") + 2


@CHEAP
@given(changes=edits())
def test_an_edited_patch(raw: bytes, changes: list[tuple[float, int, bytes]]) -> None:
    data = edited(raw, changes)
    patch = read(data)
    if patch is not None:
        assert all(placed(finding, data) for finding in lint_patch(patch))
        assert data.endswith(patch.diff)
        assert patch.raw == data


@CHEAP
@given(data=st.lists(st.sampled_from(TOKENS) | st.binary(max_size=9), max_size=30).map(b"".join))
def test_any_bytes(data: bytes) -> None:
    for lead in (b"", b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"):
        read(lead + data)
    head = (
        b"From " + b"0" * 40 + b" Mon\nFrom: A <a@b>\nDate: Fri, 2 Jan 2026 03:04:05 +0100\n"
        b"Subject: s\n\n"
    )
    patch = read(head + data)
    if patch is not None:
        list(lint_patch(patch))


@CHEAP
@given(
    data=st.binary(max_size=80)
    | st.text(alphabet="0123-a.patch#\n\r\t é/", max_size=80).map(str.encode)
)
def test_any_series_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "series").write_bytes(data)
        with contextlib.suppress(FindingsError):
            lint(Path(folder))
        with contextlib.suppress(FindingsError):
            Series.read(Path(folder), TAG)


@CHEAP
@given(changes=edits())
def test_an_edited_pin(changes: list[tuple[float, int, bytes]]) -> None:
    data = edited(PIN.to_toml(), changes)
    try:
        pin = Pin.parse(data, "pin.toml")
    except FindingsError:
        return
    assert Pin.parse(pin.to_toml(), "pin.toml") == pin


@CHEAP
@given(data=st.binary(max_size=60))
def test_any_pin(data: bytes) -> None:
    with pytest.raises(FindingsError):
        Pin.parse(data, "pin.toml")


WORDS = st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("=?_<>[]:,.\"'\\ "),
    max_size=60,
)


@WITH_GIT
@given(subject=WORDS, body=WORDS, name=WORDS)
@example(subject="=?utf-8?q?x?=", body="b", name="A")
@example(subject="s", body="b", name='A, "B" <C>')
@example(subject="s" * 300, body="é " * 50, name="é " * 60)
def test_what_lint_accepts_survives_git(subject: str, body: str, name: str) -> None:
    """A message that lint has nothing against is the same after git am and format-patch."""
    head = (
        b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
        + f"From: {name} <a@b.example>\nDate: Fri, 2 Jan 2026 03:04:05 +0530\n".encode()
        + f"Subject: [PATCH] {subject}\n\nWhy.\n{body}\n---\n\n".encode()
    )  # fmt: skip
    diff = b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
    patch = read(head + diff)
    if patch is None or any(True for _ in lint_form(patch)) or not patch.subject:
        return
    if any(finding.code == "lost-prefix" for finding in lint_patch(patch)):
        return
    assert lost_on_the_way([patch]) == ()


LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b"c ", b"-- ", b"@@ x", b"\xff\x85"]), max_size=9
)
FILES = st.tuples(LINES, st.booleans()).map(
    lambda made: b"\n".join(made[0]) + (b"\n" if made[1] and made[0] else b"")
)


@WITH_GIT
@given(before=FILES, after=FILES, mode=st.sampled_from(["100644", "100755"]))
def test_the_diff_that_git_writes_is_read_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes, mode: str
) -> None:
    assume((before, "100644") != (after, mode))
    lab = Lab(tmp_path_factory.mktemp("diff"), {"f": before})
    ((_, raw),) = lab.patches([Step(NAME, {"f": (mode, after), "g": after})])
    modified, added = Patch.parse(NAME, raw).files
    assert applied_in_place(before, modified) == after
    assert applied_in_place(b"", added) == after
    assert modified.mode_new == mode
    if before != after:
        assert (modified.blob_old, modified.blob_new) == (blob_id(before), blob_id(after))


@CHEAP
@given(
    names=st.lists(st.from_regex(r"[a-z0-9]{1,9}(-[a-z]{1,5})?", fullmatch=True), max_size=5),
    comment=st.text(alphabet="# abc", max_size=9),
)
def test_a_series_is_read_as_it_was_written(raw: bytes, names: list[str], comment: str) -> None:
    files = [f"{n:04}-{name}.patch" for n, name in enumerate(names, start=1)]
    with tempfile.TemporaryDirectory() as folder:
        for name in files:
            (Path(folder) / name).write_bytes(raw)
        lines = "".join(f"{name}  # {comment}\n" for name in files)
        (Path(folder) / "series").write_text(f"#{comment}\n\n{lines}")
        series = Series.read(Path(folder), TAG)
    assert [(patch.file, patch.raw) for patch in series.patches] == [(name, raw) for name in files]
