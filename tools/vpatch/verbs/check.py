"""``vpatch check``: static checks of releases, trees and installations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.errors import FindingError, UsageError
from vpatch.gates.answers import checked_of
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.gate import Verdict
from vpatch.gates.tree import Tree, of_folder, of_installation
from vpatch.patches.repo import pinned_in, pinned_tags
from vpatch.pipeline import Prepared, Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.status.topics import topics_of_gate
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.provenance import parse_provenance


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


def run_series(folder: Path, upstream: Upstream) -> Report:
    """Checks the release of a series that lies in any folder, with that series.

    Raises:
        UsageError: The folder has no pin.
        Else as ``run``.
    """
    ready = pipeline.prepare_pinned(*pinned_in(folder), upstream)
    tag = ready.pin.tag
    told = _patched(ready, f"{tag} in {folder}", upstream)
    return report([told], _Series(tag, ready.series.topics, bare=False))


def run_folder(folder: Path) -> Report:
    """Checks a folder that holds ``vllm/``.

    Raises:
        UsageError: It holds none.
        HostError: A file cannot be read.
    """
    return report([_claimed(check_tree(of_folder(folder)), ())])


def run_installed(python: str) -> Report:
    """Checks the vLLM that an interpreter would import; it is not run.

    Raises:
        UsageError: It has none.
        HostError: The interpreter does not run, or a file cannot be read.
    """
    tree = of_installation(python)
    topics = _topics_in(tree)
    checked = check_tree(tree)
    return report([checked if topics is None else _claimed(checked, topics)])


def _topics_in(tree: Tree) -> tuple[str, ...] | None:
    """The topics that an installed wheel of this project says it carries; None: it is none."""
    for path in sorted(tree.root.glob("vllm*.dist-info/vpatch.json")) if tree.root else ():
        with suppress(OSError, FindingError):
            patches = parse_provenance(path.read_bytes()).origin.patches
            return tuple(dict.fromkeys(patch.topic for patch in patches))
    return None


def _release(
    tag: str, repo: Path, upstream: Upstream, pins: Sequence[str], *, bare: bool
) -> tuple[Checked, _Series | None]:
    if tag in pins:
        ready = pipeline.prepare(tag, repo, upstream, bare=bare)
        topics = ready.series.topics
        if not bare:
            return _patched(ready, tag, upstream), _Series(tag, topics, bare=False)
        git, name = Mirror.open(upstream.cache).git, f"{tag} unpatched"
        checked = checked_of(git, ready.applied.tree, name, upstream.cache)
        return checked, _Series(tag, topics, bare=True)
    if not bare:
        raise UsageError(
            f"{tag} has no series to apply",
            hint=f"Check the release as it is: vpatch check {tag} --unpatched",
            code="no-pin",
        )
    mirror, release = pipeline.fetch(tag, upstream, None)
    return checked_of(mirror.git, release.tree, f"{tag} unpatched", upstream.cache), None


def _patched(ready: Prepared, name: str, upstream: Upstream) -> Checked:
    git = Mirror.open(upstream.cache).git
    checked = checked_of(git, ready.applied.tree, name, upstream.cache)
    return _claimed(checked, ready.series.topics)


def _claimed(checked: Checked, topics: Collection[str]) -> Checked:
    """What no patch claims to give is no failure of patches where the tree has nothing of it."""

    def told(verdict: Verdict) -> Verdict:
        found, own = verdict.found, topics_of_gate(verdict.gate.name)
        if not found.absent or not own or set(own) & set(topics):
            return verdict
        said = " - ".join(filter(None, (found.error, found.note)))
        note = f"no patch here has topic {' or '.join(own)}: {said}"
        plain = replace(found, word="not-applicable", error="", when="never", note=note)
        return replace(verdict, found=plain)

    return replace(checked, verdicts=tuple(told(each) for each in checked.verdicts))


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
    seen = found.evidence and not (found.absent and not verdict.failed)
    place = f"{found.evidence[0].file}:{found.evidence[0].line}" if seen else found.note
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
