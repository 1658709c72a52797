"""The form of one patch: what lets three tools use it, and people know why it is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vpatch.findings import Finding
from vpatch.patches.form import lint_form
from vpatch.patches.mbox import lost_prefix
from vpatch.patches.patch import Patch

_TOPIC = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# OpenEmbedded's words; the ones that point at something outside must say at what.
_STATUS = re.compile(
    r"Pending(?: \[[^\]]*\w.*\])?"
    r"|(?:Submitted|Denied) \[.*(?:https?://\S+|#[0-9]+|\S+@\S+).*\]"
    r"|(?:Backport|Inappropriate) \[[^\]]*\w.*\]",
    re.DOTALL,
)
_FORWARDED = re.compile(r"no|not-needed|https?://\S+")
_SIGN_OFF = re.compile(r"[^<>]+ <(?P<email>[^<>\s]+@[^<>\s]+)>")
_FULL_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_PACKAGE = "vllm/"
_TESTS = "tests/"


def lint_patch(patch: Patch) -> Iterator[Finding]:
    """What is wrong with a patch that can be read; files are named by ``patch.file``."""
    yield from _trailer(
        patch, "Topic", _TOPIC, "one purpose in small letters, like `eagle3-interface`"
    )
    yield from _trailer(
        patch,
        "Upstream-Status",
        _STATUS,
        "Pending, Submitted or Denied with an [address], Backport or Inappropriate with a [reason]",
    )
    if patch.trailer("Forwarded"):
        yield from _trailer(patch, "Forwarded", _FORWARDED, "no, not-needed or an address")
    yield from _sign_off(patch)
    yield from _message(patch)
    yield from _diff(patch)
    yield from lint_form(patch)


def _trailer(patch: Patch, key: str, form: re.Pattern[str], wish: str) -> Iterator[Finding]:
    values = patch.trailer(key)
    code = f"trailer-{key.lower()}"
    line = patch.line_of(f"{key}:".encode())
    if not values:
        yield Finding(patch.file, line, code, f"the message has no `{key}:` trailer ({wish})")
    elif len(values) > 1:
        yield Finding(patch.file, line, code, f"the message has {len(values)} `{key}:` trailers")
    elif not form.fullmatch(values[0]):
        yield Finding(patch.file, line, code, f"`{key}: {values[0]}` is not {wish}")
    elif key not in patch.trailers:
        yield Finding(patch.file, line, code, f"the trailer is to be spelled `{key}:`")


def _sign_off(patch: Patch) -> Iterator[Finding]:
    values = patch.trailer("Signed-off-by")
    line = patch.line_of(b"Signed-off-by:")
    code = "trailer-signed-off-by"
    if not values:
        message = "the message has no `Signed-off-by: Name <address>` trailer"
        yield Finding(patch.file, line, code, message)
        return
    found = [_SIGN_OFF.fullmatch(value) for value in values]
    if not all(found):
        yield Finding(patch.file, line, code, "a sign-off is not `Name <address>`")
    elif patch.mail.author_email not in {match["email"] for match in found if match}:
        message = f"the author, {patch.author}, has not signed off"
        yield Finding(patch.file, line, code, message)


def _message(patch: Patch) -> Iterator[Finding]:
    line = patch.mail.message_line
    lost = lost_prefix(patch.mail.raw_subject)
    if lost:
        message = f"git am would drop `{lost}` from the subject"
        yield Finding(patch.file, line, "lost-prefix", message)
    if not patch.subject:
        yield Finding(patch.file, line, "no-subject", "the subject is empty")
    cut = patch.raw.find(b"\r\n")
    if cut >= 0:
        number = patch.raw.count(b"\n", 0, cut) + 1
        message = "a line ends in CR LF, of which git am drops the CR"
        yield Finding(patch.file, number, "crlf", message)


def _diff(patch: Patch) -> Iterator[Finding]:
    for change in patch.files:
        if change.binary:
            message = f"the diff of {change.path} is binary, which quilt cannot apply"
            yield Finding(patch.file, change.line, "binary", message)
        blobs = [blob for blob in (change.blob_old, change.blob_new) if blob]
        if not all(_FULL_ID.fullmatch(blob) for blob in blobs):
            message = f"the blob ids of {change.path} are cut short: write them with --full-index"
            yield Finding(patch.file, change.line, "short-id", message)
    tests = [path for path in patch.paths if path.startswith(_TESTS)]
    package = [path for path in patch.paths if path.startswith(_PACKAGE)]
    if tests and package:
        yield Finding(
            patch.file,
            patch.diff_line,
            "tests-apart",
            f"the patch changes {package[0]} and {tests[0]}: tests are patches of their own",
        )
