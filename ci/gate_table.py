"""What the engine does where the gates say something of a release as it is.

    python ci/gate_table.py run v0.32.0 --scratch DIR       # v0.26.0 and v0.17.1 likewise

Each gate is a question that a start answers: a drafter of ci/preflight_cases.py beside the smoke's
tiny Kimi-K2.5, on vLLM's own engine, on a CPU (gate_probes.py). What an engine does after an error
that every start ends with, is seen with the patches that mend the error, and no others.

v0.26.0 has a CPU build, whose torch (2.11.0+cpu) the index does not have: its Python runs on the
compiled modules of v0.32.0's, and what calls into them is moot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from gate_engine import Forked
from gate_mutants import ROOT, upstream
from gate_probes import PROBES, add_extra, add_more, observe
from overlay import borrow_lower, make_tree
from preflight_engine import variables_of, write_models
from vpatch.files import write_atomically
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream, fetch
from vpatch.progress import SilentProgress
from vpatch.smoke import session
from vpatch.smoke.environment import Environment, make_environment
from vpatch.smoke.releases import facts_of
from vpatch.smoke.run import Children
from vpatch.smoke.wheels import find_subject
from vpatch.tags import version_of
from vpatch.wheel.edits import edits_between

SEEN = ROOT / "docs" / "gates-engine.json"
TAGS = ("v0.17.1", "v0.26.0", "v0.32.0")
BORROWS = {"v0.26.0": "v0.32.0"}


def environment_of(tag: str, source: Upstream, scratch: Path) -> Environment:
    """Where a release as it is runs; on another one's compiled modules where it has to."""
    build = BORROWS.get(tag, tag)
    wheel, _ = find_subject(build, "cpu", ROOT, source, scratch / "wheel", unpatched=True)
    made = make_environment(wheel, "cpu", cache=source.cache, progress=SilentProgress())
    if build == tag:
        return made
    site = scratch / f"vllm-{tag}"
    if not site.is_dir():
        mirror, release = fetch(tag, source, None)
        borrow_lower(site, wheel, mirror.git, release.tree, tag)
    return replace(made, path=(site,))


def patched_with(tag: str, upto: str, lower: Path, source: Upstream, folder: Path) -> Path:
    """The release with its series as far as one patch."""
    if not upto:
        return lower
    place = folder / f"upto-{upto}" / lower.name
    if not place.is_dir():
        mirror, release = fetch(tag, source, None)
        series = Series.read(ROOT / "patches" / tag, tag)
        (end,) = [n for n, patch in enumerate(series.patches) if patch.file.startswith(upto)]
        some = replace(series, patches=series.patches[: end + 1])
        tree = apply_series(mirror.git, release.tree, some).tree
        place.parent.mkdir(parents=True)
        edits = edits_between(mirror.git, release.tree, tree)
        make_tree(lower, place, [each for each in edits if each.path.startswith("vllm/")])
    return place


@contextmanager
def engines(
    tag: str, environment: Environment, source: Upstream, scratch: Path
) -> Iterator[Forked]:
    """Processes of the engine's Python."""
    facts = facts_of(version_of(tag))
    variables = session._variables(environment, source.cache / "smoke", scratch)
    forked = Forked(environment, scratch, {**variables, **variables_of(facts, mla=False)})
    try:
        yield forked
    finally:
        forked.close()


@click.group(help=__doc__.split("\n\n", 1)[0])
def main() -> None:
    pass


@main.command()
@click.argument("tag", type=click.Choice(TAGS))
@click.option("--scratch", type=click.Path(path_type=Path), required=True, help="Kept.")
@click.option("--only", default="", help="Gates whose name holds this.")
def run(tag: str, scratch: Path, only: str) -> None:
    """Starts the engines that answer; what was answered before is kept."""
    source = upstream()
    scratch = scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    environment = environment_of(tag, source, scratch)
    facts = facts_of(version_of(tag))
    found = read_seen()
    with engines(tag, environment, source, scratch) as forked:
        models = scratch / "drafters"
        children = cast("Children", forked)
        if not models.is_dir():
            write_models(models, children, facts)
        add_extra(models)
        add_more(models, children)
        for probe in PROBES:
            if only not in probe.gate or not probe.asked_of(tag):
                continue
            upto = probe.behind if tag == "v0.17.1" else ""
            forked.site = patched_with(tag, upto, environment.path[0], source, scratch)
            place = scratch / f"runs-{upto or 'as-it-is'}"
            place.mkdir(exist_ok=True)
            seen = observe(probe, models, place, children, facts)
            found.setdefault(tag, {})[probe.gate] = {**seen.as_dict(), "behind": upto}
            click.echo(f"{probe.gate}: {seen}")
            write_seen(found)


def read_seen() -> dict[str, dict[str, Any]]:
    """What engines did: release -> gate -> it."""
    found: dict[str, dict[str, Any]] = json.loads(SEEN.read_text()) if SEEN.is_file() else {}
    return found


def write_seen(found: dict[str, dict[str, Any]]) -> None:
    """Keeps it."""
    write_atomically(SEEN, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
