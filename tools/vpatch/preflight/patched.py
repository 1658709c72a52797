"""Where the patched release is to be had that makes a drafter work, beside a release as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import Version

from vpatch.preflight.case import Case
from vpatch.preflight.judge import judge
from vpatch.preflight.mends import Mends
from vpatch.preflight.releases import PATCHED, Runner, facts_of
from vpatch.preflight.verdict import Verdict
from vpatch.tags import version_of


@dataclass(frozen=True)
class Patched:
    """What the patched release does with the same drafter.

    Attributes:
        tag: The one that is asked about, or, where that has no pin or does not mend it, the
            nearest one that does.
        asked: The tag that was asked about.
        pinned: Whether that has a pin.
        verdict: On `tag`.
    """

    tag: str
    asked: str
    pinned: bool
    verdict: Verdict

    @property
    def command(self) -> str:
        """What makes its wheel."""
        return f"./build.sh {self.tag}"

    @property
    def said(self) -> str:
        """It, on one line."""
        options = "".join(f": {option}" for option in self.verdict.options)
        works = f"it works there{f' with an option{options}' if options else ''}"
        if self.tag == self.asked:
            return f"{self.command} makes the patched {self.tag}, by its pin: {works}"
        why = "does not mend it with its series" if self.pinned else "has no pin"
        near = f"the nearest patched release that mends it is {self.tag}"
        return f"{self.asked} {why}; {near}: {self.command}; {works}"

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "release": self.tag,
            "command": self.command,
            "verdict": self.verdict.word,
            "options": list(self.verdict.options),
        }


def patched_release(
    case: Case, runner: Runner | None, pins: Sequence[str], mends_of: Callable[[str], Mends]
) -> Patched | None:
    """The patched release that makes a case work; None where none does.

    Args:
        case: With a release as it is.
        runner: The model runner that was asked for; None: each release's own.
        pins: Releases with a pin.
        mends_of: What a release's series has of later revisions.
    """
    asked = f"v{'.'.join(map(str, case.release.version.release))}"
    for tag in _nearest(asked, pins):
        release = facts_of(version_of(tag), patched=True, runner=runner, mends=mends_of(tag))
        verdict = judge(replace(case, release=release))
        if verdict.word in ("works", "works-with"):
            return Patched(tag, asked, asked in pins, verdict)
    return None


def _nearest(asked: str, pins: Sequence[str]) -> Iterator[str]:
    """Those whose series preflight knows: itself, then by distance; of two as near the newer."""
    known = [tag for tag in pins if version_of(tag) in PATCHED]
    here = _place(version_of(asked))
    order = sorted(known, key=version_of, reverse=True)
    return iter(sorted(order, key=lambda tag: abs(_place(version_of(tag)) - here)))


def _place(version: Version) -> int:
    return (version.major * 1000 + version.minor) * 1000 + version.micro
