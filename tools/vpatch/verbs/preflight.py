"""``vpatch preflight``: what will happen when a release loads a drafter, read off its files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version
from rich.console import RenderableType
from rich.text import Text

from vpatch.errors import FindingError, UsageError
from vpatch.gates.tree import of_installation
from vpatch.patches.repo import existing_series, pinned_tags
from vpatch.preflight.case import NUMBERINGS, Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.installed import version_of_python
from vpatch.preflight.judge import judge
from vpatch.preflight.memory import STEP_TOKENS, memory_of
from vpatch.preflight.mends import ALL, NONE, Mends, of_series, of_tree
from vpatch.preflight.patched import Patched, patched_release
from vpatch.preflight.releases import NEWEST, PATCHED, Runner, facts_of
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.strictjson import read_object
from vpatch.preflight.target import read_target
from vpatch.preflight.verdict import WHEN, Verdict
from vpatch.report import Report, lines, plain, table
from vpatch.tags import parse_tag, version_of

_OURS = (IDS, NUMBERING)
_WORDS: Mapping[str, str] = {
    "works": "works",
    "works-with": "works with an option",
    "wrong-result": "wrong result without an error",
    "error": "error",
    "unknown": "unknown: its weights are not there",
}


_ADD = (
    "put the drafter's safetensors files (and model.safetensors.index.json) beside its "
    "config.json: only their headers are read, other formats of weights are not known here"
)


@dataclass(frozen=True)
class Wish:
    """What is asked.

    Attributes:
        target, drafter: Folders, or repositories of a hub.
        tag, installed: A release, or a Python that has vLLM.
        unpatched: The release as it is.
        speculative: A JSON object: what --speculative-config says beside the drafter.
    """

    target: str
    drafter: str
    tag: str | None
    installed: Path | None
    unpatched: bool
    runner: Runner | None
    parallel: Parallel
    speculative: str | None


def run(wish: Wish, repo: Path | None) -> Report:
    """Reads both, and says what will happen. Exit 1 unless it works as given."""
    options = _options(wish.speculative)
    version, patched = _release(wish, repo)
    mends = _mends(wish, repo) if patched else NONE
    release = facts_of(version, patched=patched, runner=wish.runner, mends=mends)
    target = read_checkpoint(wish.target, weights=False)
    drafter = read_checkpoint(wish.drafter, weights=True)
    case = Case(read_target(target), read_drafter(drafter), release, wish.parallel, options)
    verdict = judge(case)
    asks = not release.patched and verdict.word in ("wrong-result", "error")
    mended = _mended(wish, case, repo) if asks else None
    data = {
        **_data(case, verdict),
        "patched_release": None if mended is None else mended.as_dict(),
        "read_bytes": target.read + drafter.read,
    }
    code = 0 if verdict.word == "works" else 1
    none = "no patched release makes it work as it stands"
    where = [f"patched: {none if mended is None else mended.said}"] if asks else []
    return Report("preflight", data, _text(verdict, release.version > NEWEST, where), code)


def _mended(wish: Wish, case: Case, repo: Path | None) -> Patched | None:
    """Where a patched release is to be had that does better."""
    # In a container there is no repository: then the pins are those that preflight knows.
    pins = [f"v{each}" for each in PATCHED] if repo is None else pinned_tags(repo)

    def mends_of(tag: str) -> Mends:
        return ALL if repo is None else of_series(existing_series(repo, tag))

    return patched_release(case, wish.runner, pins, mends_of)


def _release(wish: Wish, repo: Path | None) -> tuple[Version, bool]:
    if wish.installed is not None:
        found = version_of_python(wish.installed)
        patched = bool(re.search(r"\+(.*\.)?kimi\.\d+", str(found)))
        if wish.unpatched and patched:
            raise UsageError(
                f"the installed vLLM {found} is patched", hint="Leave --unpatched out."
            )
        return found, patched
    if wish.tag is None:
        raise UsageError(
            "on which release? Name one with --tag TAG, or a Python that has vLLM with --installed",
            hint="vpatch preflight --help",
        )
    if not wish.unpatched and repo is not None:
        _check_series(repo, wish.tag)
    return version_of(wish.tag), not wish.unpatched


def _mends(wish: Wish, repo: Path | None) -> Mends:
    """What this very revision of a series has, by its source."""
    if wish.installed is not None:
        with suppress(UsageError):  # metadata without a package
            return of_tree(of_installation(str(wish.installed)).read)
    if wish.tag is not None and repo is not None:
        return of_series(existing_series(repo, wish.tag))
    return NONE


def _check_series(repo: Path, tag: str) -> None:
    if parse_tag(tag) not in pinned_tags(repo):
        raise UsageError(
            f"{parse_tag(tag)} has no pin in {repo / 'patches'}",
            hint="Ask about the release as it is, with --unpatched, or about one of "
            f"{', '.join(pinned_tags(repo)) or 'none'}.",
            code="no-pin",
        )


def _options(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        options = read_object(given.encode("utf-8", "surrogateescape"), "--speculative-config")
    except FindingError:
        raise UsageError(
            "--speculative-config is no JSON object",
            hint=f'For example: --speculative-config \'{{"{NUMBERING}": "layer-output"}}\'',
            code="bad-option",
        ) from None
    _check_names(options)
    ids, numbering = options.get(IDS), options.get(NUMBERING)
    whole = isinstance(ids, list) and ids and all(type(one) is int for one in ids)
    if (ids is not None and not whole) or numbering not in (None, *NUMBERINGS):
        raise UsageError(
            f"--speculative-config: {IDS} is a list of integers, {NUMBERING} one of "
            f"{', '.join(NUMBERINGS)}",
            hint="Other keys are not looked at.",
            code="bad-option",
        )
    return options


def _check_names(options: Mapping[str, Any]) -> None:
    """Keys that vLLM takes for another thing, or does not know."""
    near = [name for name in options if name.startswith("eagle_aux") and name not in _OURS]
    if near:
        raise UsageError(
            f"--speculative-config: vLLM has no {near[0][:60]}",
            hint=f"Its keys are {' and '.join(_OURS)}.",
            code="bad-option",
        )
    if options.get("method") not in (None, "eagle3"):
        raise UsageError(
            f"--speculative-config: method {str(options['method'])[:60]!r} is none of preflight's",
            hint='It knows "method": "eagle3" alone.',
            code="bad-option",
        )


def _data(case: Case, verdict: Verdict) -> dict[str, Any]:
    first = verdict.first
    memory = memory_of(case)
    return {
        "verdict": verdict.word,
        "as_given": verdict.as_given,
        "error": None
        if first is None or first.effect != "error"
        else {"code": first.check, "message": first.said or first.why, "hint": _hint(verdict)},
        "when": None if first is None else first.when,
        "options": list(verdict.options),
        "release": {
            "version": str(case.release.version),
            "patched": case.release.patched,
            "runner": case.release.runner,
            "known": case.release.version <= NEWEST,
        },
        "ids": {
            "written": dict(case.drafter.ids),
            "numbering": case.drafter.numbering,
            "taken": list(case.taken),
            "as_outputs": [each - 1 for each in case.taken],
            "trained": None if case.believed is None else list(case.believed),
        },
        "memory": {
            "weights": memory.weights if case.drafter.weighed else None,
            "kv_cache_per_token": memory.cache,
            "buffers": memory.buffers,
            "step_tokens": STEP_TOKENS,
        },
        "problems": [one.as_dict() for one in verdict.problems],
        "facts": {fact.name: fact.said for fact in verdict.facts},
        "unknown": list(verdict.unknown),
        "notes": list(verdict.notes),
    }


def _hint(verdict: Verdict) -> str:
    first = verdict.first
    return "" if first is None or first.remedy is None else first.remedy.text


def _text(verdict: Verdict, newer: bool, where: Sequence[str]) -> RenderableType:
    rows = [(fact.name, fact.said) for fact in verdict.facts]
    first = verdict.first
    said: list[RenderableType] = [plain(f"note: {note}") for note in verdict.notes]
    if newer:
        said.append(plain(f"note: newer than what is known here: judged as v{NEWEST}"))
    if first is not None:
        said += [plain(f"{first.check}: {first.why}"), plain(f"  when: {WHEN[first.when]}")]
        if first.said:
            said.append(plain(f"  error: {first.said}"))
        if first.remedy is not None:
            said.append(plain(f"  helps: {first.remedy.text}"))
        behind = [one for one in verdict.problems if one is not first]
        said += [plain(f"behind it: {one.check}: {one.why}") for one in behind]
    said += [plain(f"unknown: {one}") for one in verdict.unknown]
    if verdict.unknown:
        said.append(plain(f"  -> {_ADD}"))
    said += [plain(line) for line in where]
    word = Text(f"verdict: {_WORDS[verdict.word]}", style="bold")
    for option in verdict.options:
        word.append(f": {option}", style="not bold")
    return lines(table(("what", "found"), rows), *said, word)
