"""Tables of the smoke for the docs: from its code, and from reports of runs in docs/reports/."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from packaging.version import Version

from vpatch.smoke.cases import DRAFTERS, Tier
from vpatch.smoke.env_host import Device
from vpatch.smoke.judge import Check
from vpatch.smoke.known import KNOWN
from vpatch.smoke.plan import Wish
from vpatch.smoke.plan_own import Own, own_plan
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import NEWEST, OLDEST, ReleaseFacts, facts_of

REPORTS = Path(__file__).resolve().parent.parent / "docs" / "reports"

_VERDICTS = ("pass", "fail", "not-run")
_ROW = re.compile(rf"^(?P<name>[a-z]\S*/\S+) +(?P<verdict>{'|'.join(_VERDICTS)})\b", re.MULTILINE)
_COUNT = re.compile(rf"\b(\d+) ({'|'.join(_VERDICTS)})\b")
_DEVICES, _TIERS = get_args(Device), get_args(Tier)
_LONGEST = 150
_Asked = dict[str, dict[str, Any]]
_WORDS = {"cpu": "CPU", "cuda": "GPU"}


def checks() -> str:
    """Every check of the tiny checkpoints: its tier, its device, what it asks."""
    tiers: dict[str, set[str]] = {}
    devices: dict[str, set[Device]] = {}
    asked: dict[str, str] = {}
    for facts in _releases():
        for device in _DEVICES:
            for tier in _TIERS:
                wish = Wish(device, tier, facts.runners(device))
                for check in make_plan(wish, facts).checks if wish.runners else ():
                    name = check.name.partition("/")[0]
                    tiers.setdefault(name, set()).add(tier)
                    devices.setdefault(name, set()).add(device)
                    asked.setdefault(name, _question(check))
    return table(
        ("check", "tier", "where", "what passes"),
        (
            (f"`{name}`", "core" if "core" in tiers[name] else "full", _where(found), asked[name])
            for name, found in devices.items()
        ),
    )


def own_checks() -> str:
    """The checks of a user's own checkpoints."""
    own = Own(Path("target"), Path("drafter"), {})
    plan = own_plan(Wish("cuda", "core", ("v1",)), own, facts_of(NEWEST))
    return table(
        ("check", "what passes"),
        ((f"`{check.name.rpartition('/')[0]}`", _question(check)) for check in plan.checks),
    )


def drafters() -> str:
    """The tiny drafters."""
    kinds = {
        "llama": "Llama layer",
        "llama-random": "Llama layer, grouped heads, all weights random",
        "mla": "MLA, YaRN",
        "mla-random": "MLA, YaRN, all weights random",
        "mla31": "MLA, no YaRN, `fc_norm`, `norm_output`",
        "mlanorm": "MLA, `norm_before_fc`, model_type deepseek_v3",
    }
    return table(
        ("drafter", "what it is", "ids", "where its config has them", "draft vocabulary", "tier"),
        (
            (
                f"`{one.name}`",
                kinds[one.kind],
                str(one.asked) if one.ids else f"default {one.asked}",
                {"none": "nowhere", "nested": "in `eagle_config`"}.get(one.form, one.form),
                one.vocabulary,
                one.tier,
            )
            for one in DRAFTERS
        ),
    )


def releases() -> str:
    """What is tried of which release, on which device."""
    rows: list[tuple[list[str], tuple[str, ...]]] = []
    for facts in _releases():
        row = _release(facts)
        since = f"v{facts.version.major}.{facts.version.minor}"
        if rows and rows[-1][1] == row:
            rows[-1][0][1:] = [since]
        else:
            rows.append(([since], row))
    head = ("release", "CPU", "CPU: MLA drafters", "CPU: stand-ins", "GPU", "GPU: refused")
    return table(head, ((" - ".join(span), *row) for span, row in rows))


def _release(facts: ReleaseFacts) -> tuple[str, ...]:
    on_cpu, on_gpu = facts.runners("cpu"), facts.runners("cuda")
    stand_ins = {
        "`cpu_drafter`": facts.needs_cpu_drafter,
        "rotary": facts.native_rotary,
        "scan": facts.scans_modules,
    }
    refused = [
        f"{kind} on {runner}"
        for runner in on_gpu
        for kind, mla in (("Llama", False), ("MLA", True))
        if facts.refuses(mla, runner, "cuda")
    ]
    mla = {"expanded": "yes", "none": "no", "kernel": "no"}[facts.cpu_mla]
    return (
        ", ".join(on_cpu) or "not tried",
        mla if on_cpu else "-",
        ", ".join(name for name, needed in stand_ins.items() if needed) if on_cpu else "-",
        ", ".join(
            f"{one} (default)" if one == facts.default_runner("cuda") else one for one in on_gpu
        ),
        ", ".join(refused) or "-",
    )


def known() -> str:
    """What `--expect-unpatched` expects."""
    return table(
        ("release", "where", "checks that fail", "with"),
        (
            (
                ", ".join(f"v{release}" for release in one.releases),
                _where(one.devices),
                _code(one.check),
                _code(one.evidence),
            )
            for one in KNOWN
        ),
    )


def run(name: str) -> str:
    """The tables of one report: engines that answered, and starts that an error ended."""
    starts: dict[str, _Asked] = {}
    for check in json.loads((REPORTS / name).read_text())["checks"]:
        kind, _, start = check["check"].partition("/")
        starts.setdefault(start.removesuffix("/eager"), {})[kind] = check
    ended = {start: _end(asked) for start, asked in starts.items()}
    head = (
        "engine",
        "ready, s",
        "ids",
        "states: worst",
        "greedy",
        "first drafts accepted",
        "checks",
    )
    answered = [_answered(start, starts[start]) for start in starts if not ended[start]]
    errors = [(f"`{start}`", *found) for start, found in ended.items() if found]
    tables = (table(head, answered), table(("start", "verdict", "it ended with"), errors))
    rows = (answered, errors)
    return "\n".join(one for one, has in zip(tables, rows, strict=True) if has)


def _answered(name: str, asked: _Asked) -> tuple[str, ...]:
    def said(kind: str, pattern: str) -> str:
        check = asked.get(kind, {"verdict": "-", "evidence": ""})
        match = re.search(pattern, check["evidence"])
        shown = ", ".join(filter(None, match.groups())) if match else check["verdict"]
        return f"**{shown}**" if check["verdict"] == "fail" else shown

    counts = ((word, sum(one["verdict"] == word for one in asked.values())) for word in _VERDICTS)
    return (
        f"`{name}`",
        said("starts", r"ready after (\d+) s"),
        said("ids", r"^asked (\([\d, ]+\))(?:, (but .*))?"),
        said("states", r"^(\d+ (?:of \d+ )?rows).*worst ([\d.]+ %)"),
        said("greedy", r"(\d+ of \d+) answers"),
        said("accepted", r"draft: (\d+/\d+),").replace("/", " of "),
        ", ".join(f"{count} {word}" for word, count in counts if count),
    )


def _end(asked: _Asked) -> tuple[str, str] | None:
    """The verdict on a start that an error ended, and the error's beginning."""
    check = asked.get("refused") or asked.get("starts")
    if check is None or (check["check"].startswith("starts/") and check["verdict"] == "pass"):
        return None
    error = re.sub(r"\d validation error for \w+ Value error, ", "", check["evidence"])
    if len(error) > _LONGEST:
        error = f"{error[:_LONGEST].rpartition(' ')[0]} ..."
    return f"`{check['check'].partition('/')[0]}`: {check['verdict']}", error


def verdicts_of(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """Verdicts by check, and how many of each, of a printed table or of a JSON report."""
    if text.lstrip().startswith("{"):
        rows = {one["check"]: one["verdict"] for one in json.loads(text)["checks"]}
        return rows, {word: list(rows.values()).count(word) for word in _VERDICTS}
    rows = {one["name"]: one["verdict"] for one in _ROW.finditer(text)}
    last = (text.strip().splitlines() or [""])[-1]
    return rows, {word: int(count) for count, word in _COUNT.findall(last)}


def differences(sample: str, report: str) -> Iterator[str]:
    """Where a sample, of which lines may be left out, is not what a run said."""
    (shown, counts), (ran, sums) = verdicts_of(sample), verdicts_of(report)
    if not shown or not counts:
        yield "the sample has no line of a check, or no last line with counts"
    for name, verdict in shown.items():
        if ran.get(name) != verdict:
            yield f"the sample says {name} {verdict}, the run {ran.get(name, 'nothing of it')}"
    for word in _VERDICTS:
        if counts.get(word, 0) != sums.get(word, 0):
            yield f"the sample counts {counts.get(word, 0)} {word}, the run {sums.get(word, 0)}"


def _releases() -> Iterator[ReleaseFacts]:
    for minor in range(OLDEST.minor, NEWEST.minor + 1):
        yield facts_of(Version(f"{OLDEST.major}.{minor}.0"))


def _question(check: Check) -> str:
    """The docstring of the judge, or of the function that made it."""
    judge: Callable[..., Any] = check.on_error or check.judge
    made_by = judge.__qualname__.partition(".")[0]
    text = getattr(sys.modules[judge.__module__], made_by).__doc__
    if not text:
        raise SystemExit(f"{made_by}, the judge of {check.name}, has no docstring")
    first: str = text.strip().partition("\n\n")[0]
    return " ".join(first.split())


def _where(devices: Iterable[Device]) -> str:
    found = set(devices)
    return ", ".join(_WORDS[device] for device in _DEVICES if device in found)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)
