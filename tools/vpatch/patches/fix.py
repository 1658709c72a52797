"""The mechanical repairs of a series: what has one right answer, and loses nothing.

A patch keeps its message, author, date and changes: each repaired file is read again and compared,
and one that reads differently stays as it is. The order of ``series`` counts; names follow it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from vpatch.findings import FindingsError
from vpatch.patches.export import is_ours, slug
from vpatch.patches.form import NO_COMMIT, PLAIN_HEADERS, SIGNATURE, is_stat, lead_lines
from vpatch.patches.mbox import strip_space
from vpatch.patches.patch import Patch
from vpatch.patches.pin import PIN
from vpatch.patches.series import LISTING, is_good_name
from vpatch.patches.swap import Content

_ID_END = len(NO_COMMIT)


@dataclass(frozen=True)
class Fixes:
    """A repaired series.

    Attributes:
        files: name -> bytes of ``series`` and of every patch that is a plain file.
        read: The names of the same files before.
        done: A sentence for each repair.
    """

    files: Mapping[str, bytes]
    read: frozenset[str]
    done: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    """A line of ``series`` that names a patch, and what stands above it; ``name`` may be none."""

    above: tuple[str, ...]
    line: str
    name: str


def fixed(before: Content) -> Fixes:
    """Repairs what a series folder holds.

    Args:
        before: The folder (``swap.read_folder``).

    Raises:
        UnicodeDecodeError: ``series`` is no UTF-8 text.
    """
    files = {
        path: data
        for path, (kind, _, data) in before.items()
        if kind == "file" and path != PIN and is_ours(path)
    }
    if LISTING not in files:
        return Fixes(files, frozenset(files), ())
    done: list[str] = []
    patches = {name: data for name, data in files.items() if name != LISTING}
    if files[LISTING].startswith(codecs.BOM_UTF8):
        done.append(f"{LISTING}: the byte order mark is gone")
    entries, tail = _entries(files[LISTING])
    entries, tail = _without_second(entries, tail, done)
    entries = _with_missing(entries, patches, done)
    repaired = {name: _repaired(name, data, done) for name, data in patches.items()}
    names = _names(entries, repaired, done)
    made = {names.get(name, name): data for name, data in repaired.items()}
    made[LISTING] = _listing(entries, tail, names)
    if made[LISTING] != files[LISTING] and not done:
        done.append(f"{LISTING}: blanks at line ends, or the newline at the end")
    return Fixes(made, frozenset(files), tuple(done))


def _entries(listing: bytes) -> tuple[list[_Entry], tuple[str, ...]]:
    entries: list[_Entry] = []
    above: list[str] = []
    for line in (line.strip() for line in listing.decode("utf-8-sig").split("\n")):
        name = line.split("#", 1)[0].strip()
        if name:
            entries.append(_Entry(tuple(above), line, name))
            above = []
        else:
            above.append(line)
    return entries, tuple(above)


def _without_second(
    entries: list[_Entry], tail: tuple[str, ...], done: list[str]
) -> tuple[list[_Entry], tuple[str, ...]]:
    """Each name once; what a person wrote at a line that goes stands above the next one."""
    kept: dict[str, _Entry] = {}
    said: tuple[str, ...] = ()
    for entry in entries:
        above = (*said, *entry.above)
        if entry.name in kept:
            _, sign, comment = entry.line.partition("#")
            said = (*above, sign + comment) if sign else above
            done.append(f"{LISTING}: the second line of {entry.name} is gone")
        else:
            kept[entry.name] = replace(entry, above=above)
            said = ()
    return list(kept.values()), (*said, *tail)


def _with_missing(
    entries: list[_Entry], patches: Mapping[str, bytes], done: list[str]
) -> list[_Entry]:
    """With the patches that are not listed, unless a line may mean one of them."""
    listed = {entry.name for entry in entries}
    if not listed <= patches.keys():
        return entries
    made = list(entries)
    for name in sorted(name for name in patches.keys() - listed if _is_patch(name, patches[name])):
        place = next((n for n, entry in enumerate(made) if entry.name > name), len(made))
        made.insert(place, _Entry((), name, name))
        done.append(f"{LISTING}: {name} is listed")
    return made


def _is_patch(name: str, raw: bytes) -> bool:
    try:
        return bool(Patch.parse(name, raw).files)
    except FindingsError:
        return False


def _names(entries: list[_Entry], patches: Mapping[str, bytes], done: list[str]) -> dict[str, str]:
    """Old name -> new name of the listed patches that are there."""
    listed = [entry.name for entry in entries]
    if any(name not in patches for name in listed):
        return {}  # a line that names no file: how many patches there are is not known
    names: dict[str, str] = {}
    for number, name in enumerate(listed, start=1):
        new = f"{number:04d}-{_stem(name, patches[name])}.patch"
        names[name] = new
        if new != name:
            done.append(f"{name} is {new}")
    return names


def _stem(name: str, raw: bytes) -> str:
    """The part of a name that says what the patch does: the old one, if it is a good one."""
    if is_good_name(name):
        return name[5:].removesuffix(".patch")
    try:
        return slug(Patch.parse(name, raw).subject)
    except FindingsError:
        return slug(name.removesuffix(".patch"))


def _listing(entries: list[_Entry], tail: tuple[str, ...], names: Mapping[str, str]) -> bytes:
    lines: list[str] = []
    for entry in entries:
        line = entry.line.replace(entry.name, names.get(entry.name, entry.name), 1)
        lines += [*entry.above, line]
    lines += tail
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _repaired(name: str, raw: bytes, done: list[str]) -> bytes:
    """A patch without what is personal about it; the same where a repair would change more."""
    for repair, what in _REPAIRS:
        try:
            patch = Patch.parse(name, raw)
        except FindingsError:
            return raw
        made = repair(patch)
        if made != raw and _says_the_same(patch, made):
            raw = made
            done.append(f"{name}: {what}")
    return raw


def _says_the_same(patch: Patch, made: bytes) -> bool:
    try:
        again = Patch.parse(patch.file, made)
    except FindingsError:
        return False
    mails = [
        (mail.subject, mail.message, mail.author_name, mail.author_email, mail.date, mail.trailers)
        for mail in (patch.mail, again.mail)
    ]
    diffs = [one.diff[: _signature_at(one.diff)] for one in (patch, again)]
    return mails[0] == mails[1] and diffs[0] == diffs[1]


def _signature_at(diff: bytes) -> int | None:
    found = SIGNATURE.search(diff)
    return found.start() + 1 if found else None


def _commit_id(patch: Patch) -> bytes:
    return NO_COMMIT + patch.raw[_ID_END:]


def _headers(patch: Patch) -> bytes:
    head, _, rest = patch.raw.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    return b"\n".join([first, *_plain(lines)]) + b"\n\n" + rest


def _plain(lines: list[bytes]) -> Iterator[bytes]:
    kept = True
    for line in lines:
        if not line.startswith((b" ", b"\t")):
            kept = line.partition(b":")[0].lower() in PLAIN_HEADERS
        if kept:
            yield line


def _blanks(patch: Patch) -> bytes:
    head, _, _ = patch.raw.partition(b"\n\n")
    start = len(head) + 2
    message = patch.raw[start : patch.mail.rest].decode("utf-8")
    clean = strip_space(message).encode("utf-8")
    end = b"\n" if message.endswith("\n\n") else b""
    return patch.raw[:start] + clean + end + patch.raw[patch.mail.rest :]


def _diffstat(patch: Patch) -> bytes:
    lead = lead_lines(patch)
    if not lead or not all(is_stat(line) for _, line in lead):
        return patch.raw
    # As format-patch --no-stat writes it: an empty line, and no dashes.
    return patch.raw[: patch.mail.rest].rstrip(b"\n") + b"\n\n" + patch.diff


def _signature(patch: Patch) -> bytes:
    return patch.raw[: _signature_at(patch.raw)]


_REPAIRS: tuple[tuple[Callable[[Patch], bytes], str], ...] = (
    (_commit_id, "the first line names no commit"),
    (_headers, "headers of one mail are gone"),
    (_blanks, "blanks and empty lines that git am drops are gone"),
    (_diffstat, "the diffstat is gone"),
    (_signature, "the mail signature is gone"),
)
