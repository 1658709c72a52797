"""A change on its way into a series: what a mail or a commit says, before it has its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.diff import FileChange
from vpatch.patches.form import CRUD, SIGNATURE
from vpatch.patches.mbox import read_trailers, strip_space
from vpatch.patches.patch import Patch

_DIFF_START = re.compile(rb"^diff --git ", re.MULTILINE)
# `git format-patch --base` and b4 say behind the diff what it was made on; content has a sign.
_MADE_ON = re.compile(rb"^base-commit: (?:[0-9a-f]{40}|[0-9a-f]{64})$", re.MULTILINE)
_HEAD = (
    b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nFrom: draft <draft@localhost>\n"
    b"Date: Thu, 1 Jan 1970 00:00:00 +0000\nSubject: draft\n\n---\n\n"
)  # fmt: skip
_TESTS, _PACKAGE = "tests/", "vllm/"


@dataclass(frozen=True)
class Draft:
    """A message, its author and a diff.

    Attributes:
        origin: The mail or commit that it came from, as sentences name it.
        body: The message without its subject.
        date: When it was written, as git's ``GIT_AUTHOR_DATE`` takes it.
        diff: From the first ``diff --git`` on; empty where there is none.
        notes: What is not as the mail or commit has it, a sentence each.
    """

    origin: str
    subject: str
    body: str
    author_name: str
    author_email: str
    date: str
    diff: bytes
    notes: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The commit's message."""
        return strip_space(f"{self.subject}\n\n{self.body}")

    def patch(self, name: str) -> Patch:
        """The change alone as a patch, for placing it; its message is not this one.

        Raises:
            FindingsError: there is no diff, or it is none that git wrote.
        """
        try:
            patch = Patch.parse(name, _HEAD + self.diff)
        except FindingsError as error:
            raise FindingsError(
                [self.found(finding.code, finding.message) for finding in error.findings],
                hint="A patch is what git format-patch writes; nothing was written.",
            ) from error
        trailers = read_trailers(self.message)
        return replace(patch, mail=replace(patch.mail, subject=self.subject, trailers=trailers))

    def found(self, code: str, message: str) -> Finding:
        """A finding about this change."""
        subject = f" ({self.subject[:60]!r})" if self.subject else ""
        return Finding(self.origin, None, code, f"{message}{subject}")


@dataclass(frozen=True)
class Trailers:
    """What a message gets where it lacks it.

    Attributes:
        sign_off: ``Name <address>``; None adds none.
    """

    topic: str
    upstream_status: str = "Pending"
    sign_off: str | None = None


def complete(git: Git, draft: Draft, trailers: Trailers) -> Draft:
    """The draft with the trailers that it lacks, put where git puts trailers."""
    # git puts each new one in front: the last one here comes first.
    added = ["--where=start", "--if-exists=doNothing"]
    added += [f"--trailer=Upstream-Status: {trailers.upstream_status}"]
    added += [f"--trailer=Topic: {trailers.topic}"]
    if trailers.sign_off is not None:
        added += ["--where=end", "--if-exists=addIfDifferent"]
        added += [f"--trailer=Signed-off-by: {trailers.sign_off}"]
    made = git.output(
        "interpret-trailers", "--no-divider", *added, stdin=draft.message.encode("utf-8")
    )
    return replace(draft, body=strip_space(made.decode("utf-8").partition("\n")[2]))


def same_change(one: Sequence[FileChange], other: Sequence[FileChange]) -> bool:
    """Whether two diffs do the same, wherever in the files they do it."""
    return [_change(each) for each in one] == [_change(each) for each in other]


def _change(change: FileChange) -> tuple[object, ...]:
    """What a diff does, without line numbers, blob ids and how far these are cut."""
    modes = (change.mode_old, change.mode_new)
    bodies = tuple(hunk.body for hunk in change.hunks)
    whole = (change.blob_old[:7], change.blob_new[:7]) if change.binary else ()
    return change.kind, change.path_old, change.path_new, modes, bodies, whole


def tests_apart(draft: Draft) -> tuple[Draft, ...]:
    """The draft, or two where it changes the package and its tests: a series keeps them apart."""
    patch = draft.patch("draft")
    sides = [_is_test(change) for change in patch.files]
    if not (any(sides) and any(_is_package(change) for change in patch.files)):
        return (draft,)
    starts = [match.start() for match in _DIFF_START.finditer(draft.diff)]
    parts = [draft.diff[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    package, tests = (
        b"".join(part for part, test in zip(parts, sides, strict=True) if test is wanted)
        for wanted in (False, True)
    )
    notes = (*draft.notes, "its changes of tests are a patch of their own behind it")
    second = replace(draft, subject=f"tests: {draft.subject}", diff=tests, notes=())
    return replace(draft, diff=package, notes=notes), second


def _is_test(change: FileChange) -> bool:
    return all(path.startswith(_TESTS) for path in change.paths)


def _is_package(change: FileChange) -> bool:
    return any(path.startswith(_PACKAGE) for path in change.paths)


def as_git_names(name: str) -> str:
    """An author's name without what some versions of git drop at its ends."""
    return name.strip(CRUD)


def notes_on(lost: str, name: str) -> tuple[str, ...]:
    """What is said about a subject that lost something, and about a name that git would cut."""
    notes = (
        f"`{lost}` left the subject, where git am would drop it" if lost else "",
        f"the author {name!r} is written {as_git_names(name)!r}"
        if as_git_names(name) != name
        else "",
    )
    return tuple(filter(None, notes))


def diff_of(text: bytes) -> bytes:
    """The diff in what stands behind a message, without a mail's signature and its like."""
    found = _DIFF_START.search(text)
    if found is None:
        return b""
    diff = _without_base(text[found.start() :])
    signature = SIGNATURE.search(diff)
    diff = diff[: signature.start() + 1] if signature else diff
    # An empty line at the end is the end of a binary diff.
    return diff if diff.endswith(b"\n") else diff + b"\n"


def _without_base(diff: bytes) -> bytes:
    found = _MADE_ON.search(diff)
    if found is None or _DIFF_START.search(diff, found.end()):
        return diff
    return diff[: found.start()].removesuffix(b"\n---\n")
