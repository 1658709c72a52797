"""vpatch lint --fix: one right answer, nothing lost, and the second run finds nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kill_lab import contents, killed_at, moments, put_back, spread
from series_lab import TAG, Lab, Step, numbered, plain_git
from test_cli import one_object, run
from test_lint import edit, write_pin
from test_parsers import TOKENS
from vpatch.findings import FindingsError
from vpatch.patches.apply import apply_series
from vpatch.patches.check import check_series
from vpatch.patches.fix import fixed
from vpatch.patches.mend import FIXABLE
from vpatch.patches.patch import Patch
from vpatch.patches.series import LISTING, Series, lint
from vpatch.patches.swap import Content, read_folder
from vpatch.verbs.lint import run as lint_verb

STEPS = [
    Step("0001-one.patch", {"vllm/a.py": numbered(40, changed={5: "five"})}),
    Step("0002-two.patch", {"vllm/a.py": numbered(40, changed={5: "5"})}),
    Step("0003-three.patch", {"vllm/b.py": b"b\n"}),
]
ONE, TWO, THREE = (step.file for step in STEPS)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, {"vllm/a.py": numbered(40)})


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    write_pin(lab, lab.series(repo / "patches" / TAG, STEPS))
    (repo / "pyproject.toml").touch()
    (repo / "patches" / TAG / "README").write_text("mine\n")
    return repo / "patches" / TAG


def fix(folder: Path) -> tuple[int, list[str]]:
    """The exit code and what was done."""
    report = lint_verb(folder.parent.parent, [TAG], since="HEAD", fix=True)
    return report.exit_code, list(report.data["fixed"])


def said(folder: Path) -> list[tuple[str, str, bytes]]:
    return [
        (patch.subject, patch.mail.message, patch.diff) for patch in Series.read(folder).patches
    ]


def rename(folder: Path, old: str, new: str) -> None:
    (folder / old).rename(folder / new)
    edit(folder, LISTING, old.encode(), new.encode())


def everything_at_once(folder: Path) -> None:
    rename(folder, ONE, "0002-one.patch")
    rename(folder, TWO, "Zwei Stück.patch")
    rename(folder, THREE, f"0007-{'three-' * 20}3.patch")
    edit(folder, "0002-one.patch", b"From 0000", b"From 1111")
    head = b"Subject: [PATCH]"
    edit(folder, "0002-one.patch", head, b"X-Hostile: yes\n more\nTo: a@b\n" + head)
    edit(folder, "0002-one.patch", b"asks for it.", b"asks for it. \t")
    edit(folder, "Zwei Stück.patch", b"Because", b"\n\nBecause")
    edit(folder, "Zwei Stück.patch", b"Topic:", b"\n\nTopic:")
    stat = b"---\n vllm/b.py | 1 +\n 1 file changed, 1 insertion(+)\n\n"
    for name in ("Zwei Stück.patch", f"0007-{'three-' * 20}3.patch"):
        edit(folder, name, b"\ndiff --git", stat + b"diff --git")
    for path in folder.glob("*.patch"):
        path.write_bytes(path.read_bytes() + b"-- \n2.39.5\n\n")
    text = (folder / LISTING).read_bytes().replace(b"\n", b"\r\n")
    (folder / LISTING).write_bytes(b"# why\n" + text + b"0002-one.patch \n\n# end")


def test_everything_at_once(lab: Lab, folder: Path) -> None:
    old = contents(folder)
    was = said(folder)
    tree = apply_series(lab.git, lab.base, Series.read(folder)).tree
    everything_at_once(folder)
    codes = {finding.code for finding in lint(folder)}
    assert codes >= FIXABLE - {"not-listed", "number", "order"}
    status, done = fix(folder)
    # Every byte is the old one again, so that the pin holds.
    assert status == 0
    assert all(line.startswith(f"{TAG}: ") for line in done)
    names = [patch.file for patch in Series.read(folder).patches]
    assert names == ["0001-one.patch", "0002-two.patch", "0003-three.patch"]
    assert said(folder) == was
    assert apply_series(lab.git, lab.base, Series.read(folder)).tree == tree
    assert (folder / LISTING).read_bytes() == b"# why\n" + old[LISTING] + b"\n# end\n"
    new = contents(folder)
    assert {**new, LISTING: b""} == {**old, LISTING: b""}
    assert fix(folder) == (0, [])
    assert contents(folder) == new


def test_what_git_am_commits_is_the_same(lab: Lab, folder: Path, tmp_path: Path) -> None:
    everything_at_once(folder)
    before = by_am(lab, folder, tmp_path / "before")
    fix(folder)
    assert by_am(lab, folder, tmp_path / "after") == before


def by_am(lab: Lab, folder: Path, place: Path) -> bytes:
    place.mkdir()
    plain_git("init", "--quiet", folder=place)
    (place / ".git/objects/info/alternates").write_text(f"{lab.git.git_dir}/objects\n")
    plain_git("reset", "--quiet", "--hard", lab.commit, folder=place)
    names = [line.split("#")[0].strip() for line in (folder / LISTING).read_text().split("\n")]
    mails = [str(folder / name) for name in dict.fromkeys(filter(None, names))]
    plain_git("am", "--quiet", *mails, folder=place)
    return plain_git("log", "--format=%an %ae %ad %T %B", folder=place)


def test_a_patch_that_is_not_listed_is_listed_by_its_number(folder: Path) -> None:
    edit(folder, LISTING, b"0002-two.patch\n", b"")
    assert fix(folder) == (0, [f"{TAG}: series: 0002-two.patch is listed"])
    assert [patch.file for patch in Series.read(folder).patches] == [ONE, TWO, THREE]


def test_what_a_person_wrote_in_the_list_stays_when_a_second_line_goes(folder: Path) -> None:
    (folder / LISTING).write_text(
        f"# top\n{ONE}\n{TWO}\n# precious\n{ONE} # and why\n{THREE}\n# last\n{TWO}\n# end\n"
    )
    _, done = fix(folder)
    assert len(done) == 2
    assert (folder / LISTING).read_text() == (
        f"# top\n{ONE}\n{TWO}\n# precious\n# and why\n{THREE}\n# last\n# end\n"
    )
    assert fix(folder) == (0, [])


def test_a_byte_order_mark_goes(folder: Path) -> None:
    before = contents(folder)
    (folder / LISTING).write_bytes(b"\xef\xbb\xbf" + before[LISTING])
    assert fix(folder) == (0, [f"{TAG}: series: the byte order mark is gone"])
    assert contents(folder) == before


def test_what_is_no_patch_is_not_listed(folder: Path) -> None:
    for name in ("zz.patch", "._0001-one.patch", ".0002-two.patch"):
        (folder / name).write_text("junk\n")
    before = contents(folder)
    assert fix(folder) == (1, [])
    assert contents(folder) == before
    assert {(Path(one.file).name, one.code) for one in check_series(folder, TAG)} == {
        ("zz.patch", "not-listed"),
        ("._0001-one.patch", "stray-file"),
        (".0002-two.patch", "stray-file"),
    }


def test_a_name_without_a_file_is_not_made_up_for(folder: Path) -> None:
    edit(folder, LISTING, b"0002-two.patch\n", b"0002-two.patch -p0\n")
    before = contents(folder)
    assert fix(folder) == (1, [])
    assert contents(folder) == before


def test_what_fix_left_is_not_sent_to_fix_again(folder: Path) -> None:
    edit(folder, LISTING, b"0002-two.patch\n", b"0002-two.patch -p0\n")
    report = lint_verb(folder.parent.parent, [TAG], since="HEAD")
    assert any("--fix" in one["mend"] for one in report.data["findings"])
    report = lint_verb(folder.parent.parent, [TAG], since="HEAD", fix=True)
    assert report.data["findings"]
    assert not any("--fix" in one["mend"] for one in report.data["findings"])
    assert all(one["mend"] for one in report.data["findings"])


def test_the_order_of_the_list_counts(folder: Path) -> None:
    (folder / LISTING).write_text(f"{ONE}\n{THREE}\n{TWO}\n")
    fix(folder)
    assert [patch.subject for patch in Series.read(folder).patches] == ["one", "three", "two"]
    assert [finding.code for finding in lint(folder)] == []


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        (ONE, b"[PATCH] one", b"[PATCH] [x] one", "lost-prefix"),
        (ONE, b"Because", b"Because\n---\nwhy", "lost-text"),
        (ONE, b"From: A Tester", b"From: A Tester.", "author"),
        (ONE, b"Topic: eagle3-interface\n", b"", "trailer-topic"),
        (ONE, b"diff --git", b"diff --gut", "no-diff"),
        (LISTING, b"0002-two.patch", b"0002-two.patch -p0", "bad-name"),
        (LISTING, b"0003-three.patch", b"0003-three.patch\n0004-gone.patch", "no-such-file"),
        (LISTING, b"0003-three.patch", b"0003-three.patch # \xff", "bad-series"),
    ],
)
def test_what_has_no_one_answer_stays(
    folder: Path, name: str, old: bytes, new: bytes, code: str
) -> None:
    edit(folder, name, old, new)
    before = contents(folder)
    fix(folder)
    after = contents(folder)
    assert code in {finding.code for finding in check_series(folder, TAG)}
    assert {n: data for n, data in after.items() if n != LISTING} == {
        n: data for n, data in before.items() if n != LISTING
    }


def test_links_and_the_notes_of_people_stay(folder: Path, tmp_path: Path) -> None:
    (folder / THREE).rename(tmp_path / "elsewhere")
    (folder / THREE).symlink_to(tmp_path / "elsewhere")
    edit(folder, LISTING, b"0002", b" 0002")
    fix(folder)
    assert (folder / THREE).is_symlink()
    assert (folder / "README").read_text() == "mine\n"
    assert [finding.code for finding in check_series(folder, TAG)] == ["link"]


def test_a_repair_that_changes_what_is_said_is_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(folder)
    for old, new in ((b"Because", b"Why"), (b"+five", b"+FIVE"), (b"A Tester <", b"B <")):
        wrong = ((lambda patch, o=old, n=new: patch.raw.replace(o, n)), "wrong")
        monkeypatch.setattr("vpatch.patches.fix._REPAIRS", (wrong,))
        assert fix(folder) == (0, [])
    assert contents(folder) == before


def test_a_clean_series_is_not_touched(folder: Path) -> None:
    stamp = folder.stat().st_ino
    assert fix(folder) == (0, [])
    assert folder.stat().st_ino == stamp


def test_the_command(folder: Path) -> None:
    edit(folder, LISTING, b"0002", b" 0002")
    ran = run("lint", TAG, "--fix", cwd=folder.parent.parent)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"fixed: {TAG}: series: blanks at line ends")
    answer = one_object(run("lint", "--fix", "--json", cwd=folder.parent.parent))
    assert (answer["fixed"], answer["findings"]) == ([], [])


@pytest.mark.nightly
def test_kill_9_while_fixing(folder: Path) -> None:
    everything_at_once(folder)
    old = contents(folder)
    fix(folder)
    new = contents(folder)

    def restore() -> None:
        put_back(folder, old)

    def work() -> None:
        fix(folder)

    seen: list[bool] = []
    for moment in spread(moments(work, restore), 20):
        restore()
        assert killed_at(moment, work)
        assert contents(folder) in (old, new)
        seen.append(contents(folder) == new)
    assert set(seen) == {True, False}


MANY = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@MANY
@example(name=LISTING, where=1.0, put=b"---\n\n---\n")  # a blank line above one that goes
@given(
    name=st.sampled_from([ONE, TWO, LISTING]),
    where=st.floats(0, 1),
    put=st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(b"".join),
)
def test_any_series_keeps_what_it_says(folder: Path, name: str, where: float, put: bytes) -> None:
    before = dict(read_folder(folder))
    kind, mode, data = before[name]
    at = int(where * len(data))
    before[name] = (kind, mode, data[:at] + put + data[at:])
    try:
        fixes = fixed(before)
    except UnicodeDecodeError:
        return
    assert read_patches({n: d for n, (_, _, d) in before.items()}) == read_patches(fixes.files)
    after: Content = {n: ("file", mode, d) for n, d in fixes.files.items()}
    assert fixed(after).files == fixes.files


def read_patches(files: object) -> set[tuple[str, str, str, bytes]]:
    assert isinstance(files, dict)
    found: set[tuple[str, str, str, bytes]] = set()
    for name, data in files.items():
        if not name.endswith(".patch"):
            continue
        try:
            patch = Patch.parse("x", data)
        except FindingsError:
            found.add(("", "", "", data))
        else:
            mail = patch.mail
            found.add(
                (
                    mail.message,
                    patch.author,
                    mail.date,
                    patch.diff.partition(b"\n-- \n")[0].rstrip(b"\n"),
                )
            )
    return found
