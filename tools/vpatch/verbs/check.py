"""``vpatch check``: static checks of releases, trees and installations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.gates.answers import checked_of
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.gate import Verdict
from vpatch.gates.tree import of_folder, of_installation
from vpatch.patches.repo import pinned_tags
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.status.topics import topics_of_gate
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Mirror


@dataclass(frozen=True)
class _Series:
    """The series of the release that is looked at.

    Attributes:
        topics: Those that it carries.
        bare: It is the release as it is that was looked at.
    """

    tag: str
    topics: tuple[str, ...]
    bare: bool


_SIGNS = {"pass": "ok", "fail": "FAIL", "not-applicable": "-"}


def run(tags: Sequence[str], repo: Path, upstream: Upstream, *, bare: bool) -> Report:
    """Checks releases; all pinned ones where none is named.

    Raises:
        UsageError: not a tag, no such release, or one without a pin that is not ``--unpatched``.
        FindingError: a tree is not the one that its pin names.
        ConflictError: a patch does not fit.
        HostError: a release cannot be fetched or read.
    """
    pins = pinned_tags(repo)
    names = [parse_tag(tag) for tag in tags] or pins
    found = [_release(tag, repo, upstream, pins, bare=bare) for tag in names]
    return report([checked for checked, _ in found], found[0][1])


def run_folder(folder: Path) -> Report:
    """Checks a folder that holds ``vllm/``.

    Raises:
        UsageError: It holds none.
        HostError: A file cannot be read.
    """
    return report([check_tree(of_folder(folder))])


def run_installed(python: str) -> Report:
    """Checks the vLLM that an interpreter would import; it is not run.

    Raises:
        UsageError: It has none.
        HostError: The interpreter does not run, or a file cannot be read.
    """
    return report([check_tree(of_installation(python))])


def _release(
    tag: str, repo: Path, upstream: Upstream, pins: Sequence[str], *, bare: bool
) -> tuple[Checked, _Series | None]:
    if tag in pins:
        ready = pipeline.prepare(tag, repo, upstream, bare=bare)
        git, name = Mirror.open(upstream.cache).git, f"{tag}{' unpatched' * bare}"
        checked = checked_of(git, ready.applied.tree, name, upstream.cache)
        return checked, _Series(tag, ready.series.topics, bare=bare)
    if not bare:
        raise UsageError(
            f"{tag} has no series to apply",
            hint=f"Check the release as it is: vpatch check {tag} --unpatched",
            code="no-pin",
        )
    mirror, release = pipeline.fetch(tag, upstream, None)
    return checked_of(mirror.git, release.tree, f"{tag} unpatched", upstream.cache), None


def report(checked: Sequence[Checked], series: _Series | None = None) -> Report:
    """What was found, for people and machines.

    Args:
        series: That of the first release; None where it has none.
    """
    return Report(
        "check",
        {"trees": [each.as_dict() for each in checked]},
        _one(checked[0], series) if len(checked) == 1 else _many(checked, series),
        exit_code=1 if any(each.failed for each in checked) else 0,
    )


def _one(checked: Checked, series: _Series | None) -> RenderableType:
    rows = [_row(each) for each in checked.verdicts]
    return lines(
        table(("gate", "verdict", "when", "topic", "upstream", "place"), rows),
        *(plain(text) for each in checked.failed for text in _told(each, series)),
        plain(_summary(checked, series)),
        *(plain(text) for text in _next_step(checked, series)),
    )


def _next_step(checked: Checked, series: _Series | None) -> Iterator[str]:
    if checked.failed and series is not None and series.bare:
        tag = series.tag
        yield f"  -> with its series: vpatch check {tag}; as a wheel: vpatch build {tag}"


def _row(verdict: Verdict) -> tuple[str, ...]:
    found, gate = verdict.found, verdict.gate
    place = f"{found.evidence[0].file}:{found.evidence[0].line}" if found.evidence else found.note
    when = found.when if verdict.failed else ""
    return (
        gate.name,
        _SIGNS[found.word],
        when,
        gate.topic or "-",
        gate.upstream or "-",
        place,
    )


def _told(verdict: Verdict, series: _Series | None) -> Iterator[str]:
    found = verdict.found
    yield ""
    yield f"{verdict.gate.name}: {verdict.gate.asks}: {_when(verdict)}"
    if found.error:
        yield f"  {found.error}"
    if found.note:
        yield f"  {found.note}"
    for each in found.evidence:
        yield f"  {each}"
    mends = [
        f"topic {_topic(verdict, series)}" if verdict.gate.topic else "",
        f"upstream since {verdict.gate.upstream}" if verdict.gate.upstream else "",
    ]
    known = " or ".join(filter(None, mends))
    yield f"  -> mended by {known}" if known else "  -> nothing of this project mends it"


def _topic(verdict: Verdict, series: _Series | None) -> str:
    """The topic whose patches mend it, in this series: they moved between topics."""
    gate = verdict.gate
    carried = series.topics if series else ()
    return next((one for one in topics_of_gate(gate.name) if one in carried), gate.topic)


def _when(verdict: Verdict) -> str:
    found = verdict.found
    if found.when == "never":
        return "no error, a wrong result" if verdict.gate.group != "code" else "no error"
    return {"config": "at the config", "after load": "after the weights have loaded"}.get(
        found.when, "at the first step"
    )


def _summary(checked: Checked, series: _Series | None) -> str:
    words = Counter(each.found.word for each in checked.verdicts)
    name = f"{checked.name} with its series" if series and not series.bare else checked.name
    return (
        f"{name} (runner {checked.runner}): {words['pass']} gates pass, "
        f"{words['fail']} fail, {words['not-applicable']} do not apply"
    )


def _many(checked: Sequence[Checked], series: _Series | None) -> RenderableType:
    rows = [
        (gate.name, *(_SIGNS[each.verdicts[number].found.word] for each in checked))
        for number, gate in enumerate(GATES)
    ]
    return lines(
        table(("gate", *(each.name for each in checked)), rows),
        *(plain(_summary(each, series)) for each in checked),
    )
