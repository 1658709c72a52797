"""Reports of smoke runs as files: what `vpatch smoke --report FILE` writes, and reads again.

A stored report is what `--json` prints, without what is only of its machine: the ends of logs, and
folders in texts. Whoever reads one distrusts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from packaging.version import InvalidVersion, Version

from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import write_atomically
from vpatch.preflight.strictjson import read_object
from vpatch.smoke.cases import Tier
from vpatch.smoke.when import check_when

SCHEMA = "vpatch/smoke/1"
FOLDER = Path("docs/reports")
"""Where a repository keeps them."""

_MOST = 8 << 20
_TEXT = 400
TIERS: tuple[str, ...] = get_args(Tier)
DEVICES = ("cpu", "cuda")
_VERDICTS = ("pass", "fail", "not-run")
_DROPPED = ("log_tail", "log")
# An absolute path's folders; `states/llama-nested/v1` is the name of a check.
_FOLDERS = re.compile(r"(?<![\w.\])}~-])(?:~|/)(?:[^\s/'\"`:,;()\[\]{}<>|]+/|/)+|~/")
_PATCHED = re.compile(r"(?:.*\.)?kimi\.(\d{1,6})")


@dataclass(frozen=True)
class StoredCheck:
    """A check of a stored report."""

    name: str
    verdict: str
    evidence: str
    as_expected: bool

    @property
    def runner(self) -> str:
        """The model runner that its name tells."""
        return next((part for part in self.name.split("/") if part in {"v1", "v2"}), "")


@dataclass(frozen=True)
class StoredReport:
    """A smoke run that somebody kept.

    Attributes:
        file: Its name.
        tag: The release.
        revision: Of the series; None for a release as it is.
        topics: Of the series that ran; None where the report does not say.
        series: Its hash; empty where the report does not say.
        wheel, sha256: The wheel that ran; empty for a vLLM that was installed.
        when: ISO 8601, a day at least.
        only: What --check named: the run asked no more of its tier; empty: all of it.
    """

    file: str
    tag: str
    revision: int | None
    topics: tuple[str, ...] | None
    series: str
    vllm: str
    wheel: str
    sha256: str
    torch: str
    device: str
    gpu: str
    tier: str
    when: str
    checks: tuple[StoredCheck, ...]
    only: tuple[str, ...] = ()

    @property
    def runners(self) -> tuple[str, ...]:
        """The model runners that its checks name."""
        return tuple(sorted({check.runner for check in self.checks} - {""}))

    def counts(self) -> Mapping[str, int]:
        """How many checks have which verdict."""
        told = [check.verdict for check in self.checks]
        return {word: told.count(word) for word in _VERDICTS if word in told}


def identity(vllm: str) -> tuple[str, int | None]:
    """The release and the series' revision that a version of vLLM says.

    Raises:
        InvalidVersion: It is none.
    """
    version = Version(vllm)
    patched = _PATCHED.fullmatch(version.local or "")
    return f"v{version.public}", int(patched[1]) if patched else None


def stripped(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without what is only of its machine."""
    kept: dict[str, Any] = _clean(report)
    return kept


def without_folders(text: str) -> str:
    """A text in which a path is its last name."""
    return _FOLDERS.sub("", text)


def check_place(path: Path) -> None:
    """Looks whether a report can be written there, before minutes are spent on it.

    Raises:
        UsageError: It is a folder, or lies in none.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="Name a file for --report.", code="bad-path")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder {path.parent} for the report",
            hint="Make it first, or name another file.",
            code="bad-path",
        )


def store(path: Path, report: Mapping[str, Any]) -> None:
    """Writes a report, whole or not at all: a line for each member, and for each check.

    Raises:
        HostError: The disk refuses.
    """
    kept = stripped(report)
    checks = kept.pop("checks", [])
    head = json.dumps(kept, indent=1).removesuffix("\n}")
    rows = ",\n".join(f"  {json.dumps(check)}" for check in checks)
    write_atomically(path, f'{head},\n "checks": [\n{rows}\n ]\n}}\n'.encode())


def read_reports(folder: Path) -> tuple[StoredReport, ...]:
    """All reports of a folder, by name.

    Raises:
        UsageError: There is no such folder.
        FindingError: A file is no report, or one of a run that is yet to come.
        HostError: A file cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder} with reports",
            hint="`vpatch smoke TAG --report DIR/NAME.json` writes one.",
            code="no-reports",
        )
    return tuple(read_report(path) for path in sorted(folder.glob("*.json")))


def read_report(path: Path) -> StoredReport:
    """One report.

    Raises:
        FindingError: It is none, or of a run that is yet to come.
        HostError: It cannot be read.
    """
    if not path.is_file():  # a pipe would wait for ever
        raise _bad(path, "is no file")
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST + 1)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}", hint="Mend that.") from error
    if len(raw) > _MOST:
        raise _bad(path, f"is larger than {_MOST} bytes")
    try:
        found = read_object(raw, str(path))
    except FindingError as error:
        raise _bad(path, error.message.removeprefix(f"{path} ")) from None
    if found.get("schema") != SCHEMA:
        raise _bad(path, f"has the schema {str(found.get('schema'))[:40]!r}, not {SCHEMA!r}")
    return _report(path, found)


def _report(path: Path, found: Mapping[str, Any]) -> StoredReport:
    def text(name: str, *, needed: bool = False) -> str:
        value = found.get(name)
        if isinstance(value, str) and value[:_TEXT] == value and (value or not needed):
            return value
        if value is None and not needed:
            return ""
        raise _bad(path, f"has no usable {name}")

    def one_of(name: str, words: Collection[str]) -> str:
        value = text(name, needed=True)
        if value not in words:
            raise _bad(path, f"has the {name} {value[:40]!r}, which is none")
        return value

    vllm = text("vllm", needed=True)
    try:
        tag, revision = identity(vllm)
    except InvalidVersion:
        raise _bad(path, f"names the vLLM {vllm!r}, which is no version") from None
    said = (found.get("tag", tag), found.get("revision", revision))
    if said != (tag, revision) or found.get("patched", revision is not None) is not (
        revision is not None
    ):
        raise _bad(path, f"contradicts itself: vLLM {vllm} is {tag}, revision {revision}")
    when = text("when") or text("date", needed=True)
    try:
        check_when(path, when, tag)
    except ValueError:
        raise _bad(path, "has no usable when") from None
    return StoredReport(
        file=path.name,
        tag=tag,
        revision=revision,
        topics=_topics(path, found),
        series=_series(found),
        vllm=vllm,
        wheel=text("wheel"),
        sha256=text("sha256"),
        torch=text("torch"),
        device=one_of("device", DEVICES),
        gpu=text("gpu"),
        tier=one_of("tier", TIERS),
        when=when,
        checks=_checks(path, found.get("checks")),
        only=_only(path, found.get("only", [])),
    )


def _topics(path: Path, found: Mapping[str, Any]) -> tuple[str, ...] | None:
    series = found.get("series")
    if series is None:
        return None
    topics = series.get("topics") if isinstance(series, dict) else None
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise _bad(path, "has no usable series")
    return tuple(topics)


def _series(found: Mapping[str, Any]) -> str:
    sha256 = (found.get("series") or {}).get("sha256")
    return sha256 if isinstance(sha256, str) else ""


def _only(path: Path, found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _bad(path, "has no usable only")
    return tuple(found)


def _checks(path: Path, found: object) -> tuple[StoredCheck, ...]:
    if not isinstance(found, list) or not found:
        raise _bad(path, "has no checks")
    read: list[StoredCheck] = []
    for row in found:
        each: Mapping[str, Any] = row if isinstance(row, dict) else {}
        name, verdict, evidence = (each.get(key) for key in ("check", "verdict", "evidence"))
        if (
            not (isinstance(name, str) and isinstance(evidence, str))
            or verdict not in _VERDICTS
            or not re.fullmatch(r"[\w.-]{1,60}(/[\w.-]{1,60}){1,5}", name)
        ):
            raise _bad(path, f"has a check that is none: {str(row)[:80]}")
        if name in {one.name for one in read}:
            raise _bad(path, f"has the check {name} twice")
        expected = each.get("as_expected", verdict == "pass") is True
        read.append(StoredCheck(name, str(verdict), evidence, expected))
    return tuple(read)


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _clean(each) for key, each in value.items() if key not in _DROPPED}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    if isinstance(value, str) and value != SCHEMA:
        return without_folders(value)
    return value


def _bad(path: Path, why: str) -> FindingError:
    return FindingError(
        f"{path} {why}",
        hint="A report is what `vpatch smoke ... --report FILE` writes; move other files away.",
        code="bad-report",
    )
