"""The mail around a git patch: headers, message and trailers, read as ``git am`` reads them.

Only what three tools read alike is accepted (``git am``, ``quilt push``, ``vpatch apply``): one
plain UTF-8 mail per file, not transfer-encoded, its message free of lines that ``git am`` would
take for headers. Everything else is a finding, never a guess.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Mapping
from dataclasses import dataclass

from vpatch.findings import Finding, FindingsError

_SEPARATOR = re.compile(rb"From [0-9a-f]{40} ")
_HEADER = re.compile(rb"([!-9;-~]+):[ \t]*(.*)")
_ENCODED_WORD = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")
_SUBJECT_PREFIX = re.compile(r"(?:re:|[ \t:]|\[[^\]]*\])+", re.IGNORECASE)
_FORMAT_PREFIX = re.compile(r"\[PATCH[^\]]*\][ \t]*")
_IN_BODY = re.compile(r"(?:from|subject|date):|>From |\[PATCH\]\s", re.IGNORECASE)
_ADDRESS = re.compile(r"(?P<name>.*?)[ \t]*<(?P<email>[^<>\s]+)>$")
_TRAILER = re.compile(r"([A-Za-z0-9-]+)[ \t]*:(.*)", re.DOTALL)
_GIT_TRAILERS = ("Signed-off-by: ", "(cherry picked from commit ")
_BLANKS = " \t\n\r"  # what git calls white space: less than C does, and far less than Python
_PLAIN_TRANSFER = ("", "7bit", "8bit", "binary")
_PLAIN_CHARSET = ("", "utf-8", "us-ascii")


@dataclass(frozen=True)
class Mail:
    """What stands before the diff in a patch file.

    Attributes:
        subject: The subject as ``git am`` commits it: decoded, without its ``[PATCH]``.
        raw_subject: The decoded subject as it stands in the file.
        body: The message without its subject, as ``git am`` commits it.
        trailers: key -> values of the message's trailers.
        message_line: Line of the file at which the message starts, from 1.
        end_line: Line at which the message ends (its ``---``, or the first line of the diff).
        rest: Offset of that line's first byte.
    """

    subject: str
    raw_subject: str
    body: str
    author_name: str
    author_email: str
    date: str
    trailers: Mapping[str, tuple[str, ...]]
    message_line: int
    end_line: int
    rest: int

    @property
    def message(self) -> str:
        """The commit message that ``git am`` makes, its last newline included."""
        return strip_space(f"{self.subject}\n\n{self.body}")


def read_mail(file: str, raw: bytes) -> Mail:
    """Reads the part of a patch file before its diff.

    Args:
        file: Name for findings.
        raw: The whole patch file.

    Raises:
        FindingsError: the file is not one plain mail, or tools would disagree about it.
    """
    if not _SEPARATOR.match(raw):
        raise _refused(file, 1, "not-a-mail", "does not start with git's `From <commit id> ` line")
    _check_lead(file, raw)
    headers, body_at, body_line = _read_headers(file, raw)
    _check_encoding(file, headers)
    rest, end_line = _end_of_message(raw, body_at, body_line)
    text = _decode(file, body_line, raw[body_at:rest])
    _check_message(file, text, body_line)
    author = _ADDRESS.match(_header(file, headers, "from"))
    if author is None:
        raise _refused(file, 1, "no-author", "has no `From: Name <address>` header")
    raw_subject = _one_line(_header(file, headers, "subject"))
    prefix = _SUBJECT_PREFIX.match(raw_subject)
    subject = _one_line(raw_subject[prefix.end() :] if prefix else raw_subject)
    body = strip_space(text)
    return Mail(
        subject=subject,
        raw_subject=raw_subject,
        body=body,
        author_name=_unquote(author["name"]),
        author_email=author["email"],
        date=_header(file, headers, "date"),
        trailers=read_trailers(f"{subject}\n\n{body}"),
        message_line=body_line,
        end_line=end_line,
        rest=rest,
    )


def _check_lead(file: str, raw: bytes) -> None:
    """Between the message and the diff too, `git am` looks for the next mail."""
    lead = raw.partition(b"\ndiff --git ")[0]
    for number, line in enumerate(lead.split(b"\n"), start=1):
        if b"\0" in line:
            raise _refused(file, number, "nul", "holds a NUL, at which git ends the message")
        if number > 1 and line.startswith(b"From "):
            message = "holds a line that starts with `From `: git am sees another mail there"
            raise _refused(file, number, "second-mail", message)


def lost_prefix(raw_subject: str) -> str:
    """What ``git am`` strips from a subject besides the ``[PATCH]`` that git put there."""
    own = _FORMAT_PREFIX.sub("", raw_subject, count=1)
    found = _SUBJECT_PREFIX.match(own)
    return found[0].strip() if found else ""


def strip_space(text: str) -> str:
    """``git stripspace``: no trailing blanks, no runs of empty lines, none at either end."""
    lines = [line.rstrip(_BLANKS) for line in text.split("\n")]
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    if kept and not kept[-1]:
        kept.pop()
    return "".join(f"{line}\n" for line in kept)


def read_trailers(message: str) -> dict[str, tuple[str, ...]]:
    """The trailers of a commit message, as ``git interpret-trailers --parse`` finds them.

    Keys that differ only in case are one trailer, under the spelling that came first.
    """
    found: dict[str, tuple[str, ...]] = {}
    spelling: dict[str, str] = {}
    for line in _unfold(_trailer_block(message.rstrip(_BLANKS).split("\n"))):
        match = _TRAILER.match(line)
        if match is None:
            continue
        key = spelling.setdefault(match[1].lower(), match[1])
        found[key] = (*found.get(key, ()), match[2].strip(_BLANKS))
    return found


def _trailer_block(lines: list[str]) -> list[str]:
    """The last paragraph, if git would call it trailers; the title's paragraph never is."""
    start = len(lines)
    while start and lines[start - 1].strip(_BLANKS):
        start -= 1
    block = [line for line in lines[start:] if not line.startswith("#")]
    if not any(line.strip(_BLANKS) for line in lines[:start]):
        return []
    trailers, others, recognized = _count_trailers(block)
    if (recognized and trailers * 3 >= others) or (trailers and not others):
        return block
    return []


def _count_trailers(block: list[str]) -> tuple[int, int, bool]:
    # Counted from the end, as git does it: an indented line belongs to what stands above it.
    trailers = others = indented = 0
    recognized = False
    for line in reversed(block):
        if line.startswith(_GIT_TRAILERS):
            trailers, indented, recognized = trailers + 1, 0, True
        elif line[0] in _BLANKS:
            indented += 1
        elif _TRAILER.match(line):
            trailers, indented = trailers + 1, 0
        else:
            others, indented = others + 1 + indented, 0
    return trailers, others + indented, recognized


def _unfold(block: list[str]) -> list[str]:
    lines: list[str] = []
    for line in block:
        if line[0] in _BLANKS and lines:
            lines[-1] = f"{lines[-1].rstrip(_BLANKS)} {line.strip(_BLANKS)}"
        else:
            lines.append(line)
    return lines


def _read_headers(file: str, raw: bytes) -> tuple[dict[str, str], int, int]:
    headers: dict[str, str] = {}
    position = raw.find(b"\n") + 1
    number = 2
    key = ""
    while position:
        end = raw.find(b"\n", position)
        if end < 0:
            break
        line = raw[position:end].rstrip(b"\r")
        if not line:
            return headers, end + 1, number + 1
        found = _HEADER.match(line)
        if line[:1] in (b" ", b"\t") and key:
            headers[key] += " " + _decode(file, number, line).strip()
        elif found is not None:
            key = found[1].decode("ascii").lower()
            headers[key] = _decode(file, number, found[2]).strip()
        else:
            raise _refused(file, number, "not-a-mail", "is not a mail header")
        position, number = end + 1, number + 1
    raise _refused(file, number, "not-a-mail", "has no empty line after its mail headers")


def _check_encoding(file: str, headers: Mapping[str, str]) -> None:
    transfer = headers.get("content-transfer-encoding", "").strip().lower()
    if transfer not in _PLAIN_TRANSFER:
        raise _refused(
            file, 1, "encoded", f"is {transfer}-encoded, which only git am undoes: write it as 8bit"
        )
    kind, _, parameters = headers.get("content-type", "text/plain").partition(";")
    if kind.strip().lower() != "text/plain":
        raise _refused(file, 1, "encoded", f"is a {kind.strip()} mail, not text/plain")
    charset = re.search(r'charset="?([^";\s]+)', parameters, re.IGNORECASE)
    if charset is not None and charset[1].lower() not in _PLAIN_CHARSET:
        raise _refused(file, 1, "encoded", f"is written in {charset[1]}, not in UTF-8")


def _end_of_message(raw: bytes, start: int, number: int) -> tuple[int, int]:
    position = start
    while position < len(raw):
        end = raw.find(b"\n", position) + 1 or len(raw)
        if ends_message(raw[position:end]):
            return position, number
        position, number = end, number + 1
    return len(raw), number


def ends_message(line: bytes) -> bool:
    """Where ``git mailinfo`` sees the patch begin."""
    if line.startswith((b"diff -", b"Index: ")):
        return True
    if not line.startswith(b"---"):
        return False
    return not line[3:].strip() or (line[3:4] == b" " and not line[4:5].isspace())


def _check_message(file: str, text: str, first_line: int) -> None:
    started = False
    for number, line in enumerate(text.split("\n"), start=first_line):
        if not started and line.strip():
            started = True
            if _IN_BODY.match(line):
                raise _refused(
                    file, number, "in-body-header", "git am would take this line for a mail header"
                )
        if line.startswith("From "):
            raise _refused(
                file, number, "second-mail", "git am would take this line for another mail's start"
            )


def _header(file: str, headers: Mapping[str, str], key: str) -> str:
    value = headers.get(key, "")
    if not value:
        raise _refused(file, 1, f"no-{key}", f"has no {key.capitalize()} header")
    try:
        return _decode_words(value)
    except (LookupError, UnicodeDecodeError, binascii.Error) as error:
        raise _refused(
            file, 1, "encoded", f"has a {key.capitalize()} header that cannot be decoded: {error}"
        ) from error


def _decode_words(value: str) -> str:
    """RFC 2047: encoded words, the white space between two of them dropped."""
    joined = re.sub(r"(\?=)\s+(?==\?)", r"\1", value)
    return _ENCODED_WORD.sub(_decode_word, joined)


def _decode_word(word: re.Match[str]) -> str:
    charset, encoding, text = word.groups()
    data = text.encode("ascii")
    decoded = (
        base64.b64decode(data, validate=True)
        if encoding in "bB"
        else quopri.decodestring(data, header=True)
    )
    return decoded.decode(charset)


def _one_line(text: str) -> str:
    return re.sub(f"[{_BLANKS}]+", " ", text).strip(_BLANKS)


def _unquote(name: str) -> str:
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        return re.sub(r"\\(.)", r"\1", name[1:-1])
    return name


def _decode(file: str, number: int, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = number + data[: error.start].count(b"\n")
        raise _refused(file, line, "encoded", "is not UTF-8 in its mail part") from error


def _refused(file: str, line: int, code: str, message: str) -> FindingsError:
    return FindingsError([Finding(file=file, line=line, code=code, message=message)])
