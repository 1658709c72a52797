"""What debian_judge.py prints, and the page docs/debian.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from debian_judge import Result
    from debian_lines import Judged

_BECAME = ("kept", "refreshed", "renamed", "dropped")
_SHOWN = 12


@dataclass(frozen=True)
class Explained:
    """Why a patch comes out otherwise than the maintainers', and whether that is wrong."""

    why: str
    wrong: bool


def shown(result: Result, *, full: bool) -> Iterator[str]:
    """A package's result for people."""
    package, once = result.package, result.at_once
    yield f"{package.name} {package.old.version} -> {package.new.version}"
    for one in result.patches:
        asks = f" [{', '.join(one.questions)}]" if one.questions else ""
        yield f"  {one.outcome:8}{one.became:10}{one.verdict:16}{one.name}{asks}"
        if full and one.why:
            yield f"      {one.why}"
        if full:
            yield from (f"      {line}" for line in one.diff.splitlines())
    yield (
        f"  at once: {_counted(once.counts)}; {once.asked} carried ones ask; {once.agree} agree, "
        f"{len(once.differ)} differ {list(once.differ)}; {once.seconds:.2f} s"
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def page(found: Sequence[Result], explained: Mapping[str, Explained]) -> str:
    """The page."""
    return "\n".join([*_head(found), *_summary(found, explained), *_each(found, explained)]) + "\n"


def _head(found: Sequence[Result]) -> Iterator[str]:
    yield "# Debian as a judge of `vpatch rebase`"
    yield ""
    yield (
        "`python ci/debian_judge.py --markdown docs/debian.md` wrote this. "
        f"{len(found)} packages, chosen by the criterion in "
        "[ci/debian_packages.toml](../ci/debian_packages.toml) and committed before the first run: "
        "the old suite's quilt series is carried to the new suite's upstream, and held against "
        "what the maintainers shipped. The series become commits without loss: their trees are "
        "those that `dpkg-source` lays, to the byte, and every header is kept."
    )
    yield ""
    yield (
        "Patch by patch, each on the ground that the maintainers gave it. **agrees**: their tree "
        "to the byte, or gone in both. **asked**: a conflict or a question: a person looks at it. "
        "**differs**: neither; explained below, one by one."
    )


def _summary(found: Sequence[Result], explained: Mapping[str, Explained]) -> Iterator[str]:
    yield ""
    yield "| package | language | upstream | patches | agrees | asked | differs | silently wrong |"
    yield "|---|---|---|---|---|---|---|---|"
    total: Counter[str] = Counter()
    for result in found:
        counts = Counter(one.outcome for one in result.patches)
        names = (f"{result.package.name}/{one.name}" for one in _differing(result))
        counts["wrong"] = sum(explained[name].wrong for name in names if name in explained)
        counts["all"] = len(result.patches)
        total += counts
        package = result.package
        moves = f"{package.old.upstream} → {package.new.upstream}"
        yield f"| {package.name} | {package.language} | {moves} | {_row(counts)} |"
    yield f"| all | | | {_row(total)} |"


def _row(counts: Counter[str]) -> str:
    return " | ".join(str(counts[key]) for key in ("all", "agrees", "asked", "differs", "wrong"))


def _each(found: Sequence[Result], explained: Mapping[str, Explained]) -> Iterator[str]:
    yield from _matrix(found)
    yield from ("", "## The whole series in one run", "")
    yield "| package | verdicts | carried, with a question | agree | differ | seconds |"
    yield "|---|---|---|---|---|---|"
    for result in found:
        once = result.at_once
        cells = (_counted(once.counts), once.asked, once.agree, len(once.differ))
        told = " | ".join(str(cell) for cell in cells)
        yield f"| {result.package.name} | {told} | {once.seconds:.2f} |"
    yield ""
    yield (
        "Agree and differ count what came out without a question and not behind a conflict: "
        "whether both change the same lines of the same files, or both let the patch go."
    )
    yield from ("", "## Every difference", "")
    for result in found:
        for name in _differing_names(result):
            why = explained.get(f"{result.package.name}/{name}")
            word = "not explained" if why is None else "**wrong**" if why.wrong else "not wrong"
            yield f"- {result.package.name}, `{name}` ({word}): {why.why if why else ''}"
    for result in found:
        yield from ("", f"## {result.package.name}", "")
        yield "| patch | maintainers | vpatch | outcome | why |"
        yield "|---|---|---|---|---|"
        for one in result.patches:
            yield f"| `{one.name}` | {one.became} | {one.verdict} | {one.outcome} | {_why(one)} |"


def _matrix(found: Sequence[Result]) -> Iterator[str]:
    """What the maintainers did against what vpatch says."""
    pairs = Counter((one.became, one.verdict) for result in found for one in result.patches)
    words = sorted({word for _, word in pairs})
    yield from ("", "What the maintainers did, and vpatch's verdict:", "")
    yield f"| | {' | '.join(words)} |"
    yield f"|---|{'---|' * len(words)}"
    for became in _BECAME:
        yield f"| {became} | {' | '.join(str(pairs[became, word]) for word in words)} |"


def _why(one: Judged) -> str:
    asks = f"asks: {', '.join(one.questions)}" if one.questions else ""
    told = "; ".join(part for part in (one.why, asks) if part)
    return told.replace("|", "\\|").replace("<", "&lt;")


def _differing(result: Result) -> list[Judged]:
    return [one for one in result.patches if one.outcome == "differs"]


def _differing_names(result: Result) -> list[str]:
    names = [one.name for one in _differing(result)]
    return [*names, *(name for name in result.at_once.differ if name not in names)]
