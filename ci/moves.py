"""Moves real series with `vpatch rebase` and keeps the tables of docs/conflicts.md true.

    python ci/moves.py [NAME ...]    rewrite the tables of docs/conflicts.md, all or these
    python ci/moves.py --check       exit 1 where they are not what comes out now

ci/moves.toml has the moves: what was accepted by name, and a reason for every file in which the
result differs from the series that was made by hand, and for what a person made of a patch. A file
without a reason is an error, and so is a reason without a file. Each move runs in a folder of its
own, with the stored resolutions; releases are downloaded into the cache once (about 40 MB each;
the one of many releases needs those between them).
"""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli

from vpatch.files import cache_dir
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.upstream.mirror import Mirror

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conflicts.md"
MOVES = ROOT / "ci" / "moves.toml"
_TABLE = re.compile(
    r"(<!-- table: move (?P<name>[^\n]+?) -->\n)(?P<shown>.*?)(?=<!-- end -->)", re.DOTALL
)
_FITS = ("clean", "offset", "three-way")
_FOUND = (0, 1, 3)


@dataclass(frozen=True)
class Leg:
    """One step of a move, and what a person decided about it."""

    source: str
    target: str
    accept: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Move:
    """A series on its way to another release.

    Attributes:
        dry: It is tried and not written: a verdict for each patch.
        patches: Number of a patch -> what became of it, in a sentence.
        without: A topic whose patches are left out on both sides: one of them does not have it, or
            both do, and nothing of it was carried.
        files: Pattern of paths -> why the result differs there from the series made by hand; None
            where there is no such series.
    """

    name: str
    legs: tuple[Leg, ...]
    dry: bool = False
    without: str = ""
    patches: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] | None = None


def moves() -> dict[str, Move]:
    """Those of moves.toml, by name."""
    entries = tomli.loads(MOVES.read_text(encoding="utf-8"))["move"]
    return {each["name"]: _move(each) for each in entries}


def _move(entry: dict[str, Any]) -> Move:
    legs = tuple(
        Leg(leg["from"], leg["to"], tuple(leg.get("accept", ())), tuple(leg.get("keep", ())))
        for leg in entry["leg"]
    )
    dry, without = entry.get("dry", False), entry.get("without", "")
    return Move(entry["name"], legs, dry, without, entry.get("patches", {}), entry.get("files"))


def shown(move: Move) -> str:
    """The table of a move, as it comes out now."""
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder)
        patches = repo / "patches"
        shutil.copytree(ROOT / "patches/resolutions", patches / "resolutions")
        shutil.copytree(ROOT / "patches" / move.legs[0].source, patches / move.legs[0].source)
        (repo / "pyproject.toml").touch()
        if move.without in _topics(move.legs[0].source):
            _leave_out(move.without, repo, move.legs[0].source)
        answers = [_rebased(leg, repo, dry=move.dry) for leg in move.legs]
        lines = [*_counts(move, answers), "", *_verdicts(move, answers)]
        if move.files is not None:
            lines += ["", *_differences(move, patches / move.legs[-1].target)]
    return "\n".join(lines) + "\n"


def _rebased(leg: Leg, repo: Path, *, dry: bool) -> dict[str, Any]:
    chosen = [part for name in leg.accept for part in ("--accept", name)]
    chosen += [part for name in leg.keep for part in ("--keep", name)]
    command = [sys.executable, "-m", "vpatch", "rebase", leg.source, leg.target, *chosen]
    command += ["--repo", str(repo), "--json", *(["--dry-run", "--between"] if dry else [])]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repo)
    if ran.returncode not in (_FOUND if dry else (0,)):
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}:\n{_error(ran)}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _error(ran: subprocess.CompletedProcess[str]) -> str:
    try:
        error = json.loads(ran.stdout)["error"]
    except (ValueError, KeyError):
        return ran.stderr
    return f"{error['message']}\n{error['hint']}"


def _topics(tag: str) -> tuple[str, ...]:
    """Of a pinned series; none where there is no pin."""
    folder = ROOT / "patches" / tag
    return Series.read(folder, tag).topics if folder.is_dir() else ()


def _leave_out(topic: str, repo: Path, tag: str) -> None:
    """The series in a repository without the patches of a topic, and its pin made anew."""
    folder = repo / "patches" / tag
    series = Series.read(folder, tag)
    kept = [patch.file for patch in series.patches if patch.topic != topic]
    for patch in series.patches:
        if patch.file not in kept:
            (folder / patch.file).unlink()
    (folder / "series").write_text("".join(f"{file}\n" for file in kept))
    command = [sys.executable, "-m", "vpatch", "pin", tag, "--repo", str(repo), "--json"]
    subprocess.run(command, capture_output=True, check=True, cwd=repo)


def _counts(move: Move, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    if move.without:
        yield _left_out(move)
    for answer in answers:
        counts = ", ".join(f"{count} {word}" for word, count in answer["counts"].items())
        yield f"{answer['from']} -> {answer['to']}: {len(answer['patches'])} patches: {counts}."


def _left_out(move: Move) -> str:
    """Which topic, and why."""
    source, target = ends = (move.legs[0].source, move.legs[-1].target)
    match [tag for tag in ends if move.without not in _topics(tag)]:
        case []:
            return f"Without the topic {move.without}, which {target}'s series has of its own."
        case [lacks]:
            return f"Without the topic {move.without}, which {lacks} does not have yet."
    raise SystemExit(
        f"no patch of {source} or {target} has the topic {move.without}: take `without` out"
    )


def _verdicts(move: Move, answers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The patches that were not simply carried, and those that somebody says something of."""
    known = dict(move.patches)
    yield "| patch | verdict | what it rests on |" + (" what became of it |" if known else "")
    yield "|---|---|---|" + ("---|" if known else "")
    for answer in answers:
        for patch in answer["patches"]:
            number = patch["file"][:4]
            told = known.pop(number, "")
            if patch["verdict"] not in _FITS or told:
                step = f"{answer['from']} " if answers[1:] else ""
                cells = (f"{step}{number} {patch['subject']}", patch["verdict"], _rests_on(patch))
                last = f" {told} |" if move.patches else ""
                yield f"| {' | '.join(_cell(cell) for cell in cells)} |{last}"
    if known:
        raise SystemExit(f"{move.name}: ci/moves.toml knows no patch {', '.join(known)}")


def _rests_on(patch: dict[str, Any]) -> str:
    """The reason, its first line of evidence, and the release that first is in the way."""
    parts = [patch["why"]]
    if patch["verdict"] != "resolved":
        parts += [
            f"{each['file']}:{each['line']}: {each['text']}" for each in patch["evidence"][:1]
        ]
    else:
        parts = [", ".join(dict.fromkeys(each["file"] for each in patch["conflicts"]))]
    for touch in patch["upstream_changes"][:1]:
        parts.append(f"changed in {touch['in']}, {touch['last_without']} has it as it was")
    return "; ".join(part for part in parts if part)


def _differences(move: Move, folder: Path) -> Iterator[str]:
    """The files that are not as the series made by hand has them, each with its reason."""
    tag = move.legs[-1].target
    mirror = Mirror.open(cache_dir())
    release = mirror.find(tag, "sdist")
    if release is None:
        raise SystemExit(f"{tag} is not in the mirror")
    hand = Series.read(ROOT / "patches" / tag, tag)
    hand = replace(hand, patches=tuple(p for p in hand.patches if p.topic != move.without))
    made, by_hand = (
        apply_series(mirror.git, release.tree, each).tree
        for each in (Series.read(folder, tag), hand)
    )
    listed = mirror.git.output("diff-tree", "-r", "-z", "--numstat", made, by_hand).decode()
    rows = [line.split("\t") for line in listed.split("\0")[:-1]]
    left = {path: f"{less} / {more}" for more, less, path in rows}
    yield f"| files that differ from patches/{tag}: {len(left)} | lines here / there | why |"
    yield "|---|---|---|"
    yield from explained(move.name, move.files or {}, left)


def explained(name: str, reasons: Mapping[str, str], left: dict[str, str]) -> Iterator[str]:
    """A row for each reason, with the files that it is for.

    Args:
        left: The files that differ, and by how many lines; it is emptied.

    Raises:
        SystemExit: a file has no reason, or a reason no file.
    """
    for pattern, why in reasons.items():
        paths = [path for path in left if fnmatch.fnmatchcase(path, pattern)]
        if not paths:
            raise SystemExit(f"{name}: nothing differs in {pattern} any more")
        counts = ", ".join(left.pop(path) for path in paths)
        yield f"| {', '.join(f'`{path}`' for path in paths)} | {counts} | {why} |"
    if left:
        raise SystemExit(f"{name}: say in ci/moves.toml why these differ: {', '.join(left)}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def page(names: Sequence[str] = ()) -> str:
    """docs/conflicts.md with its tables as they come out now; others stay as they are."""
    known = moves()
    text = PAGE.read_text()
    there = [found["name"] for found in _TABLE.finditer(text)]
    if sorted(there) != sorted(known):
        raise SystemExit(f"docs/conflicts.md has {there}, ci/moves.toml {list(known)}")

    def table(found: re.Match[str]) -> str:
        name = found["name"]
        wanted = not names or name in names
        return f"{found[1]}\n{shown(known[name])}\n" if wanted else found[0]

    return _TABLE.sub(table, text)


def main() -> None:
    """Rewrites the page, or says that it is stale."""
    match sys.argv[1:]:
        case ["--check"]:
            if PAGE.read_text() != page():
                raise SystemExit("docs/conflicts.md is stale: run python ci/moves.py")
        case names if not any(name.startswith("-") for name in names):
            PAGE.write_text(page(names))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
