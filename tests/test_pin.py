"""Pins and the repository around them: strict reading, one spelling, nearest pins, checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from series_lab import TAG, Lab, Step, numbered
from vpatch.errors import FindingError, HostError, UsageError
from vpatch.findings import FindingsError
from vpatch.patches.apply import PatchConflictError
from vpatch.patches.mend import MEND
from vpatch.patches.pin import Pin, PinnedWheel, Source
from vpatch.patches.pinning import check_pin, make_pin
from vpatch.patches.repo import find_repo, nearest, pinned, pinned_tags, series_folder
from vpatch.patches.series import Series
from vpatch.upstream.index import Artifact
from vpatch.upstream.mirror import Kind, Release

A, B, C = "a" * 40, "b" * 40, "c" * 40
SHA = "d" * 64
PIN = Pin(
    schema=1,
    tag="v0.17.1",
    revision=3,
    series_sha256=SHA,
    commit="95c0f928c",
    sources={
        "git": Source("", "", A, B, C),
        "sdist": Source("vllm-0.17.1.tar.gz", SHA, A, B, C),
    },
    blobs={"vllm/z.py": A, 'vllm/"ü x".py': B},
    wheels={"x86_64": PinnedWheel("vllm-0.17.1-cp38-abi3-linux_x86_64.whl", SHA, 432_931_666)},
)


def test_a_pin_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "pin.toml").write_bytes(PIN.to_toml())
    assert Pin.read(tmp_path / "pin.toml") == PIN
    assert PIN.local_version == "kimi.3"


def test_equal_pins_are_equal_bytes() -> None:
    shuffled = replace(
        PIN,
        sources=dict(reversed(list(PIN.sources.items()))),
        blobs=dict(reversed(list(PIN.blobs.items()))),
    )
    assert shuffled.to_toml() == PIN.to_toml()
    text = PIN.to_toml().decode()
    assert text.index("[sources.sdist]") < text.index("[sources.git]") < text.index("[blobs]")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", r"`schema` is 2; this vpatch knows 1"),
        ("schema = 1\n", "", r"`schema` is missing"),
        ("schema = 1", "schema = 1\nextra = 1", r"`extra` is a key that a pin does not have"),
        ('"v0.17.1"', '"0.17.1"', r"`tag` cannot be '0\.17\.1'"),
        ('"v0.17.1"', '"--help"', r"`tag` cannot be '--help'"),
        ("revision = 3", "revision = 0", r"`revision` is to be a whole number from 1 on"),
        ("revision = 3", "revision = true", r"`revision` is to be a whole number"),
        ("revision = 3", 'revision = "3"', r"`revision` is to be a whole number, not '3'"),
        (f'series_sha256 = "{SHA}"', 'series_sha256 = "D"', r"`series_sha256` cannot be 'D'"),
        ('"95c0f928c"', '"95c0f9"', r"`commit` cannot be"),
        ('"95c0f928c"', '"95c0f928c\\n"', r"`commit` cannot be"),
        (f'base_tree = "{B}"', f'base_tree = "{B[1:]}"', r"`sources\.sdist\.base_tree` cannot be"),
        ("patched_tree", "patched", r"`sources\.sdist\.patched_tree` is missing"),
        ("tar.gz", "../x", r"`sources\.sdist\.file` cannot be"),
        ('"vllm-0.17.1.tar.gz"', '"/vllm.tar.gz"', r"`sources\.sdist\.file` cannot be"),
        ("[sources.sdist]", "[sources.zip]", r"`sources\.zip` is not a kind of source"),
        ("[sources.git]", "[sources.wheel]", r"`sources\.wheel\.file` is missing"),
        ("[sources.git]", '[sources.git]\nfile = "x"', r"`sources\.git\.file` is a key"),
        ("[wheels.x86_64]", "[wheels.riscv]", r"`wheels\.riscv` is not an architecture"),
        ("linux_x86_64.whl", "linux_x86_64.zip", r"`wheels\.x86_64\.file` cannot be"),
        ("size = 432931666", "size = 4.5", r"`wheels\.x86_64\.size` is to be a whole number"),
        ("size = 432931666", "size = -1", r"`wheels\.x86_64\.size` is to be"),
        ('"vllm/z.py" = ', '"../z.py" = ', r"`blobs\.\.\./z\.py` is not a path inside"),
        ('"vllm/z.py" = ', '"/z.py" = ', r"is not a path inside"),
        ("[blobs]", "[blobs]\nx = 1", r"`blobs\.x` is to be a string, not 1"),
        ("[blobs]", "[[blobs]]", r"`blobs` is to be a table"),
        ("schema = 1", "schema = ", r"the file is not TOML"),
        ("schema = 1", "schema = 1 # \udcff", r"the file is not TOML"),
    ],
)
def test_what_is_no_pin_is_refused_by_its_key(old: str, new: str, message: str) -> None:
    text = PIN.to_toml().decode()
    assert old in text
    data = text.replace(old, new, 1).encode("utf-8", "surrogateescape")
    with pytest.raises(FindingsError, match=message) as caught:
        Pin.parse(data, "patches/v0.17.1/pin.toml")
    assert caught.value.message.startswith("patches/v0.17.1/pin.toml: ")
    assert caught.value.exit_code == 1


def test_a_pin_without_sources_is_none() -> None:
    with pytest.raises(FindingsError, match=r"`sources\.sdist` is missing, and so is every other"):
        Pin.parse(replace(PIN, sources={}).to_toml(), "pin.toml")


def test_a_pin_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "pin.toml").mkdir()
    with pytest.raises(HostError, match="cannot be read"):
        Pin.read(tmp_path / "pin.toml")


@pytest.mark.parametrize("data", [b"", b"<<<<<<< HEAD\n"])
def test_a_damaged_pin_has_a_way_out(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "pin.toml").write_bytes(data)
    with pytest.raises(FindingsError) as caught:
        Pin.read(tmp_path / "pin.toml")
    assert "git restore" in caught.value.hint
    assert "git restore" in MEND["bad-pin"]


def repo_with(folder: Path, *tags: str) -> Path:
    for tag in tags:
        (folder / "patches" / tag).mkdir(parents=True)
        (folder / "patches" / tag / "pin.toml").write_bytes(replace(PIN, tag=tag).to_toml())
        (folder / "patches" / tag / "series").write_text("")
    (folder / "pyproject.toml").write_text("")
    return folder


def test_the_repository_is_found_upwards(tmp_path: Path) -> None:
    repo = repo_with(tmp_path / "repo", "v0.17.1")
    deep = repo / "patches" / "v0.17.1"
    assert find_repo(deep) == repo
    (repo / "pyproject.toml").unlink()
    with pytest.raises(UsageError, match="no patches/ folder") as caught:
        find_repo(deep)
    assert caught.value.exit_code == 2
    (repo / ".git").write_text("gitdir: elsewhere\n")
    assert find_repo(deep) == repo


def test_the_nearest_repository_wins(tmp_path: Path) -> None:
    repo_with(tmp_path, "v0.17.1")
    inner = repo_with(tmp_path / "inner", "v0.16.0")
    assert find_repo(inner / "patches") == inner


def test_a_named_repository_beats_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, else_ = (repo_with(tmp_path / name, "v0.17.1") for name in "abc")
    monkeypatch.setenv("VPATCH_REPO", str(there))
    assert find_repo(here) == there
    assert find_repo(here, else_) == else_
    with pytest.raises(UsageError, match="--repo names"):
        find_repo(here, there / "patches")
    monkeypatch.setenv("VPATCH_REPO", str(tmp_path))
    with pytest.raises(UsageError, match="VPATCH_REPO names"):
        find_repo(here)


def test_pinned_tags_go_by_version(tmp_path: Path) -> None:
    repo = repo_with(tmp_path, "v0.9.2", "v0.17.1", "v0.16.0", "v0.18.0rc1")
    (repo / "patches/not-a-tag").mkdir()
    (repo / "patches/not-a-tag/pin.toml").write_text("")
    (repo / "patches/v0.15.0").mkdir()
    assert pinned_tags(repo) == ["v0.9.2", "v0.16.0", "v0.17.1", "v0.18.0rc1"]
    assert series_folder(repo, "0.17.1") == repo / "patches/v0.17.1"


@pytest.mark.parametrize(
    ("tag", "near"),
    [
        ("v0.16.1", ["v0.15.0", "v0.16.0", "v0.17.1"]),
        ("v0.1.0", ["v0.14.0", "v0.15.0", "v0.16.0"]),
        ("v9.0.0", ["v0.16.0", "v0.17.1", "v0.18.0"]),
        ("v0.17.2", ["v0.16.0", "v0.17.1", "v0.18.0"]),
    ],
)
def test_the_nearest_pins(tag: str, near: list[str]) -> None:
    tags = ["v0.18.0", "v0.14.0", "v0.15.0", "v0.16.0", "v0.17.1"]
    assert nearest(tags, tag) == near


def test_an_unknown_tag_is_told_from_one_without_a_pin(tmp_path: Path) -> None:
    repo = repo_with(tmp_path, "v0.16.0", "v0.17.1")
    released = ["v0.16.0", "v0.17.0", "v0.17.1"]
    with pytest.raises(UsageError, match=r"^v0\.17\.0 has no pin in ") as caught:
        pinned(repo, "0.17.0", released=released)
    assert (caught.value.code, caught.value.exit_code) == ("no-pin", 2)
    assert caught.value.hint == (
        "Nearest pins: v0.16.0, v0.17.1. `vpatch rebase FROM v0.17.0` carries the series of "
        "another release to it."
    )
    with pytest.raises(UsageError, match=r"there is no vLLM release v0\.17\.9") as caught:
        pinned(repo, "v0.17.9", released=released)
    assert caught.value.code == "unknown-tag"
    with pytest.raises(UsageError) as caught:
        pinned(repo, "main")
    assert caught.value.code == "bad-tag"


WHEEL = Artifact(
    filename="vllm-9.9.9-cp38-abi3-manylinux1_x86_64.whl",
    url="https://example.invalid/x.whl",
    sha256=SHA,
    size=12,
    kind="wheel",
    version=Version("9.9.9"),
    arch="x86_64",
)
STEPS = [
    Step("0001-a.patch", {"vllm/a.py": numbered(30, changed={15: "x"}), "vllm/new.py": b"n\n"}),
    Step("0002-test.patch", {"tests/test_a.py": b"changed\n"}),
]


class Pinned:
    """A repository with a series, and a release in two kinds of source."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder, {"vllm/a.py": numbered(30), "tests/test_a.py": b"t\n"})
        self.repo = folder / "repo"
        self.series = self.lab.series(self.repo / "patches" / TAG, STEPS)
        wheel_tree = self.lab.tree(None, {"vllm/a.py": numbered(30)})
        wheel_commit = self.lab.commit_tree(wheel_tree, None, "wheel")
        self.sdist = self.release("sdist", self.lab.commit, self.lab.base)
        self.wheel = self.release("wheel", wheel_commit, wheel_tree)

    def release(self, kind: Kind, commit: str, tree: str) -> Release:
        name = {"sdist": "vllm-9.9.9.tar.gz", "wheel": WHEEL.filename}[kind]
        return Release(TAG, kind, commit, tree, "0123456", name, SHA)

    def pin(self, previous: Pin | None = None) -> Pin:
        return make_pin(
            self.lab.git,
            series=self.series,
            releases=[self.sdist, self.wheel],
            wheels=[WHEEL],
            previous=previous,
        )

    def check(self, pin: Pin, *releases: Release, wheels: tuple[Artifact, ...] = ()) -> list[str]:
        findings = check_pin(
            self.lab.git, pin=pin, series=self.series, releases=releases, wheels=wheels
        )
        assert all(one.file == str(self.series.folder / "pin.toml") for one in findings)
        return [one.code for one in findings]

    def change_series(self) -> None:
        steps = [replace(STEPS[0], body="Another reason."), STEPS[1]]
        self.series = self.lab.series(self.series.folder, steps)


@pytest.fixture
def world(tmp_path: Path) -> Pinned:
    return Pinned(tmp_path)


def test_a_pin_is_made_from_what_is_there(world: Pinned) -> None:
    pin = world.pin()
    assert (pin.revision, pin.tag, pin.commit) == (1, TAG, "0123456")
    assert list(pin.sources) == ["sdist", "wheel"]
    assert pin.sources["sdist"].base_tree == world.lab.base
    assert pin.sources["sdist"].patched_tree != pin.sources["wheel"].patched_tree
    files = world.lab.files(world.lab.base)
    # A file that the series makes has no blob at the base.
    assert pin.blobs == {path: files[path].split()[1] for path in ("tests/test_a.py", "vllm/a.py")}
    assert pin.wheels == {"x86_64": PinnedWheel(WHEEL.filename, SHA, 12)}
    assert Pin.parse(pin.to_toml(), "pin.toml") == pin
    assert world.check(pin, world.sdist, world.wheel, wheels=(WHEEL,)) == []
    assert world.check(pin, world.wheel) == []


def test_the_revision_follows_the_bytes_of_the_series(world: Pinned) -> None:
    pin = world.pin()
    assert world.pin(previous=pin) == pin
    world.change_series()
    assert world.check(pin, world.sdist) == ["series-changed"]
    again = world.pin(previous=pin)
    assert (again.revision, again.local_version) == (2, "kimi.2")
    assert world.check(again, world.sdist) == []


def test_a_pin_and_its_series_are_read_together(world: Pinned) -> None:
    pin = world.pin()
    (world.series.folder / "pin.toml").write_bytes(pin.to_toml())
    assert pinned(world.repo, TAG) == (pin, Series.read(world.series.folder))
    world.change_series()
    with pytest.raises(FindingsError, match=r"not the one that revision 1 names") as caught:
        pinned(world.repo, TAG)
    assert caught.value.code == "series-changed"
    (world.series.folder / "pin.toml").write_bytes(replace(pin, tag="v9.9.8").to_toml())
    with pytest.raises(FindingsError, match=r"`tag` is v9\.9\.8 in the folder of v9\.9\.9"):
        pinned(world.repo, TAG)


def test_the_check_names_every_difference(world: Pinned) -> None:
    pin = world.pin()
    sdist = replace(pin.sources["sdist"], commit=A, patched_tree=B)
    wrong = replace(pin, sources={"sdist": sdist}, blobs={**pin.blobs, "vllm/a.py": C, "x": C})
    assert world.check(wrong, world.sdist) == [
        "source-differs",
        "source-differs",
        "blob-differs",
        "blob-unused",
    ]
    assert "no-source" in world.check(wrong, world.wheel)
    other = replace(WHEEL, sha256="e" * 64)
    assert world.check(pin, wheels=(other,)) == ["wheel-differs"]
    assert world.check(pin, wheels=(replace(WHEEL, arch="aarch64"),)) == ["no-wheel"]


def test_a_missing_blob_is_noticed(world: Pinned) -> None:
    pin = world.pin()
    assert world.check(replace(pin, blobs={}), world.sdist) == ["blob-differs"] * 2


def test_a_blob_for_a_new_file_is_noticed_where_all_sources_are_at_hand(world: Pinned) -> None:
    pin = world.pin()
    wrong = replace(pin, blobs={**pin.blobs, "vllm/new.py": C})
    assert world.check(wrong, world.sdist, world.wheel) == ["blob-unused"]
    assert world.check(wrong, world.wheel) == []


def test_a_series_that_fits_at_an_offset_gets_no_pin(world: Pinned) -> None:
    tree = world.lab.tree(world.lab.base, {"vllm/a.py": b"# new\n" + numbered(30)})
    moved = world.release("sdist", world.lab.commit_tree(tree, None, "moved"), tree)
    with pytest.raises(FindingsError, match="fits the sdist source only at an offset"):
        make_pin(world.lab.git, series=world.series, releases=[moved], wheels=[])


def test_a_series_that_does_not_fit_gets_no_pin(world: Pinned) -> None:
    tree = world.lab.tree(world.lab.base, {"vllm/a.py": None})
    gone = world.release("sdist", world.lab.commit_tree(tree, None, "gone"), tree)
    with pytest.raises(PatchConflictError):
        make_pin(world.lab.git, series=world.series, releases=[gone], wheels=[])


def test_sources_of_two_commits_are_pinned_as_such(world: Pinned) -> None:
    other = replace(world.wheel, upstream_commit="fedcba9")
    releases = [world.sdist, other]
    pin = make_pin(world.lab.git, series=world.series, releases=releases, wheels=[])
    assert (pin.commit, pin.sources["wheel"].upstream_commit) == ("fedcba9", "")
    assert pin.sources["sdist"].upstream_commit == world.sdist.upstream_commit != ""
    assert Pin.parse(pin.to_toml(), "pin.toml") == pin
    assert check_pin(world.lab.git, pin=pin, series=world.series, releases=releases) == ()
    third = replace(world.sdist, upstream_commit="abcdef0")
    (found,) = check_pin(world.lab.git, pin=pin, series=world.series, releases=[third, other])
    assert "`sources.sdist.upstream_commit` is" in found.message
    without = replace(
        pin, sources={k: replace(s, upstream_commit="") for k, s in pin.sources.items()}
    )
    (found,) = check_pin(world.lab.git, pin=without, series=world.series, releases=releases)
    assert found.code == "source-differs"


def test_sources_that_disagree_get_no_pin(world: Pinned) -> None:
    tree = world.lab.tree(None, {"vllm/a.py": numbered(31)})
    longer = world.release("wheel", world.lab.commit_tree(tree, None, "longer"), tree)
    with pytest.raises(FindingsError, match="`blobs` has") as caught:
        make_pin(world.lab.git, series=world.series, releases=[world.sdist, longer], wheels=[])
    assert caught.value.code == "blob-differs"


def test_the_longest_commit_is_kept_and_one_must_be_known(world: Pinned) -> None:
    long = replace(world.wheel, upstream_commit="0123456789abcdef")
    nothing = replace(world.sdist, upstream_commit=None)
    pin = make_pin(world.lab.git, series=world.series, releases=[nothing, long], wheels=[])
    assert pin.commit == "0123456789abcdef"
    with pytest.raises(FindingError, match="which upstream commit"):
        make_pin(world.lab.git, series=world.series, releases=[nothing], wheels=[])


def test_nothing_that_is_pinned_is_lost(world: Pinned) -> None:
    pin = world.pin()
    with pytest.raises(UsageError, match="without its wheel source"):
        make_pin(
            world.lab.git, series=world.series, releases=[world.sdist], wheels=[], previous=pin
        )
    with pytest.raises(UsageError, match="without its release source"):
        make_pin(world.lab.git, series=world.series, releases=[], wheels=[])
    both = [world.sdist, world.wheel]
    arm = replace(WHEEL, arch="aarch64")
    more = make_pin(world.lab.git, series=world.series, releases=both, wheels=[arm], previous=pin)
    assert sorted(more.wheels) == ["aarch64", "x86_64"]
    changed = replace(WHEEL, sha256="e" * 64)
    with pytest.raises(FindingsError, match="the index has"):
        make_pin(world.lab.git, series=world.series, releases=both, wheels=[changed], previous=pin)


def test_a_wheel_without_a_hash_gets_no_pin(world: Pinned) -> None:
    unknown = replace(WHEEL, sha256=None)
    with pytest.raises(FindingError, match="does not state its sha256 and size"):
        make_pin(world.lab.git, series=world.series, releases=[world.sdist], wheels=[unknown])
