"""A mailbox as drafts: git splits and decodes the mails, as it does for ``git am``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email import message_from_bytes, policy

from vpatch.errors import FindingError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.draft import Draft, as_git_names, diff_of, notes_on
from vpatch.patches.mbox import lost_prefix, strip_space
from vpatch.scratch import scratch_folder

_START = re.compile(rb"\s*(?:From |[!-9;-~]+:)")
_NUMBER = re.compile(r"\[[^\]]*PATCH[^\]]*?\b(\d+)/(\d+)\s*\]")


@dataclass(frozen=True)
class Mailbox:
    """What a mailbox holds.

    Attributes:
        skipped: Mails without a patch that introduce the others: cover letters.
    """

    drafts: tuple[Draft, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _Numbered:
    """A draft, and the N and M of its ``[PATCH N/M]``; 0 where there is none."""

    draft: Draft
    number: int
    total: int


def read_mailbox(git: Git, data: bytes, name: str) -> Mailbox:
    """The mails of an mbox, or one mail.

    Transfer encodings are undone, texts become UTF-8, and a mail whose every line ends in CR LF
    loses its CRs; CRs of single lines are the patch's.

    Args:
        git: Any repository of our own: git reads mails in one.
        data: The file's bytes.
        name: What sentences call the file.

    Raises:
        FindingError: it is no mailbox.
        FindingsError: a mail has no patch, no author or no date, is no text, or mails are missing.
        HostError: git failed.
    """
    read = [
        _read(git, mail, f"mail {n} of {name}") for n, mail in enumerate(_split(git, data, name), 1)
    ]
    covers = [one for one in read if not one.draft.diff and one.total and not one.number]
    mails = [one for one in read if one not in covers]
    findings = [finding for one in mails for finding in _incomplete(one.draft)]
    if findings:
        raise FindingsError(findings, hint="Nothing was written. Mend the mailbox.")
    ordered = _in_order(mails, name)
    return Mailbox(
        drafts=tuple(one.draft for one in ordered),
        skipped=tuple(f"{one.draft.origin}: {one.draft.subject}" for one in covers),
    )


def _split(git: Git, data: bytes, name: str) -> list[bytes]:
    if not data.strip():
        raise _no_mailbox(name, "it is empty")
    with scratch_folder("mails") as folder:
        box = folder / "mbox"
        box.write_bytes(data)
        parts = folder / "mails"
        parts.mkdir()
        options = ("-b", "--keep-cr", f"-o{parts}")
        output = git.run("mailsplit", *options, "--", str(box), ok=(0, 1, 128))
        if output.status or not _START.match(data):
            why = output.complaint if output.status else "it does not start as a mail does"
            raise _no_mailbox(name, why)
        return [path.read_bytes() for path in sorted(parts.iterdir())]


def _no_mailbox(name: str, why: str) -> FindingError:
    return FindingError(
        f"{name} is no mailbox: {why}",
        hint="Give what git format-patch --stdout writes, or one mail.",
        code="not-a-mailbox",
    )


def _read(git: Git, mail: bytes, origin: str) -> _Numbered:
    mail = _without_transport(mail)
    with scratch_folder("mail") as folder:
        message, patch = folder / "message", folder / "patch"
        files = (str(message), str(patch))
        output = git.run("mailinfo", "--no-scissors", *files, stdin=mail, ok=(0, 1, 128))
        if output.status:
            finding = Finding(origin, None, "not-a-mail", f"git cannot read it: {output.complaint}")
            raise FindingsError([finding], hint="Ask for the mail as plain text, in UTF-8.")
        body, behind = message.read_bytes(), patch.read_bytes()
    body, behind = _plain_lines(body, behind)
    lines = (line.partition(": ") for line in _text(output.stdout, origin).split("\n"))
    said = {key: value for key, colon, value in lines if colon}
    raw_subject = _raw_subject(mail)
    numbered = _NUMBER.search(raw_subject)
    draft = Draft(
        origin=origin,
        subject=said.get("Subject", ""),
        body=strip_space(_text(body, origin)),
        author_name=as_git_names(said.get("Author", "")),
        author_email=said.get("Email", ""),
        date=said.get("Date", ""),
        diff=diff_of(behind),
        notes=notes_on(lost_prefix(raw_subject), said.get("Author", "")),
    )
    number, total = (int(numbered[1]), int(numbered[2])) if numbered else (0, 0)
    return _Numbered(draft, number, total)


def _text(data: bytes, origin: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        finding = Finding(origin, None, "encoded", "the message is not in the charset that it says")
        raise FindingsError([finding], hint="Ask for the mail as UTF-8.") from error


def _without_transport(mail: bytes) -> bytes:
    return mail.replace(b"\r\n", b"\n") if _all_crlf(mail) else mail


def _plain_lines(body: bytes, behind: bytes) -> tuple[bytes, bytes]:
    """What a transfer encoding hid: a mail program's CR LF at the end of every line."""
    if not _all_crlf(behind):
        return body, behind
    return body.replace(b"\r\n", b"\n"), behind.replace(b"\r\n", b"\n")


def _all_crlf(data: bytes) -> bool:
    return b"\r\n" in data and data.count(b"\r\n") == data.count(b"\n")


def _raw_subject(mail: bytes) -> str:
    # mailinfo gives the subject without its brackets: what they were is only for people.
    head = mail if not mail.startswith((b"From ", b">From ")) else mail.partition(b"\n")[2]
    try:
        subject = message_from_bytes(head, policy=policy.default)["Subject"]
    except (ValueError, LookupError, IndexError):
        return ""
    return " ".join(str(subject or "").split())


def _incomplete(draft: Draft) -> list[Finding]:
    wanted = (
        ("no-diff", draft.diff, "it has no git patch"),
        ("no-subject", draft.subject, "it has no subject"),
        (
            "no-author",
            draft.author_name and draft.author_email,
            "its author has no name or address",
        ),
        ("no-date", draft.date, "it has no date"),
        ("nul", "\0" not in draft.message, "it has a NUL in its message, at which git ends it"),
    )
    return [draft.found(code, message) for code, value, message in wanted if not value]


def _in_order(mails: list[_Numbered], name: str) -> list[_Numbered]:
    """The mails as their senders numbered them, if they did."""
    totals = {one.total for one in mails if one.total}
    numbers = sorted(one.number for one in mails)
    if len(totals) != 1 or any(not one.total for one in mails):
        return mails
    (total,) = totals
    if numbers == list(range(1, total + 1)):
        return sorted(mails, key=lambda one: one.number)
    missing = sorted(set(range(1, total + 1)) - set(numbers))
    if missing:
        raise FindingError(
            f"{name} lacks patch {', '.join(map(str, missing))} of {total}",
            hint="Save the whole thread, or number the mails anew: git format-patch.",
            code="mail-missing",
        )
    raise FindingError(
        f"{name} has a patch of {total} twice",
        hint="Keep one version of each mail.",
        code="mail-twice",
    )
