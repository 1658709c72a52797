"""The judge of Debian, on small source packages that dpkg-source builds."""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import debian_judge  # noqa: E402
import debian_page  # noqa: E402
from debian_lines import Judged, judge, judge_at_once  # noqa: E402
from debian_quilt import Line, header, header_in, make_line, make_repository, message  # noqa: E402
from debian_source import Package, Quilt, Version, run  # noqa: E402
from vpatch.git import Git  # noqa: E402

CONTROL = """\
Source: thing
Maintainer: A Maintainer <maintainer@example.com>
Standards-Version: 4.6.0

Package: thing
Architecture: all
Description: a thing
"""
CHANGELOG = """\
thing ({version}) unstable; urgency=low

  * A change.

 -- A Maintainer <maintainer@example.com>  Fri, 02 Jan 2026 03:04:05 +0000
"""
DOS = b"# ends\r\n# of DOS\r\n"
HEADER = "Description: it {what}\n With `---`, From: and diff --git in its text.\nForwarded: no\n\n"
OLD = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(6))
# Upstream takes the first patch's change, changes what the third one changes, and grows at the top.
NEW = "import os\n\n" + OLD.replace("return 1\n", "return 11\n").replace(
    "return 3\n", "return 33\n"
)


def diff(before: str, after: str, scratch: Path, what: str) -> bytes:
    """A patch as quilt keeps it, with a header."""
    for name, text in (("a", before), ("b", after)):
        (scratch / name).mkdir(parents=True, exist_ok=True)
        (scratch / name / "thing.py").write_text(text)
    words = ["diff", "-u", "--label", "a/thing.py", "--label", "b/thing.py"]
    script = " ".join([*words, "a/thing.py", "b/thing.py", "|| true"])
    return HEADER.format(what=what).encode() + run("sh", "-c", script, cwd=scratch)


def source(store: Path, version: str, text: str, patches: Mapping[str, bytes]) -> Version:
    """Builds a source package and says its hashes."""
    upstream = version.rpartition("-")[0]
    folder = store / f"thing-{upstream}"
    folder.mkdir(parents=True)
    (folder / "thing.py").write_text(text)
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "dos.py").write_bytes(DOS)
    (folder / ".gitattributes").write_text("*.py text eol=crlf\n")
    (folder / ".gitignore").write_text("tool.sh\n")
    with tarfile.open(store / f"thing_{upstream}.orig.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    debian = folder / "debian"
    (debian / "source").mkdir(parents=True)
    (debian / "patches").mkdir()
    (debian / "source" / "format").write_text("3.0 (quilt)\n")
    (debian / "control").write_text(CONTROL)
    (debian / "changelog").write_text(CHANGELOG.format(version=version))
    (debian / "patches" / "series").write_text("".join(f"{name}\n" for name in patches))
    for name, raw in patches.items():
        (debian / "patches" / name).write_bytes(raw)
    run("dpkg-source", "--build", folder, cwd=store)
    names = [path for path in store.iterdir() if path.is_file() and f"_{upstream}" in path.name]
    return Version(
        "old" if version.startswith("1") else "new",
        version,
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names},
    )


def lines(
    folder: Path, old: Mapping[str, bytes], new: Mapping[str, bytes]
) -> tuple[Git, Line, Line]:
    store = folder / "store"
    versions = source(store, "1-1", OLD, old), source(store, "2-1", NEW, new)
    package = Package("thing", "Python", *versions)
    git = make_repository(folder / "lines.git")
    made = [make_line(git, package, one, store, folder) for one in versions]
    return git, made[0], made[1]


def swap(text: str, number: int, value: str) -> str:
    changed = text.replace(
        f"def f{number}():\n    return ", f"def f{number}():\n    return {value} + "
    )
    assert changed != text
    return changed


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Judged], int, tuple[str, ...]]:
    """An absorbed patch, a refreshed, a conflicting, and one that the maintainers changed."""
    folder = tmp_path_factory.mktemp("debian")
    absorbed = OLD.replace("return 1\n", "return 11\n")
    first = swap(absorbed, 5, "50")
    second = swap(first, 3, "30")
    third = swap(second, 0, "7")
    old = {
        "absorbed.patch": diff(OLD, absorbed, folder / "d1", "is upstream"),
        "refreshed.patch": diff(absorbed, first, folder / "d2", "moves"),
        "conflict.patch": diff(first, second, folder / "d3", "conflicts"),
        "changed.patch": diff(second, third, folder / "d4", "is changed"),
    }
    moved = swap(NEW, 5, "50")
    solved = swap(moved, 3, "30")
    new = {
        "refreshed.patch": diff(NEW, moved, folder / "d5", "moves"),
        "conflict.patch": diff(moved, solved, folder / "d6", "conflicts"),
        "changed.patch": diff(solved, swap(solved, 0, "8"), folder / "d7", "is changed"),
    }
    git, before, after = lines(folder, old, new)
    # No attribute of theirs has a say, and nothing is ignored.
    assert git.output("cat-file", "blob", f"{before.base}:dos.py") == DOS
    assert git.output("ls-tree", before.base, "tool.sh").startswith(b"100755 ")
    judged = {one.name: one for one in judge(git, before, after)}
    once = judge_at_once(git, before, after)
    return judged, once.agree, once.differ


Found = tuple[dict[str, Judged], int, tuple[str, ...]]


@pytest.mark.parametrize(
    ("name", "became", "verdict", "outcome"),
    [
        ("absorbed.patch", "dropped", "absorbed", "agrees"),
        ("refreshed.patch", "refreshed", "offset", "agrees"),
        ("conflict.patch", "refreshed", "conflict", "asked"),
        ("changed.patch", "refreshed", "offset", "differs"),
    ],
)
def test_each_patch_is_held_against_the_maintainers(
    found: Found, name: str, became: str, verdict: str, outcome: str
) -> None:
    one = found[0][name]
    assert (one.became, one.verdict, one.outcome) == (became, verdict, outcome)


def test_a_difference_is_shown_with_its_lines(found: Found) -> None:
    assert "-    return 8 + 0\n+    return 7 + 0\n" in found[0]["changed.patch"].diff
    assert not found[0]["refreshed.patch"].diff


def test_at_once_what_is_behind_a_conflict_does_not_count(found: Found) -> None:
    _, agree, differ = found
    assert (agree, differ) == (2, ())  # changed.patch stands behind the conflict


@pytest.mark.parametrize(
    "raw",
    [
        b"From: A <a@example.com>\nSubject: [x] it\n\n---\n text\n--- a/f\n+++ b/f\n",
        b"Description: \xff no UTF-8 \nx\t\n\n\n--- a/f\n",
        b"--- a/f\n",
        b"# a comment\n\nIndex: f\n",
    ],
)
def test_no_byte_of_a_header_is_lost(raw: bytes) -> None:
    one = Quilt("a.patch", raw)
    assert header_in(message(one)) == header(one)
    assert raw.startswith(header(one))


def result(folder: str, outcome: str) -> debian_judge.Result:
    from debian_lines import Once  # noqa: PLC0415

    version = Version("old", "1-1", {})
    patch = Judged("a.patch", "dropped", "clean", outcome, (), "")
    package = Package(folder, "C", version, version)
    return debian_judge.Result(package, (patch,), Once({"clean": 1}, 0, 0, (), 0.0))


@pytest.mark.parametrize(
    ("outcome", "explained", "said"),
    [
        ("differs", {}, "nothing explains it"),
        ("differs", {"thing/a.patch": ("it duplicates a line", True)}, "is wrong"),
        ("agrees", {"thing/a.patch": ("old", False)}, "does not differ"),
        ("differs", {"thing/a.patch": ("a new decision", False)}, ""),
        ("agrees", {"other/a.patch": ("another package", False)}, ""),
    ],
)
def test_what_fails_the_judge(
    outcome: str, explained: dict[str, tuple[str, bool]], said: str
) -> None:
    told = {name: debian_page.Explained(*each) for name, each in explained.items()}
    wrong = list(debian_judge.problems([result("thing", outcome)], told))
    assert (len(wrong) == 1 and said in wrong[0]) if said else not wrong


def test_the_page_explains_every_difference_and_nothing_is_wrong() -> None:
    page = (REPO / "docs" / "debian.md").read_text()
    total = next(line for line in page.splitlines() if line.startswith("| all |"))
    assert total.endswith("| 0 |")
    assert "not explained" not in page
    for name, one in debian_judge.read_explained().items():
        package, _, patch = name.partition("/")
        assert f"- {package}, `{patch}` (not wrong): {one.why}" in page
