"""`vpatch rebase` and its peers in one run: git rebase, git am -3, gbp pq, quilt, StGit.

    python ci/rebase_peers.py [cases] [real] [long] [--markdown docs/rebase.md]

cases: small moves that mislead (peers_cases.py). real: the pinned series of a release on the next
pinned release. long: 300 patches on 5,000 files, and one release step, against the clock; verifying
every pinned series on every pinned release, against `git worktree add` + `git am` of each.

An outcome is *right*, or *stops* (exit code other than 0: a person looks at it), or *wrong* (exit
code 0, and the tree is not what it has to be), or *silent* (the tree is right, but a patch left, or
lost a part, and nothing that was printed names it). Exit 1: vpatch is wrong or silent once, or a
bound is missed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

import peers_page
from peers_cases import CASES, Case, Files
from peers_clock import long_series, real_steps, verified
from peers_tools import COMMANDS, TOOLS, Move, Outcome, call, write_mails
from vpatch.git import Git

PARTS = ("cases", "real", "long")


def tools() -> list[str]:
    """The tools that are there."""
    return [name for name in TOOLS if name not in COMMANDS or shutil.which(COMMANDS[name])]


def make_case(case: Case, folder: Path) -> Move:
    """A repository with a case's releases and its patch."""
    repo = folder / "repo"
    repo.mkdir(parents=True)
    call(repo, "git", "init", "--quiet")
    base = _commit(repo, case.before, "The base")
    call(repo, "git", "checkout", "--quiet", "-b", "series")
    subject = f"case {case.name} does what it does"
    head = _commit(repo, case.after, f"{subject}\n\nBecause the case asks for it.\n")
    call(repo, "git", "checkout", "--quiet", "--detach", base)
    new = _commit(repo, case.upstream, "The next release")
    mails = folder / "mails"
    write_mails(Git(repo / ".git"), base, head, mails)
    return Move(repo, base, new, mails, (subject,))


def _commit(repo: Path, files: Files, message: str) -> str:
    for path in (path for path in repo.iterdir() if path.name != ".git"):
        shutil.rmtree(path)
    for name, data in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_bytes(data)
    call(repo, "git", "add", "--all")
    call(repo, "git", "commit", "--quiet", "--allow-empty", "-m", message)
    return call(repo, "git", "rev-parse", "HEAD").stdout.strip()


def judged(case: Case, move: Move, outcome: Outcome, wanted: str) -> str:
    """One word on what a tool made of a case."""
    if outcome.status:
        return "stops"
    if not wanted or outcome.tree != wanted:
        return "wrong"
    if not case.leaves:
        return "right"
    # Whatever names the patch and says what became of it will do.
    # git names a patch that it skips by the id of its commit alone.
    names = f"{re.escape(move.subjects[0])}|applied commit [0-9a-f]{{7}}"
    words = r"already|upstream|empty|merged|absorbed|skipp|dropp|applied"
    told = re.search(names, outcome.said) and re.search(words, outcome.said, re.IGNORECASE)
    return "right" if told else "silent"


def wanted_tree(case: Case, repo: Path) -> str:
    """The tree that a case has to come to; empty where nothing may come without a word."""
    if case.wanted is None:
        return ""
    commit = _commit(repo, case.wanted, "What is wanted")
    return call(repo, "git", "rev-parse", f"{commit}^{{tree}}").stdout.strip()


def run_cases(names: Sequence[str]) -> Iterator[peers_page.Row]:
    """Each case with each tool."""
    for case in CASES:
        words: dict[str, str] = {}
        with tempfile.TemporaryDirectory(prefix="vpatch-peers-") as folder:
            move = make_case(case, Path(folder))
            wanted = wanted_tree(case, move.repo)
            call(move.repo, "git", "checkout", "--quiet", "--detach", move.next)
            for name in names:
                scratch = Path(folder) / re.sub(r"\W+", "-", name)
                scratch.mkdir()
                words[name] = judged(case, move, TOOLS[name](move, scratch), wanted)
        yield peers_page.Row(case.name, case.what, words)


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the page here.")
def main(parts: tuple[str, ...], markdown: Path | None) -> None:
    """Runs all, prints, and exits 1 where vpatch is wrong or a bound is missed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed vpatch is compiled
    names = tools()
    page = peers_page.Page(tuple(names), load=os.getloadavg()[0])
    for part in parts or PARTS:
        if part == "cases":
            page.rows = tuple(run_cases(names))
        elif part == "real":
            page.steps = tuple(real_steps(names))
        else:
            page.times = (*long_series(names), *verified())
        sys.stdout.writelines(f"{line}\n" for line in peers_page.shown(page, part))
        sys.stdout.flush()
    if markdown is not None:
        markdown.write_text(peers_page.text(page))
    wrong = list(peers_page.problems(page))
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
