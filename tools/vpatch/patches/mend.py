"""How each finding about a series is mended: one next step a rule, and which --fix takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vpatch.findings import Finding

_EXPORT = "Change the commit and export the series anew: vpatch edit TAG, vpatch export TAG."
_AMEND = "Write it so in the message, then pin the series: vpatch pin TAG."
_FIX = "vpatch lint --fix TAG, then vpatch pin TAG."

FIXABLE = frozenset(
    {
        "bad-name", "commit-id", "diffstat", "extra-header", "listed-twice", "long-name",
        "message-blank", "not-listed", "number", "order", "series-blank", "series-end",
        "signature",
    }
)  # fmt: skip
"""What ``vpatch lint --fix`` mends: what has one right answer that loses nothing."""

MEND = {
    "author": "Spell the author's name without the blank or the punctuation at its end.",
    "bad-date": "Write the date as git log --date=rfc writes it.",
    "bad-diff": _EXPORT,
    "bad-pin": "Settle what a merge left in it, or bring back the committed one (git restore), "
    "then: vpatch pin TAG.",
    "bad-series": "Write the file in UTF-8, one patch name a line.",
    "binary": "Make the file from text, or leave it out of the series.",
    "blob-chain": "Mend the patch, or let vpatch refresh TAG NAME write its index line anew.",
    "crlf": "Keep files with CR LF out of the series; convert a mail with: vpatch import.",
    "encoded": "Bring the mail in with vpatch import, which writes it as plain UTF-8.",
    "file-and-folder": "Split it: one patch that removes the one, and one that makes the other.",
    "in-body-header": "Start the message's first paragraph with another word, or indent the line.",
    "link": "Put the file itself where the link is.",
    "lost-prefix": "Write the subject without brackets or `Re:` in front, like `eagle3: say what`.",
    "lost-text": "Move the text into the message, above the line of three dashes; or remove it.",
    "no-author": "Write the header as `From: Name <address>`.",
    "no-date": "Write a `Date:` header, as git log --date=rfc writes it.",
    "no-diff": "Remove the patch from the folder and from the series file, or write its diff.",
    "no-from": "Write a `From: Name <address>` header.",
    "no-pin": "vpatch pin TAG",
    "no-round-trip": _EXPORT,
    "no-series": "List the patches in a file named series: ls *.patch > series.",
    "no-subject": "Write a subject: what the patch does, in one line.",
    "no-such-file": "Bring the file back (git restore), or remove its line if it is to go.",
    "not-a-mail": "Bring it in with vpatch import; a patch is what git format-patch writes.",
    "nul": "Remove the NUL from the message.",
    "other-tag": "vpatch pin TAG, in the folder of its tag.",
    "revision-reused": "vpatch pin TAG gives new bytes a new revision: bring back the committed "
    "pin.toml first.",
    "revision-lower": "Bring back the committed pin.toml, and run vpatch pin TAG.",
    "same-subject": "Give one of them another subject: export names files by it.",
    "scissors": "Break the dashes and scissors of the line.",
    "second-diff": "Indent the line by a word, or quote it: `diff --git`.",
    "second-mail": "Start the line with another word than `From `.",
    "series-changed": "vpatch pin TAG writes the next revision; git diff shows what changed.",
    "short-id": "vpatch refresh TAG NAME, or git format-patch --full-index.",
    "stray-file": "Remove the file, or bring it in with vpatch import.",
    "submodule": "Keep submodules out of the series.",
    "tests-apart": "Split it: the tests in a patch of their own, behind their fix.",
    "trailer-forwarded": _AMEND,
    "trailer-signed-off-by": "The author adds it: git commit --amend --signoff in vpatch edit TAG.",
    "trailer-topic": _AMEND,
    "trailer-upstream-status": _AMEND,
    "unsafe-path": "Give the file a plain name, inside the tree and out of .git.",
    **dict.fromkeys(FIXABLE, _FIX),
}


def mended(findings: Iterable[Finding], tag: str) -> tuple[Finding, ...]:
    """The findings with the next step for each."""
    return tuple(
        replace(finding, mend=_step(finding, tag)) if not finding.mend else finding
        for finding in findings
    )


def _step(finding: Finding, tag: str) -> str:
    name = finding.file.rsplit("/", 1)[-1]
    return MEND.get(finding.code, "").replace("TAG", tag).replace("NAME", name)
