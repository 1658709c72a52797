"""Do the gates see what breaks the engine? Mutants of the patched releases, judged by both.

    python ci/gate_mutants.py static             # what `vpatch check` says of each, into the list
    python ci/gate_mutants.py engine v0.17.1 --scratch DIR     # what the engine does, on a CPU
    python ci/gate_mutants.py table              # docs/gates.md's part

A mutant is a patched tree with one thing renamed or removed that the series adds: a definition, an
attribute, a call, a base, an entry of a table (gate_mutate.py finds them in the syntax trees). The
engine is vLLM's own, on a CPU, on the smoke's checkpoints: "broken" is a check of `vpatch smoke`
that passes on the patched release and fails on the mutant. Starts that run none of a mutant's lines
are not made. The list is docs/gates-mutants.json; a mutant keeps its result while its text is the
same.

Exit 1: the gates see less than 95 % of the mutants that break the engine.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from gate_mutate import Mutant, mutants_of
from vpatch.cores import shared_out
from vpatch.files import cache_dir, write_atomically
from vpatch.gates.check import check_tree
from vpatch.gates.modules import Module
from vpatch.gates.tree import Tree, of_git
from vpatch.git import Git
from vpatch.pipeline import Upstream, fetch, prepare
from vpatch.progress import SilentProgress
from vpatch.upstream.mirror import Mirror

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "docs" / "gates-mutants.json"
TAGS = ("v0.17.1", "v0.32.0")
NEEDED = 0.95
# Mutants that a process asks the gates about at a time.
_TASK = 20
Entry = dict[str, Any]


def upstream(cache: Path | None = None) -> Upstream:
    """Releases from the cache's mirror."""
    return Upstream(cache or cache_dir(), None, None, SilentProgress())


def mutants(tag: str, source: Upstream) -> tuple[Tree, list[Mutant]]:
    """A patched release, and its mutants."""
    git = Mirror.open(source.cache).git
    _, release = fetch(tag, source, None)
    patched = prepare(tag, ROOT, source).applied.tree
    names = git.output("diff", "--name-only", "-z", release.tree, patched, "--", "vllm")
    paths = sorted(name.decode() for name in names.split(b"\0") if name.endswith(b".py"))
    before, after = _read(git, release.tree, paths), _read(git, patched, paths)
    found = [
        mutant
        for path in paths
        if path in after
        for mutant in mutants_of(path, before.get(path), after[path])
    ]
    return of_git(git, patched, tag), found


def _read(git: Git, tree: str, paths: list[str]) -> dict[str, bytes]:
    blobs = git.blob_ids(tree, paths)
    data = git.read_blobs(blobs.values())
    return {path: data[blob] for path, blob in blobs.items()}


class Checker:
    """What the gates say of mutants of one tree; unchanged modules are parsed once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._parsed: dict[str, Module | None] = {}
        self.check(None)

    def check(self, mutant: Mutant | None) -> list[str]:
        """The names of the gates that are red."""
        contents = self.tree._contents if mutant is None else _changed(self.tree, mutant)
        parsed: dict[str, Module | None] = {
            name: module
            for name, module in self._parsed.items()
            if module is not None and (mutant is None or module.path != mutant.path)
        }
        checked = check_tree(dataclasses.replace(self.tree, _contents=contents), parsed)
        for name, module in parsed.items():
            if module is not None and (mutant is None or module.path != mutant.path):
                self._parsed.setdefault(name, module)
        return [each.gate.name for each in checked.failed if not each.found.absent]


def _changed(tree: Tree, mutant: Mutant) -> dict[str, bytes]:
    tree.read(mutant.path)
    return {**tree._contents, mutant.path: mutant.data}


def read_list() -> dict[str, list[Entry]]:
    """The committed list: release -> mutants."""
    found: dict[str, list[Entry]] = json.loads(LIST.read_text()) if LIST.is_file() else {}
    return found


def write_list(entries: Mapping[str, list[Entry]]) -> None:
    """Writes it, a mutant a line."""
    parts = []
    for tag, each in entries.items():
        lines = ",\n  ".join(json.dumps(entry) for entry in each)
        parts.append(f' "{tag}": [\n  {lines}\n ]')
    write_atomically(LIST, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def entry_of(mutant: Mutant, red: list[str], known: Entry) -> Entry:
    """A line of the list."""
    piece = mutant.piece
    return {
        "key": mutant.key,
        "file": mutant.path.removeprefix("vllm/"),
        "scope": piece.scope,
        "kind": piece.kind,
        "what": piece.text,
        "action": piece.action,
        "red": red,
        "engine": known.get("engine"),
        "check": known.get("check"),
        "evidence": known.get("evidence"),
    }


def update(tag: str, source: Upstream) -> list[Entry]:
    """The list of one release with the gates asked anew."""
    known = {each["key"]: each for each in read_list().get(tag, [])}
    tree, found = mutants(tag, source)
    checker = Checker(tree)
    parts = [found[first : first + _TASK] for first in range(0, len(found), _TASK)]
    reds = chain.from_iterable(shared_out([partial(_reds, checker, part) for part in parts]))
    return [
        entry_of(each, red, known.get(each.key, {})) for each, red in zip(found, reds, strict=True)
    ]


def _reds(checker: Checker, found: Sequence[Mutant]) -> list[list[str]]:
    reds = [checker.check(each) for each in found]
    gc.collect()  # nobody else does in a process that does tasks
    return reds


@click.group(help=__doc__.split("\n\n", 1)[0])
def main() -> None:
    pass


@main.command()
@click.argument("tags", nargs=-1)
def static(tags: tuple[str, ...]) -> None:
    """Asks the gates about every mutant."""
    entries = read_list()
    for tag in tags or TAGS:
        entries[tag] = update(tag, upstream())
        write_list(entries)
        click.echo(f"{tag}: {_told(entries[tag])}")


@main.command()
@click.argument("tag")
@click.option("--scratch", type=click.Path(path_type=Path), required=True, help="Kept.")
@click.option("--only", default="", help="Mutants whose name holds this.")
@click.option("--green", is_flag=True, help="Those that no gate sees.")
@click.option("--again", is_flag=True, help="Those with a result too.")
def engine(tag: str, scratch: Path, only: str, green: bool, again: bool) -> None:
    """Starts engines, one after the other; what was found is kept."""
    from gate_engine import Lab  # noqa: PLC0415 - the static half needs none of it

    source = upstream()
    _, found = mutants(tag, source)
    files = {each.path for each in found}
    seen = {each["key"] for each in read_list().get(tag, []) if each["red"]}
    if green:
        found = [each for each in found if each.key not in seen]
    lab = Lab(tag, ROOT, source, scratch.absolute(), sorted(files))
    results = scratch / "results"
    results.mkdir(exist_ok=True)
    try:
        for mutant in sorted(found, key=_order):
            kept = results / f"{mutant.key}.json"
            if only not in mutant.name or (kept.is_file() and not again):
                continue
            judged = lab.judge(mutant)
            kept.write_text(json.dumps(dataclasses.asdict(judged)))
            click.echo(f"{judged.word} {mutant.name}: {judged.check} {judged.evidence[:100]!r}")
    finally:
        lab.close()
        _collect(tag, results)


@main.command()
@click.argument("tag")
@click.option("--scratch", type=click.Path(path_type=Path), required=True, help="Of `engine`.")
def collect(tag: str, scratch: Path) -> None:
    """Takes what engines did so far into the list."""
    _collect(tag, scratch / "results")


def _collect(tag: str, results: Path) -> None:
    entries = read_list()
    entries[tag] = [_with(entry, results) for entry in entries.get(tag, [])]
    write_list(entries)


def _order(mutant: Mutant) -> tuple[bool, str]:
    """Definitions and attributes first; the rest in no order, so that a part of it is a sample."""
    return mutant.piece.kind in {"call", "read"}, mutant.key


def _with(entry: Entry, results: Path) -> Entry:
    kept = results / f"{entry['key']}.json"
    if not kept.is_file():
        return entry
    found = json.loads(kept.read_text())
    evidence = " ".join(found["evidence"].split())[:160]
    return {**entry, "engine": found["word"], "check": found["check"], "evidence": evidence}


def counted(entries: list[Entry]) -> tuple[int, int]:
    """How many break the engine, and of how many of those a gate turns red."""
    broken = [each for each in entries if each["engine"] == "broken"]
    return len(broken), sum(bool(each["red"]) for each in broken)


def _told(entries: list[Entry]) -> str:
    red = sum(bool(each["red"]) for each in entries)
    broken, seen = counted(entries)
    return f"{len(entries)} mutants, {red} red; {broken} break the engine, {seen} of them red"


def missed(entries: Mapping[str, list[Entry]]) -> Iterator[str]:
    """Those that break the engine while all gates are green."""
    for tag, each in entries.items():
        for one in each:
            if one["engine"] == "broken" and not one["red"]:
                where = f"{tag} {one['file']}:{one['scope']}"
                yield f"{where} {one['kind']} {one['what']}: {one['check']}"


@main.command()
def table() -> None:
    """Tells how many are seen; exit 1 where it is less than 95 %."""
    entries = read_list()
    short = False
    for tag, each in entries.items():
        broken, seen = counted(each)
        click.echo(f"{tag}: {_told(each)}")
        short |= broken > 0 and seen < NEEDED * broken
    for line in missed(entries):
        click.echo(f"missed: {line}")
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
