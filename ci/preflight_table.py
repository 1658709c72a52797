"""`vpatch preflight` beside what an engine did: docs/preflight.md's table.

    python ci/preflight_table.py RUN.json... [--models DIR]   compare, and rewrite the table
    python ci/preflight_table.py --check                      the stored runs against preflight now

RUN.json is what ci/preflight_engine.py wrote. Its results, and its drafters' configs and headers,
are kept in tests/fixtures/preflight/: so preflight is held against the engine without one.
Exit 1 where they disagree.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from packaging.version import Version

from preflight_cases import DRAFTERS
from preflight_cases import Case as Drafter
from vpatch.patches.repo import series_folder
from vpatch.preflight.case import Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.judge import judge
from vpatch.preflight.mends import Mends, of_series
from vpatch.preflight.releases import facts_of
from vpatch.preflight.target import read_target
from vpatch.preflight.verdict import Problem, Verdict

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "fixtures" / "preflight"
PAGE = ROOT / "docs" / "preflight.md"
BEGIN, END = "<!-- table: preflight and engine -->", "<!-- end -->"
_WORDS = {"works": "works", "wrong-result": "wrong result", "error": "error"}


@dataclass(frozen=True)
class Row:
    """One drafter on one release: what was said, and what came."""

    drafter: str
    release: str
    verdict: Verdict
    came: Mapping[str, Any]

    @property
    def disagreement(self) -> str | None:
        """Why the two do not agree; None where they do."""
        said = self.verdict.as_given
        if said != self.came["did"]:
            return (
                f"preflight: {said}, engine: {self.came['did']} {self.came.get('text', '')[:200]}"
            )
        first = self.verdict.first
        if first is None or said != "error":
            return None
        if first.when != self.came["when"]:
            return f"preflight: {first.when}, engine: {self.came['when']}"
        if not _in_order(first, self.came["text"]):
            return f"preflight: {first.said!r}, engine: {self.came['text'][:300]!r}"
        return None


def _in_order(problem: Problem, text: str) -> bool:
    place = 0
    for part in problem.on_cpu or problem.text:
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def rows(kept: Path) -> Iterator[Row]:
    """Every stored result beside preflight's verdict on the same files."""
    known = {drafter.name: drafter for drafter in DRAFTERS}
    for path in sorted(kept.glob("v*.json")):
        run = json.loads(path.read_text())
        for name in filter(run["drafters"].get, known):
            place = kept / run["models"] / ("mla" if known[name].mla else "llama")
            verdict = _verdict(place, known[name], run)
            yield Row(name, run["release"], verdict, run["drafters"][name])


def _verdict(place: Path, drafter: Drafter, run: Mapping[str, Any]) -> Verdict:
    mends = Mends(**dict.fromkeys(run.get("mends", ()), True))
    release = facts_of(Version(run["vllm"]), patched=run["patched"], runner="v1", mends=mends)
    target = read_target(read_checkpoint(str(place / "kimi"), weights=False))
    with tempfile.TemporaryDirectory() as folder:
        hollow(place / drafter.name, Path(folder))
        found = read_drafter(read_checkpoint(folder, weights=True))
    return judge(Case(target, found, release, Parallel(), drafter.speculative))


def hollow(kept: Path, folder: Path) -> None:
    """The checkpoint whose config and header are kept, with holes in the weights' place."""
    shutil.copyfile(kept / "config.json", folder / "config.json")
    header = json.loads((kept / "header.json").read_text())
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + max(ends))


def keep(run: Path, models: Path) -> None:
    """Stores a run, and what preflight reads of its checkpoints."""
    found = json.loads(run.read_text())
    version = Version(found["vllm"])
    patched = version.local is not None
    name = f"v{version.public}"
    release = f"{name}, {'patched' if patched else 'as it is'}"
    found["drafters"] = {
        drafter: {**came, "text": _anywhere(came["text"])} if "text" in came else came
        for drafter, came in found["drafters"].items()
    }
    # Of the revision that the run was made with: that of this checkout.
    mends = of_series(series_folder(ROOT, name)).as_names if patched else ()
    told = {"release": release, "patched": patched, "mends": mends, "models": name}
    stored = {**told, **found}
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name}-{'patched' if patched else 'as-it-is'}.json"
    path.write_text(json.dumps(stored, indent=1) + "\n")
    for drafter in DRAFTERS:
        kind = "mla" if drafter.mla else "llama"
        for each in ("kimi", drafter.name):
            _copy(models / kind / "models" / each, KEPT / name / kind / each, each != "kimi")


def _anywhere(text: str) -> str:
    """An error without the places of this machine."""
    return re.sub(r"(/[\w.-]+)+/(?=[\w.-]+)", "", text)[:600]


def _copy(source: Path, folder: Path, weights: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "config.json", folder / "config.json")
    if weights:
        raw = (source / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        (folder / "header.json").write_text(json.dumps(header, indent=0) + "\n")


def table(found: Sequence[Row]) -> str:
    """Drafters down, releases across: what both say."""
    releases = list(dict.fromkeys(row.release for row in found))
    lines = ["| drafter | " + " | ".join(releases) + " |", "| --- " * (len(releases) + 1) + "|"]
    cells = {(row.drafter, row.release): _cell(row) for row in found}
    for name in dict.fromkeys(row.drafter for row in found):
        told = (cells.get((name, release), "") for release in releases)
        lines += [f"| {name} | {' | '.join(told)} |"]
    return "\n".join(lines)


def _cell(row: Row) -> str:
    if row.disagreement is not None:
        return f"**{row.disagreement}**"
    first = row.verdict.first
    if first is None:
        return "works"
    helps = "; an option helps" if row.verdict.word == "works-with" else ""
    where = f", {first.when}: {first.check}" if first.effect == "error" else f": {first.check}"
    return f"{_WORDS[first.effect]}{where}{helps}"


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--models", type=click.Path(path_type=Path, exists=True))
@click.option("--check", is_flag=True)
def main(runs: Sequence[Path], models: Path | None, check: bool) -> None:
    """Keeps runs, compares, writes the table."""
    for run in runs:
        if models is None:
            raise click.UsageError("--models: where the run's checkpoints are")
        keep(run, models)
    found = list(rows(KEPT))
    wrong = [row for row in found if row.disagreement is not None]
    for row in wrong:
        click.echo(f"{row.release}: {row.drafter}: {row.disagreement}")
    page = PAGE.read_text() if PAGE.is_file() else f"{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    fresh = f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}"
    if check and fresh != page:
        click.echo(f"{PAGE.name} is not what the stored runs say: python ci/preflight_table.py")
    elif not check:
        PAGE.write_text(fresh)
    click.echo(f"{len(found)} results, {len(wrong)} disagreements")
    sys.exit(1 if wrong or (check and fresh != page) else 0)


if __name__ == "__main__":
    main()
