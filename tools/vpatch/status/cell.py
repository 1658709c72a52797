"""A cell of the status: a release and a topic, one word, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vpatch.smoke.stored import StoredCheck, StoredReport
from vpatch.status.defects import Defect

Word = Literal["broken", "proven", "stale", "patched", "needed", "upstream", "unknown"]
MEANING: Mapping[Word, str] = {
    "broken": "a check of the smoke fails with this revision, or a gate on the patched tree",
    "proven": "vLLM's engine ran with this revision, and every check of the topic passed",
    "stale": "proven for an older revision of the series only",
    "patched": "the series has patches of it; no stored report speaks for it",
    "needed": "the release needs it, and no patch is there",
    "upstream": "the release needs no patch of it",
    "unknown": "nothing was looked at",
}
_DEVICES = {"cpu": "CPU", "cuda": "GPU"}
_NAMED = 3


@dataclass(frozen=True)
class Proof:
    """What a stored report says of a topic.

    Attributes:
        passed: How many checks.
        failed: Those that failed, each with its evidence.
        not_run: Those that could not be asked.
    """

    report: StoredReport
    passed: int
    failed: tuple[StoredCheck, ...]
    not_run: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all that its tier asks of the topic passed."""
        whole = not (self.failed or self.not_run or self.report.only)
        return self.passed > 0 and whole

    @property
    def line(self) -> str:
        """It, on one line."""
        report = self.report
        ran = f"revision {report.revision}" if report.revision is not None else "as it is"
        where = _DEVICES.get(report.device, report.device) + (f", {report.gpu}" * bool(report.gpu))
        counts = ((self.passed, "pass"), (len(self.failed), "fail"), (len(self.not_run), "not-run"))
        told = ", ".join(f"{count} {word}" for count, word in counts if count)
        wheel = f"wheel {report.wheel}" if report.wheel else "an installed vLLM"
        sha256 = f", sha256 {report.sha256[:12]}" if report.sha256 else ""
        runners = "+".join(report.runners) or "no runner named"
        return (
            f"{ran}, {_tier(report)}, {where}, {runners}, {report.when[:10]}: {told} "
            f"({wheel}{sha256}; {report.file})"
        )

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        report = self.report
        return {
            "report": report.file,
            "revision": report.revision,
            "vllm": report.vllm,
            "wheel": report.wheel or None,
            "sha256": report.sha256 or None,
            "tier": report.tier,
            "only": list(report.only),
            "device": report.device,
            "gpu": report.gpu or None,
            "runners": list(report.runners),
            "when": report.when,
            "passed": self.passed,
            "failed": [{"check": one.name, "evidence": one.evidence} for one in self.failed],
            "not_run": list(self.not_run),
        }


def _tier(report: StoredReport) -> str:
    if not report.only:
        return f"tier {report.tier}"
    named = " ".join(f"--check {one}" for one in report.only[:_NAMED])
    more = len(report.only) - _NAMED
    return f"a part of tier {report.tier} ({named}{f' and {more} more' if more > 0 else ''})"


@dataclass(frozen=True)
class Cell:
    """A release and a topic.

    Attributes:
        needed: Why the release as it is needs the topic.
        upstream: What it has of it itself.
        patches: Subjects.
        proofs: Of its series, the newest first.
        current: Those of this very revision and its bytes.
        seen: What runs of the release as it is showed.
        broken: Why it is.
    """

    topic: str
    word: Word
    needed: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()
    current: tuple[Proof, ...] = ()
    seen: tuple[Proof, ...] = ()
    broken: tuple[str, ...] = ()
    why: str = ""
    revision: int | None = None

    @property
    def label(self) -> str:
        """The word, and of which revision or on what."""
        if self.word == "stale":
            last = max(one.report.revision or 0 for one in self.proofs if one.good)
            other = "other bytes of " if last == self.revision else ""
            return f"proven for {other}revision {last}"
        if self.word == "proven":
            mine = [one.report for one in self.current if one.good]
            devices = sorted({_DEVICES.get(one.device, one.device) for one in mine})
            tiers = sorted({one.tier for one in mine})
            return f"proven {'+'.join(devices)} {'+'.join(tiers)}"
        return self.word

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "topic": self.topic,
            "status": self.word,
            "label": self.label,
            "needed": list(self.needed),
            "upstream": list(self.upstream),
            "patches": list(self.patches),
            "proven": [one.as_dict() for one in self.proofs],
            "seen_unpatched": [one.as_dict() for one in self.seen],
            "broken": list(self.broken),
            "why": self.why or None,
        }


@dataclass(frozen=True)
class Row:
    """A release.

    Attributes:
        defects: Those that docs/defects.md knows of it as it is, each with its topic.
    """

    tag: str
    revision: int | None
    cells: tuple[Cell, ...]
    trouble: str = ""
    why: str = ""
    defects: tuple[tuple[str, Defect], ...] = ()

    @property
    def counted(self) -> str:
        """How many defects it has as it is, and what its series leaves."""
        left = sum(defect.left for _, defect in self.defects)
        mended = len(self.defects) - left
        return (
            f"{self.tag} as it is: {len(self.defects)} defects of docs/defects.md; its series "
            f"mends {mended}, {left} are left"
        )

    @property
    def broken(self) -> bool:
        """Whether anything of it is."""
        return bool(self.trouble) or any(cell.word == "broken" for cell in self.cells)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "release": self.tag,
            "revision": self.revision,
            "trouble": self.trouble or None,
            "gates": self.why or None,
            "defects": [
                {
                    "number": defect.number,
                    "topic": topic or None,
                    "text": defect.text,
                    "now": defect.now,
                    "left": defect.left,
                }
                for topic, defect in self.defects
            ],
            "topics": [cell.as_dict() for cell in self.cells],
        }
