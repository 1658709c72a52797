"""Whether messages, authors and dates survive `git am` followed by `git format-patch`.

Each patch becomes a commit as git am would make it, git writes that commit as a mail again, and
the mail has to say the same. The tree is of no matter here, so no release is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from vpatch.errors import HostError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.form import is_date
from vpatch.patches.mbox import Mail, read_mail
from vpatch.patches.patch import Patch
from vpatch.scratch import scratch_folder

_MAIL = re.compile(rb"^From 0{40} ", re.MULTILINE)
_FORMAT = ("--stdout", "--always", "--zero-commit", "--no-signature", "--no-stat", "--root")
_NOT_IN_A_NAME = re.compile(r"[<>\n\0]")


def lost_on_the_way(patches: Sequence[Patch]) -> tuple[Finding, ...]:
    """What a round trip changes; files are named by ``patch.file``.

    Raises:
        HostError: git failed for a reason that is not the patches'.
    """
    chosen = [patch for patch in patches if _can_be_committed(patch)]
    if not chosen:
        return ()
    with scratch_folder("lint") as folder:
        git = Git(folder)
        git.run("init", "--quiet", "--bare", "--template=")
        git.run("fast-import", "--quiet", stdin=b"".join(map(_commit, chosen)))
        written = git.output("format-patch", *_FORMAT, "refs/heads/series")
    starts = [match.start() for match in _MAIL.finditer(written)]
    mails = [written[a:b] for a, b in zip(starts, [*starts[1:], len(written)], strict=True)]
    if len(mails) != len(chosen):
        raise HostError(
            f"git format-patch wrote {len(mails)} mails of {len(chosen)} commits",
            hint="Check that git works here: git --version",
            code="git",
        )
    pairs = zip(chosen, mails, strict=True)
    return tuple(finding for patch, mail in pairs for finding in _compared(patch, mail))


def _can_be_committed(patch: Patch) -> bool:
    """What is refused by other rules already is not tried."""
    mail = patch.mail
    named = mail.author_name and not _NOT_IN_A_NAME.search(mail.author_name + mail.author_email)
    return bool(named and is_date(mail.date) and mail.message.strip())


def _commit(patch: Patch) -> bytes:
    mail = patch.mail
    when = parsedate_to_datetime(mail.date)
    zone = mail.date.rpartition(" ")[2]
    person = f"{mail.author_name} <{mail.author_email}> {int(when.timestamp())} {zone}".encode()
    message = mail.message.encode()
    return b"commit refs/heads/series\nauthor %s\ncommitter %s\ndata %d\n%s\n" % (
        person,
        person,
        len(message),
        message,
    )


def _compared(patch: Patch, written: bytes) -> list[Finding]:
    try:
        again = read_mail(patch.file, written)
    except FindingsError as error:
        what = f"git format-patch writes a mail that {error.findings[0].message}"
        return [Finding(patch.file, patch.mail.message_line, "no-round-trip", what)]
    lost = [name for name, one, other in _facts(patch.mail, again) if one != other]
    if not lost:
        return []
    message = f"git am and git format-patch do not give back the {' and the '.join(lost)}"
    return [Finding(patch.file, patch.mail.message_line, "no-round-trip", message)]


def _facts(one: Mail, other: Mail) -> tuple[tuple[str, str, str], ...]:
    return (
        ("subject", one.subject, other.subject),
        ("message", one.message, other.message),
        (
            "author",
            f"{one.author_name} <{one.author_email}>",
            f"{other.author_name} <{other.author_email}>",
        ),
        ("date", _moment(one.date), _moment(other.date)),
    )


def _moment(date: str) -> str:
    return parsedate_to_datetime(date).isoformat()
