"""Writes what `vpatch explain` knows of releases as they are: tools/vpatch/explain/releases.json.

    python ci/explain.py [TAG...]     ask the gates of these releases (by default of all that the
                                      index lists from v0.15.0 on) and write the file
    python ci/explain.py --check TAG...    exit 1 where a gate says an error that the file lacks

The texts are those that the releases' code raises: where the line that a gate names is a `raise`,
its fixed parts are read off that line. Releases are fetched into the cache: 30 MB each.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vpatch.explain.of_gates import Seen, seen_on_releases
from vpatch.explain.pattern import Pattern
from vpatch.explain.templates import Scope, templates
from vpatch.files import cache_dir
from vpatch.gates.check import check_tree
from vpatch.gates.gate import Verdict
from vpatch.gates.tree import Tree, of_git
from vpatch.pipeline import Upstream, fetch
from vpatch.progress import SilentProgress
from vpatch.status.collect import FIRST, PROJECT
from vpatch.tags import version_of
from vpatch.upstream.index import Index

FILE = Path(__file__).resolve().parent.parent / "tools" / "vpatch" / "explain" / "releases.json"


def every_release() -> list[str]:
    """The releases that the index lists, oldest first."""
    listed = Index.from_pip_config().releases(PROJECT)
    versions = {one.version for one in listed if not one.yanked and one.version >= FIRST}
    return [f"v{each}" for each in sorted(versions) if not each.is_prerelease]


def tree_of(tag: str) -> Tree:
    """A release as it is."""
    upstream = Upstream(cache_dir(), None, None, SilentProgress())
    mirror, release = fetch(tag, upstream, None)
    return of_git(mirror.git, release.tree, tag)


def seen(tags: Sequence[str]) -> list[Seen]:
    """The errors of releases, each text once."""
    found: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for tag in tags:
        for gate, parts, when in of_tree(tree_of(tag)):
            found.setdefault((gate, parts, when), []).append(tag)
    return [Seen(gate, parts, when, tuple(of)) for (gate, parts, when), of in found.items()]


def of_tree(tree: Tree) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Gate, fixed parts and time of each error that gates say of a tree."""
    for verdict in check_tree(tree).failed:
        if verdict.found.error:
            parts = parts_of(tree, verdict)
            yield verdict.gate.name, parts, verdict.found.when


def parts_of(tree: Tree, verdict: Verdict) -> tuple[str, ...]:
    """The fixed parts of a gate's error."""
    for place in verdict.found.evidence[:1]:
        data = tree.read(place.file)
        for text in _raised(data, place.line) if data else ():
            pattern = Pattern.of(text)
            if pattern.parts and pattern.matches(" ".join(verdict.found.error.split())):
                return pattern.parts
    return Pattern.of(verdict.found.error).parts


def _raised(data: bytes, line: int) -> Iterator[str]:
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Raise) and node.lineno <= line <= (node.end_lineno or 0):
            call = node.exc
            if isinstance(call, ast.Call) and call.args:
                yield from templates(call.args[0], Scope())


def missing(tags: Sequence[str]) -> list[str]:
    """Errors of releases that the file lacks."""
    known = {(one.gate, one.parts, tag) for one in seen_on_releases() for tag in one.releases}
    return [
        f"{tag}: {gate} says {' ... '.join(parts)}"
        for tag in tags
        for gate, parts, _ in of_tree(tree_of(tag))
        if (gate, parts, tag) not in known
    ]


def main() -> None:
    """Writes the file, or names what it lacks."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--check"]:
        lacking = missing(arguments[1:])
        sys.stderr.writelines(f"{line}: run python ci/explain.py\n" for line in lacking)
        sys.exit(1 if lacking else 0)
    tags = sorted(arguments, key=version_of) if arguments else every_release()
    rows = [
        json.dumps({"gate": one.gate, "parts": one.parts, "when": one.when,
                    "releases": one.releases})
        for one in seen(tags)
    ]  # fmt: skip
    FILE.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
