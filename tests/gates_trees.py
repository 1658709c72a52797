"""Trees of real releases, as they are and with their series, and changes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from vpatch.gates.tree import Tree, of_git
from vpatch.pipeline import Upstream, fetch, prepare
from vpatch.progress import SilentProgress
from vpatch.upstream.mirror import Mirror

ROOT = Path(__file__).parents[1]
Trees = Callable[..., Tree]


def trees(cache: Path) -> Trees:
    """What makes a release's tree: ``(tag, *, patched=False)``."""
    upstream = Upstream(cache, None, None, SilentProgress())

    def made(tag: str, *, patched: bool = False) -> Tree:
        if not patched:
            mirror, release = fetch(tag, upstream, None)
            return of_git(mirror.git, release.tree, tag)
        found = prepare(tag, ROOT, upstream).applied.tree
        return of_git(Mirror.open(cache).git, found, tag)

    return made


def changed(of: Tree, path: str, old: str, new: str) -> Tree:
    """A tree with a text of a file replaced, wherever it stands."""
    data = of.read(path)
    assert data is not None
    assert old.encode() in data
    contents = {**of._contents, path: data.replace(old.encode(), new.encode())}
    return dataclasses.replace(of, _contents=contents)
