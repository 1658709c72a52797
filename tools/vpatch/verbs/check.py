"""``vpatch check``: static checks of releases, trees and installations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType
from rich.text import Text

from vpatch import pipeline
from vpatch.errors import FindingError, UsageError
from vpatch.gates.answers import checked_of
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.engine import Runner
from vpatch.gates.gate import Verdict
from vpatch.gates.steps import RUNNERS
from vpatch.gates.tree import Tree, of_folder, of_git, of_installation
from vpatch.git import Git
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


_Asked = tuple[Checked, _Series | None]
RunnerChoice = Literal["v1", "v2", "all", "default"]
"""The model runner that is asked about; ``all``: each that the tree has."""

_SIGNS = {"pass": "ok", "fail": "FAIL", "not-applicable": "-"}


def run(
    tags: Sequence[str],
    repo: Path,
    upstream: Upstream,
    *,
    bare: bool,
    runner: RunnerChoice = "default",
) -> Report:
    """Checks releases; all pinned ones where none is named.

    Raises:
        UsageError: not a tag, no such release, or one without a pin that is not ``--unpatched``.
        FindingError: a tree is not the one that its pin names.
        ConflictError: a patch does not fit.
        HostError: a release cannot be fetched or read.
    """
    pins = pinned_tags(repo)
    names = [parse_tag(tag) for tag in tags] or pins
    found = [_release(tag, repo, upstream, pins, runner, bare=bare) for tag in names]
    return _report([*chain.from_iterable(found)])


def run_series(folder: Path, upstream: Upstream, runner: RunnerChoice = "default") -> Report:
    """Checks the release of a series that lies in any folder, with that series.

    Raises:
        UsageError: The folder has no pin.
        Else as ``run``.
    """
    ready = pipeline.prepare_pinned(*pinned_in(folder), upstream)
    name = f"{ready.pin.tag} in {folder}"
    return _report(_with_series(ready, name, upstream, runner, bare=False))


def run_folder(folder: Path, runner: RunnerChoice = "default") -> Report:
    """Checks a folder that holds ``vllm/``.

    Raises:
        UsageError: It holds none.
        HostError: A file cannot be read.
    """
    tree = of_folder(folder)
    checked = [check_tree(tree, None, one) for one in _runners(tree, runner)]
    return _report([(_claimed(each, ()), None) for each in checked])


def run_installed(python: str, runner: RunnerChoice = "default") -> Report:
    """Checks the vLLM that an interpreter would import; it is not run.

    Raises:
        UsageError: It has none.
        HostError: The interpreter does not run, or a file cannot be read.
    """
    tree = of_installation(python)
    topics = _topics_in(tree)
    checked = [check_tree(tree, None, one) for one in _runners(tree, runner)]
    claimed = [each if topics is None else _claimed(each, topics) for each in checked]
    return _report([(each, None) for each in claimed])


def _runners(tree: Tree | None, runner: RunnerChoice) -> list[Runner | None]:
    """The model runners that are asked about, one after the other; None: the tree's default."""
    if tree is not None and runner == "all":
        return [name for name, module in RUNNERS.items() if tree.has_file(module)]
    return [runner if runner in {"v1", "v2"} else None]


def _topics_in(tree: Tree) -> tuple[str, ...] | None:
    """The topics that an installed wheel of this project says it carries; None: it is none."""
    for path in sorted(tree.root.glob("vllm*.dist-info/vpatch.json")) if tree.root else ():
        with suppress(OSError, FindingError):
            patches = parse_provenance(path.read_bytes()).origin.patches
            return tuple(dict.fromkeys(patch.topic for patch in patches))
    return None


def _release(
    tag: str,
    repo: Path,
    upstream: Upstream,
    pins: Sequence[str],
    runner: RunnerChoice,
    *,
    bare: bool,
) -> list[_Asked]:
    if tag in pins:
        ready = pipeline.prepare(tag, repo, upstream, bare=bare)
        name = f"{tag}{' unpatched' * bare}"
        return _with_series(ready, name, upstream, runner, bare=bare)
    if not bare:
        raise UsageError(
            f"{tag} has no series to apply",
            hint=f"Check the release as it is: vpatch check {tag} --unpatched",
            code="no-pin",
        )
    mirror, release = pipeline.fetch(tag, upstream, None)
    name = f"{tag} unpatched"
    checked = _asked(mirror.git, release.tree, name, upstream.cache, runner)
    return [(each, None) for each in checked]


def _asked(git: Git, tree: str, name: str, kept: Path, runner: RunnerChoice) -> list[Checked]:
    """What all gates say of a tree of the mirror, once for each runner."""
    # A tree is read for its runners alone where they are asked for: its answers are kept.
    runners = _runners(of_git(git, tree, name) if runner == "all" else None, runner)
    return [checked_of(git, tree, name, kept, each) for each in runners]


def _with_series(
    ready: Prepared, name: str, upstream: Upstream, runner: RunnerChoice, *, bare: bool
) -> list[_Asked]:
    git, topics = Mirror.open(upstream.cache).git, ready.series.topics
    series = _Series(ready.pin.tag, topics, bare=bare)
    checked = _asked(git, ready.applied.tree, name, upstream.cache, runner)
    return [(each if bare else _claimed(each, topics), series) for each in checked]


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


def _report(checked: Sequence[_Asked]) -> Report:
    """What was found, for people and machines."""
    trees = len({each.name for each, _ in checked})
    return Report(
        "check",
        {"trees": [_as_dict(each, series) for each, series in checked]},
        _one_tree(checked) if trees == 1 else _many(checked),
        exit_code=1 if any(each.failed for each, _ in checked) else 0,
    )


def _as_dict(checked: Checked, series: _Series | None) -> dict[str, Any]:
    told = checked.as_dict()
    for verdict, gate in zip(checked.verdicts, told["gates"], strict=True):
        gate["topic"] = _topic(verdict, series) or None
    return told


def _one_tree(checked: Sequence[_Asked]) -> RenderableType:
    first, series = checked[0]
    rows = [_row(each, series) for each in first.verdicts]
    heads = ("gate", "verdict", "when", "topic", "upstream", "place")
    shown = table(heads, rows) if len(checked) == 1 else _matrix(checked, runners=True)
    return lines(
        shown,
        *(plain(text) for text in _stories(checked)),
        *(plain(_summary(each, of)) for each, of in checked),
        *(plain(text) for text in _next_step(checked)),
    )


def _stories(checked: Sequence[_Asked]) -> Iterator[str]:
    """What is told of each gate that is red; the same of two runners is told once."""
    told: dict[tuple[str, ...], list[str]] = {}
    for each, series in checked:
        for verdict in each.failed:
            told.setdefault(tuple(_told(verdict, series)), []).append(each.runner)
    order = [gate.name for gate in GATES]
    for texts in sorted(told, key=lambda one: order.index(one[0].partition(":")[0])):
        of = f" ({told[texts][0].upper()})" if len(told[texts]) < len(checked) else ""
        yield ""
        yield f"{texts[0]}{of}"
        yield from texts[1:]


def _next_step(checked: Sequence[_Asked]) -> Iterator[str]:
    series = checked[0][1]
    if series is not None and series.bare and any(each.failed for each, _ in checked):
        tag = series.tag
        yield f"  -> with its series: vpatch check {tag}; as a wheel: vpatch build {tag}"


def _row(verdict: Verdict, series: _Series | None) -> tuple[str, ...]:
    found, gate = verdict.found, verdict.gate
    seen = found.evidence and not (found.absent and not verdict.failed)
    place = f"{found.evidence[0].file}:{found.evidence[0].line}" if seen else found.note
    when = found.when if verdict.failed else ""
    return (
        gate.name,
        _SIGNS[found.word],
        when,
        _topic(verdict, series) or "-",
        gate.upstream or "-",
        place,
    )


def _told(verdict: Verdict, series: _Series | None) -> Iterator[str]:
    found = verdict.found
    yield f"{verdict.gate.name}: {verdict.gate.asks}: {_when(verdict)}"
    if found.error:
        yield f"  {found.error}"
    if found.note:
        yield f"  {found.note}"
    for each in found.evidence:
        yield f"  {each}"
    topic = _topic(verdict, series)
    mends = [
        f"topic {topic}" if topic else "",
        f"upstream since {verdict.gate.upstream}" if verdict.gate.upstream else "",
    ]
    known = " or ".join(filter(None, mends))
    yield f"  -> mended by {known}" if known else "  -> nothing of this project mends it"


def _topic(verdict: Verdict, series: _Series | None) -> str:
    """The topic whose patches mend it, in this series: they moved between topics."""
    topics = topics_of_gate(verdict.gate.name) if verdict.gate.topic else ()
    if series is None:
        return " or ".join(topics)
    return next((one for one in topics if one in series.topics), verdict.gate.topic)


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
    default = "the default" if checked.default else "not the default"
    return (
        f"{name} (runner {checked.runner}, {default}): {words['pass']} gates pass, "
        f"{words['fail']} fail, {words['not-applicable']} do not apply"
    )


def _many(checked: Sequence[_Asked]) -> RenderableType:
    return lines(
        _matrix(checked, runners=len({each.name for each, _ in checked}) < len(checked)),
        *(plain(_summary(each, series)) for each, series in checked),
    )


def _matrix(checked: Sequence[_Asked], *, runners: bool) -> Text:
    rows = [
        (gate.name, *(_SIGNS[each.verdicts[number].found.word] for each, _ in checked))
        for number, gate in enumerate(GATES)
    ]
    names = [f"{each.name} {each.runner}" if runners else each.name for each, _ in checked]
    return table(("gate", *names), rows)
