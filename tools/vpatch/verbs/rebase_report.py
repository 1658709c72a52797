"""What `vpatch rebase` has to say: as a table, as JSON, as Markdown for a pull request."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from vpatch.patches.called import counted
from vpatch.patches.export import NewSeries
from vpatch.patches.rewrite import Rewritten
from vpatch.patches.series import LISTING
from vpatch.rebase.model import Question, Rebased, RebasedPatch
from vpatch.rebase.rangediff import changed_rows
from vpatch.rebase.resolutions import Resolutions
from vpatch.report import Report, lines, plain, printable, table
from vpatch.tags import is_tag
from vpatch.verbs import rebase_resolutions

_SHOWN = 4


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        commits: ``--commit``: the commits in the user's repository.
        range_diff: What git says of the old line and the new one.
        home: Where the series of this release belongs.
    """

    folder: Path
    rewritten: Rewritten
    new: NewSeries
    commits: tuple[str, ...] = ()
    range_diff: str = ""
    home: Path | None = None


def report(
    rebased: Rebased,
    written: Written | None = None,
    *,
    known: Resolutions | None = None,
    markdown: bool = False,
    given: str = "",
) -> Report:
    """A rebase, and the folder where it was written.

    Args:
        known: The stored resolutions.
        given: Options that the next command needs too.
    """
    data = as_dict(rebased, given)
    if known is not None:
        data["resolutions"] = rebase_resolutions.as_dict(rebased, known)
    if written is not None:
        data["written"] = written.rewritten.changed
        data["folder"] = str(written.folder)
        data["revision"] = written.rewritten.pin.revision
        data["series"] = list(written.new.rows)
        data["commits"] = list(written.commits)
        data["range_diff"] = written.range_diff
    if markdown:
        return Report("rebase", data, Text(_markdown(rebased, written, known)), rebased.exit_code)
    text = _text(rebased, written, known, given)
    return Report("rebase", data, text, exit_code=rebased.exit_code)


def as_dict(rebased: Rebased, given: str = "") -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    data: dict[str, Any] = {
        "from": rebased.source,
        "to": rebased.target,
        "base_tree": rebased.base_tree,
        "tree": None if rebased.conflicts else rebased.tree,
        "counts": rebased.counts,
        "patches": [_patch(patch) for patch in rebased.patches],
        "questions": [question.as_dict() for question in rebased.questions],
        "accepted": list(rebased.accepted),
        "written": False,
    }
    if rebased.exit_code:
        data["error"] = {
            "code": "conflict" if rebased.conflicts else "question",
            "message": sentence(rebased),
            "hint": next_step(rebased, given),
        }
    return data


def _patch(patch: RebasedPatch) -> dict[str, Any]:
    carried, verdict = patch.carried, patch.verdict
    return {
        "file": patch.file,
        "subject": carried.patch.subject,
        "topic": carried.patch.topic,
        "verdict": verdict.word,
        "why": verdict.why,
        "places": verdict.runs,
        "upstream": verdict.upstream,
        "evidence": [each.as_dict() for each in verdict.evidence],
        "conflicts": [
            {"file": each.path, "was": each.was, "reason": each.reason}
            for each in carried.conflicts
        ],
        "moved": dict(carried.moved),
        "behind": list(carried.behind),
        "upstream_changes": [each.as_dict() for each in patch.upstream],
        "questions": [question.as_dict() for question in patch.questions],
    }


def sentence(rebased: Rebased) -> str:
    """What stops it, in a sentence."""
    conflicts, questions = rebased.conflicts, rebased.questions
    parts = []
    if conflicts:
        rest = f" and {len(conflicts) - 1} more" if conflicts[1:] else ""
        verb = "conflict" if conflicts[1:] else "conflicts"
        parts.append(f"{conflicts[0].file}{rest} {verb} with {rebased.target}")
    if questions:
        count = f"{len(questions)} question{'s' if questions[1:] else ''}"
        verb = "need" if questions[1:] else "needs"
        parts.append(f"{count} {verb} an answer, the first about {questions[0].path}")
    return "; ".join(parts)


def next_step(rebased: Rebased, given: str = "") -> str:
    """The next command."""
    keep = "".join(f" --keep {shlex.quote(name[:4])}" for name in rebased.kept)
    command = f"vpatch rebase {rebased.source} {rebased.target}{given}{keep}"
    if rebased.conflicts and (" --onto-git" in given or not is_tag(rebased.target)):
        return "Nothing was written: a session needs a release."
    if rebased.conflicts:
        return f"Nothing was written. {command} begins a session: a worktree to resolve them in."
    asked = (question.name for question in rebased.questions)
    return f"Look at each, then: {command} {accepting((*rebased.accepted, *asked))}"


def accepting(names: Iterable[str]) -> str:
    """The options that let questions stand."""
    return " ".join(f"--accept {shlex.quote(short_name(name))}" for name in names)


def short_name(name: str) -> str:
    """A question's name with its patch's number alone, as ``--accept`` takes it too."""
    file, _, rest = name.partition(":")
    return f"{file[:4]}:{rest}" if file[:4].isdecimal() and file[4:5] == "-" else name


def _text(
    rebased: Rebased, written: Written | None, known: Resolutions | None, given: str
) -> RenderableType:
    rows = [_row(patch) for patch in rebased.patches]
    return lines(
        table(("verdict", "patch", "why"), rows) if rows else None,
        *(plain(f"  {line}") for patch in rebased.patches for line in _details(patch)),
        *(plain(line) for line in (rebase_resolutions.told(rebased, known) if known else ())),
        *(plain(line) for line in _asked(rebased)),
        plain(summary(rebased)),
        plain(f"  -> {next_step(rebased, given)}") if rebased.exit_code else None,
        *(plain(line) for line in (_told(written) if written else ())),
    )


def _told(written: Written) -> Iterator[str]:
    counts = Counter(row["change"] for row in written.new.rows)
    told = ", ".join(f"{count} {change}" for change, count in counts.items()) or "no patches"
    revision = written.rewritten.pin.revision
    if not written.rewritten.changed:
        yield f"{written.folder}: as it was, revision {revision}"
        return
    yield f"{written.folder}: {told}; revision {revision}"
    for row in changed_rows(written.range_diff):
        yield f"  {row}"
    for commit in written.commits:
        yield f"  commit {commit[:12]}"
    yield f"  -> {_look(written)}"


def _look(written: Written) -> str:
    """The next command: most verbs know a series only where it belongs."""
    tag, home = written.rewritten.pin.tag, written.home
    if home in (None, written.folder):
        return f"vpatch lint {tag}; vpatch check {tag}"
    folder = shlex.quote(str(written.folder))
    if not (home / LISTING).is_file():
        look = f"vpatch lint --series {folder}; vpatch check --series {folder}"
        return f"{look}. Take it: cp -r {folder} {shlex.quote(str(home))}; vpatch lint {tag}"
    return f"Compare: git diff --no-index {shlex.quote(str(home))} {folder}"


def _row(patch: RebasedPatch) -> tuple[str, str, str]:
    return patch.verdict.word, patch.file, patch.verdict.why


def _details(patch: RebasedPatch) -> Iterator[str]:
    for each in patch.verdict.evidence[:_SHOWN]:
        yield f"{patch.file[:4]} {patch.verdict.word}: {each}"
    more = len(patch.verdict.evidence) - _SHOWN
    if more > 0:
        yield f"{patch.file[:4]} {patch.verdict.word}: and {more} more (--json has all)"
    yield from touches(patch)


def touches(patch: RebasedPatch) -> Iterator[str]:
    """What upstream did to the lines that a patch conflicts over: the first state in the way."""
    firsts = [one for one in patch.upstream if one.point == patch.upstream[0].point]
    for touch in firsts[:_SHOWN]:
        yield from (f"{patch.file[:4]} upstream: {line}" for line in touch.told())
    later = dict.fromkeys(one.point.name for one in patch.upstream if one not in firsts)
    if later:
        yield f"{patch.file[:4]} upstream: and again in {', '.join(later)} (--json has all)"


def _asked(rebased: Rebased) -> Iterator[str]:
    for question in rebased.questions:
        yield f"asked: {_place(question)}: {question.text}"
        yield f"  name: {question.name}"


def _place(question: Question) -> str:
    return f"{question.path}:{question.line}" if question.line else question.path


def summary(rebased: Rebased) -> str:
    """One line: how many of each."""
    counts = ", ".join(f"{count} {word}" for word, count in rebased.counts.items())
    total = len(rebased.patches)
    told = f"{rebased.source} -> {rebased.target}: {counted(total)}: {counts or 'none'}"
    if rebased.conflicts:
        return f"{told}; no tree"
    return f"{told}; tree {rebased.base_tree[:12]} -> {rebased.tree[:12]}"


def _markdown(rebased: Rebased, written: Written | None, known: Resolutions | None) -> str:
    out = [f"### Rebase {rebased.source} → {rebased.target}", "", summary(rebased), ""]
    out += ["| patch | verdict | why |", "|---|---|---|"]
    for patch in rebased.patches:
        verdict, file, why = (_cell(text) for text in _row(patch))
        out.append(f"| `{file}` | {verdict} | {why} |")
    evidence = [line for patch in rebased.patches for line in _details(patch)]
    if evidence:
        out += ["", "<details><summary>Evidence</summary>", ""]
        out += [f"- {_cell(line)}" for line in evidence]
        out += ["", "</details>"]
    stored = list(rebase_resolutions.told(rebased, known)) if known else []
    if stored:
        out += ["", "#### Resolutions", "", *(f"    {printable(line)}" for line in stored)]
    if written is not None and written.range_diff:
        # Deeper in than any fence that a patch may hold.
        body = (f"    {printable(line)}" for line in written.range_diff.splitlines())
        out += ["", "#### Range-diff", "", *body]
    if rebased.questions:
        out += ["", "#### Questions", ""]
        out += [
            f"- `{_cell(each.name)}` {_cell(_place(each))}: {_cell(each.text)}"
            for each in rebased.questions
        ]
    return "\n".join(out)


def _cell(text: str) -> str:
    """Text that Markdown takes for text, in a cell of a table."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{char}" if char in "\\|*_[]#" else char for char in escaped)
