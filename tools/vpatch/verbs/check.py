"""``vpatch check``: static checks of releases, trees and installations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.gate import Verdict
from vpatch.gates.tree import Tree, of_folder, of_git, of_installation
from vpatch.patches.repo import pinned_tags
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Mirror

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
    return report([check_tree(_release(tag, repo, upstream, pins, bare=bare)) for tag in names])


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


def _release(tag: str, repo: Path, upstream: Upstream, pins: Sequence[str], *, bare: bool) -> Tree:
    if tag in pins:
        tree = pipeline.prepare(tag, repo, upstream, bare=bare).applied.tree
        return of_git(Mirror.open(upstream.cache).git, tree, f"{tag}{' unpatched' * bare}")
    if not bare:
        raise UsageError(
            f"{tag} has no series to apply",
            hint=f"Check the release as it is: vpatch check {tag} --unpatched",
            code="no-pin",
        )
    mirror, release = pipeline.fetch(tag, upstream, None)
    return of_git(mirror.git, release.tree, f"{tag} unpatched")


def report(checked: Sequence[Checked]) -> Report:
    """What was found, for people and machines."""
    return Report(
        "check",
        {"trees": [each.as_dict() for each in checked]},
        _one(checked[0]) if len(checked) == 1 else _many(checked),
        exit_code=1 if any(each.failed for each in checked) else 0,
    )


def _one(checked: Checked) -> RenderableType:
    rows = [_row(each) for each in checked.verdicts]
    return lines(
        table(("gate", "verdict", "when", "topic", "upstream", "place"), rows),
        *(plain(text) for each in checked.failed for text in _told(each)),
        plain(_summary(checked)),
    )


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


def _told(verdict: Verdict) -> Iterator[str]:
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
        f"topic {verdict.gate.topic}" if verdict.gate.topic else "",
        f"upstream since {verdict.gate.upstream}" if verdict.gate.upstream else "",
    ]
    known = " or ".join(filter(None, mends))
    yield f"  -> mended by {known}" if known else "  -> nothing of this project mends it"


def _when(verdict: Verdict) -> str:
    found = verdict.found
    if found.when == "never":
        return "no error, a wrong result" if verdict.gate.group != "code" else "no error"
    return {"config": "at the config", "after load": "after the weights have loaded"}.get(
        found.when, "at the first step"
    )


def _summary(checked: Checked) -> str:
    words = Counter(each.found.word for each in checked.verdicts)
    return (
        f"{checked.name} (runner {checked.runner}): {words['pass']} gates pass, "
        f"{words['fail']} fail, {words['not-applicable']} do not apply"
    )


def _many(checked: Sequence[Checked]) -> RenderableType:
    rows = [
        (gate.name, *(_SIGNS[each.verdicts[number].found.word] for each in checked))
        for number, gate in enumerate(GATES)
    ]
    return lines(
        table(("gate", *(each.name for each in checked)), rows),
        *(plain(_summary(each)) for each in checked),
    )
