"""A series: the ordered patches of one pinned release, as a folder that three tools can use.

The ``series`` file is quilt's: one name a line, comments after ``#``. Its order must be the order
of the names, because ``git am patches/TAG/*.patch`` goes by names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from vpatch.errors import HostError
from vpatch.findings import Finding, FindingsError
from vpatch.patches.lint import lint_patch
from vpatch.patches.patch import Patch
from vpatch.tags import parse_tag

LISTING = "series"
_LONGEST_NAME = 90
# What patch, editors and merges leave behind, and what may be meant as a patch.
_STRAY = (".rej", ".orig", ".bak", "~", ".diff", ".mbox", ".eml", ".PATCH", ".patch")
_NAME = re.compile(r"[0-9]{4}-[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*\.patch")


@dataclass(frozen=True)
class Series:
    """The patches of one release, in order.

    Attributes:
        tag: The release that they are made for.
        folder: Where they lie.
    """

    tag: str
    folder: Path
    patches: tuple[Patch, ...]

    @classmethod
    def read(cls, folder: Path, tag: str | None = None) -> Series:
        """Reads a series folder.

        Args:
            folder: ``patches/TAG``.
            tag: The release; by default the folder's name says it.

        Raises:
            FindingsError: the ``series`` file and the folder disagree, or a patch cannot be read.
            HostError: a file cannot be opened.
        """
        read = _read(folder)
        if read.findings:
            raise FindingsError(read.findings, hint=f"Repair {folder / LISTING} or the patch.")
        patches = tuple(patch for _, patch in read.patches)
        return cls(tag=tag or parse_tag(folder.name), folder=folder, patches=patches)

    @cached_property
    def sha256(self) -> str:
        """One hash over the names and bytes of all patches, in order."""
        digest = hashlib.sha256()
        for patch in self.patches:
            name = patch.file.encode()
            digest.update(b"%d %s %d\n" % (len(name), name, len(patch.raw)))
            digest.update(patch.raw)
        return digest.hexdigest()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, in the order in which they come first."""
        return tuple(dict.fromkeys(patch.topic for patch in self.patches))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that the series touches, sorted."""
        return tuple(sorted({path for patch in self.patches for path in patch.paths}))


def lint(folder: Path) -> tuple[Finding, ...]:
    """What is wrong with a series folder: its list, its names, and each patch's form.

    Args:
        folder: ``patches/TAG``.

    Returns:
        Findings in the order of the files; empty where all is well.

    Raises:
        HostError: a file cannot be opened.
    """
    read = _read(folder)
    found = [
        *_listing_form(folder),
        *read.findings,
        *_numbers(folder, read.names),
        *_same_subjects(folder, read.patches),
        *_strays(folder),
    ]
    for _, patch in read.patches:
        found += [_placed(folder, finding) for finding in lint_patch(patch)]
    return tuple(found)


def is_good_name(name: str) -> bool:
    """Whether a patch may be called so, but for its number."""
    return _NAME.fullmatch(name) is not None and len(name) <= _LONGEST_NAME


def is_seen(name: str) -> bool:
    """Whether ``*.patch`` means this file, for a shell and for git am: not a hidden one."""
    return name.endswith(".patch") and not name.startswith(".")


@dataclass(frozen=True)
class _Read:
    """What a folder holds: (line in ``series``, patch) pairs, and what stands in the way."""

    names: dict[str, int]
    patches: tuple[tuple[int, Patch], ...]
    findings: tuple[Finding, ...]


def _read(folder: Path) -> _Read:
    listing = str(folder / LISTING)
    findings: list[Finding] = []
    names: dict[str, int] = {}
    listed: set[str] = set()
    for line, text in _entries(folder):
        listed.add(text)
        if not _NAME.fullmatch(text):
            message = f"{text!r} is not a patch name like 0001-say-what.patch, alone on its line"
            findings.append(Finding(listing, line, "bad-name", message))
        elif text in names:
            message = f"{text} is listed a second time, first on line {names[text]}"
            findings.append(Finding(listing, line, "listed-twice", message))
        else:
            names[text] = line
    findings += _unlisted(folder, listed)
    patches: list[tuple[int, Patch]] = []
    for name, line in names.items():
        patch, troubles = _read_patch(folder, name, line)
        findings += troubles
        if patch is not None:
            patches.append((line, patch))
    return _Read(names, tuple(patches), tuple(findings))


def _read_patch(folder: Path, name: str, line: int) -> tuple[Patch | None, list[Finding]]:
    try:
        return Patch.parse(name, _bytes(folder / name)), []
    except FileNotFoundError:
        message = f"{name} is listed, but there is no such file"
        return None, [Finding(str(folder / LISTING), line, "no-such-file", message)]
    except FindingsError as error:
        return None, [_placed(folder, finding) for finding in error.findings]


def _entries(folder: Path) -> Iterator[tuple[int, str]]:
    try:
        text = _bytes(folder / LISTING).decode("utf-8")
    except FileNotFoundError:
        finding = Finding(str(folder / LISTING), None, "no-series", "there is no series file")
        raise FindingsError([finding]) from None
    except UnicodeDecodeError as error:
        finding = Finding(str(folder / LISTING), None, "bad-series", "the file is not UTF-8")
        raise FindingsError([finding]) from error
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.split("#", 1)[0].strip()
        if entry:
            yield number, entry


def _unlisted(folder: Path, listed: set[str]) -> Iterator[Finding]:
    for path in sorted(folder.glob("*.patch")):
        if is_seen(path.name) and path.name not in listed:
            yield Finding(
                str(path),
                None,
                "not-listed",
                f"the patch is not listed in {LISTING}: git am uses it",
            )


def _bytes(path: Path) -> bytes:
    try:
        # A link could lead anywhere, and git am and quilt would each follow it in their own way.
        if path.is_symlink():
            finding = Finding(str(path), None, "link", "the file is a symbolic link")
            raise FindingsError([finding])
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HostError(
            f"{path} cannot be read: {error.strerror}", hint="Check the file's permissions."
        ) from error


def _numbers(folder: Path, names: dict[str, int]) -> Iterator[Finding]:
    last = ""
    for name, line in names.items():
        number = name[:4]
        if number <= last:
            message = f"{name} stands behind number {last}: git am goes by numbers"
            yield Finding(str(folder / LISTING), line, "order", message)
        last = max(last, number)
        if len(name) > _LONGEST_NAME:
            message = f"{name} has {len(name)} characters, more than {_LONGEST_NAME}"
            yield Finding(str(folder / LISTING), line, "long-name", message)
    wrong = [n for n, name in enumerate(sorted(names), start=1) if name[:4] != f"{n:04}"]
    if wrong:
        name = sorted(names)[wrong[0] - 1]
        message = f"{name} is patch {wrong[0]} of the series, whose number is {wrong[0]:04}"
        yield Finding(str(folder / LISTING), names[name], "number", message)


def _listing_form(folder: Path) -> Iterator[Finding]:
    """What quilt and people do not see in the ``series`` file, and tools may trip over."""
    lines = _bytes(folder / LISTING).split(b"\n")
    listing = str(folder / LISTING)
    for number, line in enumerate(lines, start=1):
        if line != line.strip():
            message = "the line has blanks, or a CR, at its start or end"
            yield Finding(listing, number, "series-blank", message)
    if lines[-1]:
        yield Finding(listing, len(lines), "series-end", "the last line has no newline at its end")


def _strays(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()):
        if not is_seen(path.name) and path.name.endswith(_STRAY):
            message = "the file is a leftover, or a patch under a name that no tool applies"
            yield Finding(str(path), None, "stray-file", message)


def _same_subjects(folder: Path, patches: tuple[tuple[int, Patch], ...]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for _, patch in patches:
        first = seen.setdefault(patch.subject, patch.file)
        if first != patch.file:
            yield Finding(
                str(folder / patch.file),
                patch.mail.message_line,
                "same-subject",
                f"the subject is that of {first}: {patch.subject!r}",
            )


def _placed(folder: Path, finding: Finding) -> Finding:
    """The finding with its file named as the caller named the folder."""
    inside = "/" not in finding.file
    return replace(finding, file=str(folder / finding.file)) if inside else finding
