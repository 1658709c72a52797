from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from archives import TREE, make_sdist, make_tar, make_wheel, tar_member
from indexserver import IndexServer, running
from vpatch.errors import HostError, UsageError
from vpatch.files import locked
from vpatch.progress import SilentProgress
from vpatch.upstream.importer import commit_in_version_file, fast_import_stream
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror, Release
from vpatch.upstream.pipconfig import PipConfig

SDIST = "vllm-0.17.1.tar.gz"
WHEEL = "vllm-0.15.1-cp38-abi3-manylinux_2_31_x86_64.whl"
ARM = "vllm-0.15.1-cp38-abi3-manylinux_2_31_aarch64.whl"

# The imports of SDIST and WHEEL: the same on every machine, on every day.
KNOWN_COMMITS = [
    "57134e47a30f83b3adb4dac5e39e6e9365f89592",
    "06b4f76e166bb35494c739ae999326d89569a205",
]

# Imports tags in a process of its own and prints its commit.
CHILD = """\
import os, sys
from pathlib import Path
from typing import Any
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror
from vpatch.upstream.pipconfig import PipConfig
os.umask(int(sys.argv[3], 8))
mirror = Mirror.open(Path(sys.argv[2]))
index = Index(PipConfig((sys.argv[1],), retries=0))
for tag in sys.argv[4:]:
    print(mirror.fetch(tag, index=index).commit)
"""


class Said(SilentProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the machine's between the test and its server."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", os.devnull)


@pytest.fixture
def server() -> Iterator[IndexServer]:
    """An index with a release that has an sdist and one that has wheels only."""
    wheel = make_wheel("0.15.1", ballast=4_000_000)
    files = {SDIST: make_sdist(), WHEEL: wheel, ARM: wheel + b""}
    with running(IndexServer(files=files)) as index:
        yield index


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    """A fresh mirror."""
    return Mirror.open(tmp_path / "cache")


def index_of(server: IndexServer) -> Index:
    """An Index without pip's machine-wide settings."""
    return Index(PipConfig((server.url,), retries=0, timeout=5.0))


def blob_id(data: bytes) -> str:
    """git's name for some bytes, computed without git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def tree_of(mirror: Mirror, release: Release) -> dict[str, tuple[str, str]]:
    """path -> (mode, blob id)."""
    listing = mirror.git.output("ls-tree", "-r", "-z", release.tree).decode()
    entries = (entry.split("\t", 1) for entry in listing.split("\0") if entry)
    return {path: (meta.split()[0], meta.split()[2]) for meta, path in entries}


def expected_tree(tree: Mapping[str, tuple[int, bytes]]) -> dict[str, tuple[str, str]]:
    """The same for files as archives.py describes them."""
    return {path: (f"100{mode:o}", blob_id(data)) for path, (mode, data) in tree.items()}


def test_an_sdist_becomes_upstreams_tree_without_what_packaging_added(
    server: IndexServer, mirror: Mirror
) -> None:
    release = mirror.fetch("0.17.1", index=index_of(server))
    assert tree_of(mirror, release) == expected_tree(TREE)
    assert release.kind == "sdist"
    assert release.tag == "v0.17.1"
    assert release.upstream_commit == "95c0f928c"
    assert release.filename == SDIST
    assert release.sha256 == server.sha256(SDIST)
    assert mirror.find("v0.17.1") == release
    assert mirror.imported() == [release]
    mirror.git.run("fsck", "--strict", "--full")


def test_a_setup_cfg_that_says_more_is_upstreams(server: IndexServer, mirror: Mirror) -> None:
    mine = {"setup.cfg": (0o644, b"[egg_info]\ntag_build = \n[flake8]\nx = 1\n")}
    server.files[SDIST] = make_sdist(tree={**TREE, **mine}, added={})
    release = mirror.fetch("v0.17.1", index=index_of(server))
    assert tree_of(mirror, release) == expected_tree({**TREE, **mine})
    assert release.upstream_commit is None


def test_a_release_that_is_there_needs_no_network(tmp_path: Path) -> None:
    mirror = Mirror.open(tmp_path / "cache")
    with running(IndexServer(files={SDIST: make_sdist()})) as server:
        index = index_of(server)
        first = mirror.fetch("v0.17.1", index=index)
        asked = len(server.seen)
        assert mirror.fetch("v0.17.1", index=index_of(server)) == first
        assert len(server.seen) == asked
    assert Mirror.open(tmp_path / "cache").fetch("v0.17.1", index=index_of(server)) == first
    assert mirror.fetch("v0.17.1") == first
    begun = time.perf_counter()
    mirror.find("v0.17.1")
    assert time.perf_counter() - begun < 0.2


def test_without_an_index_only_what_is_there(mirror: Mirror) -> None:
    with pytest.raises(HostError, match=r"v0\.17\.1 is not in the mirror") as caught:
        mirror.fetch("v0.17.1")
    assert "vpatch fetch v0.17.1" in caught.value.hint


def test_an_unknown_tag_names_its_neighbours(server: IndexServer, mirror: Mirror) -> None:
    with pytest.raises(UsageError) as caught:
        mirror.fetch("v0.16.5", index=index_of(server))
    assert caught.value.code == "unknown-tag"
    assert "v0.15.1, v0.17.1" in caught.value.hint


@pytest.mark.parametrize("umask", ["000", "077"])
def test_the_same_commit_on_every_machine(
    server: IndexServer, mirror: Mirror, hostile_git_config: Path, umask: str
) -> None:
    here = [mirror.fetch(tag, index=index_of(server)).commit for tag in ("v0.17.1", "v0.15.1")]
    environment = {
        **os.environ,
        "TZ": "Asia/Kathmandu",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00+0500",
        "GIT_DIR": "/nonexistent",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_INDEX_FILE": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "7",
    }
    cache = mirror.cache.with_name("another")
    command = [sys.executable, "-c", CHILD, server.url, str(cache), umask, "v0.17.1", "v0.15.1"]
    there = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert there.stdout.decode().split() == here
    assert here == KNOWN_COMMITS


@pytest.mark.parametrize("ranges", [True, False])
def test_a_release_without_sdist_comes_from_its_wheel(
    server: IndexServer, mirror: Mirror, ranges: bool
) -> None:
    server.ranges = ranges
    said = Said()
    release = mirror.fetch("v0.15.1", index=index_of(server), progress=said)
    python = {p: item for p, item in TREE.items() if p.startswith("vllm/")}
    assert tree_of(mirror, release) == expected_tree(python)
    assert (release.kind, release.filename) == ("wheel", WHEEL)
    assert release.upstream_commit == "95c0f928c"
    assert release.sha256 == server.sha256(WHEEL)
    # The same commit whether by ranges or whole.
    assert release.commit == KNOWN_COMMITS[1]
    stored = list((mirror.cache / "artifacts").rglob("*.whl"))
    if ranges:
        assert not stored
        assert all("Range" in headers for headers in server.file_requests())
        (line,) = [line for line in said.lines if "range requests" in line]
        fetched = int(line.split(" read ")[1].split(" ")[0].replace(",", ""))
        assert fetched < 700_000  # of four million
    else:
        assert [path.name for path in stored] == [WHEEL]


def test_the_wheel_of_a_release_that_has_an_sdist_can_be_asked_for(
    server: IndexServer, mirror: Mirror
) -> None:
    name = "vllm-0.17.1-cp38-abi3-manylinux_2_31_x86_64.whl"
    server.files[name] = make_wheel()
    both = [
        mirror.fetch("v0.17.1", index=index_of(server), kind=kind) for kind in ("wheel", "sdist")
    ]
    assert [release.kind for release in both] == ["wheel", "sdist"]
    wheel, sdist = (tree_of(mirror, release) for release in both)
    assert wheel.items() <= sdist.items()
    assert mirror.find("v0.17.1") == both[1]
    assert mirror.find("v0.17.1", "wheel") == both[0]


def test_other_bytes_than_the_pins_are_refused(server: IndexServer, mirror: Mirror) -> None:
    pinned = {"sdist": "ab" * 32}
    with pytest.raises(HostError, match="other bytes") as caught:
        mirror.fetch("v0.17.1", index=index_of(server), sha256=pinned)
    assert caught.value.code == "hash-mismatch"
    assert mirror.find("v0.17.1") is None


def test_an_import_of_other_bytes_than_the_pins_is_replaced(
    server: IndexServer, mirror: Mirror
) -> None:
    good = server.files[SDIST]
    server.files[SDIST] = make_sdist(tree={"setup.py": (0o644, b"forged\n")})
    forged = mirror.fetch("v0.17.1", index=index_of(server))
    server.files[SDIST] = good
    pinned = {"sdist": hashlib.sha256(good).hexdigest()}
    assert mirror.fetch("v0.17.1", index=index_of(server)) == forged
    assert mirror.fetch("v0.17.1", index=index_of(server), sha256=pinned).commit == KNOWN_COMMITS[0]


@pytest.mark.parametrize("how", ["wrong hash", "truncated", "hostile", "damaged"])
def test_nothing_of_a_bad_sdist_is_imported(server: IndexServer, mirror: Mirror, how: str) -> None:
    good = server.files[SDIST]
    if how == "wrong hash":
        server.listed_hashes[SDIST] = "ab" * 32
    elif how == "truncated":
        server.breaks, server.break_after = 1, 100
    elif how == "hostile":
        server.files[SDIST] = make_tar(
            [tar_member("vllm-0.17.1/a.py", b"x"), tar_member("vllm-0.17.1/../b.py", b"x")]
        )
    else:
        server.files[SDIST] = good[:-100]
    with pytest.raises(HostError):
        mirror.fetch("v0.17.1", index=index_of(server))
    assert mirror.imported() == []
    assert not list((mirror.git.git_dir / "objects").rglob("*.pack"))
    server.files[SDIST] = good
    server.listed_hashes.clear()
    assert mirror.fetch("v0.17.1", index=index_of(server)).commit == KNOWN_COMMITS[0]


def test_a_download_that_rotted_in_the_store_is_noticed(
    server: IndexServer, mirror: Mirror
) -> None:
    rotten = mirror.cache / "artifacts" / server.sha256(SDIST) / SDIST
    rotten.parent.mkdir(parents=True)
    rotten.write_bytes(b"rot")
    with pytest.raises(HostError, match="is not the file any more") as caught:
        mirror.fetch("v0.17.1", index=index_of(server))
    assert str(rotten) in caught.value.hint


def test_an_import_in_an_older_format_is_done_again(
    server: IndexServer, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vpatch.upstream.importer.FORMAT", 0)
    mirror.fetch("v0.17.1", index=index_of(server))
    monkeypatch.undo()
    assert mirror.find("v0.17.1") is None
    assert mirror.fetch("v0.17.1", index=index_of(server)).commit == KNOWN_COMMITS[0]


def start(server: IndexServer, cache: Path, *tags: str) -> subprocess.Popen[bytes]:
    """An import in a process, and a process group, of its own."""
    command = [sys.executable, "-c", CHILD, server.url, str(cache), "022", *tags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def test_processes_at_once_make_one_mirror(server: IndexServer, tmp_path: Path) -> None:
    cache = tmp_path / "together"
    running_now = [start(server, cache, "v0.17.1", "v0.15.1") for _ in range(3)]
    for process in running_now:
        out, error = process.communicate(timeout=60)
        assert error == b""
        assert out.decode().split() == KNOWN_COMMITS
    assert len(list((cache / "mirror.git/objects/pack").glob("*.pack"))) <= 2


@pytest.mark.parametrize("whole_group", [True, False])
def test_a_killed_import_leaves_nothing_in_the_way(
    server: IndexServer, tmp_path: Path, whole_group: bool
) -> None:
    # Incompressible, so that there is time to be killed in.
    many = {f"vllm/f{n}.py": (0o644, os.urandom(50_000)) for n in range(200)}
    server.files[SDIST] = make_sdist(tree=many)
    cache = tmp_path / "killed"
    packs = cache / "mirror.git/objects/pack"
    process = start(server, cache, "v0.17.1")
    deadline = time.monotonic() + 60
    while not list(packs.glob("tmp_pack_*")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    mirror = Mirror.open(cache)
    assert mirror.find("v0.17.1") is None
    release = mirror.fetch("v0.17.1", index=index_of(server))
    assert tree_of(mirror, release) == expected_tree(many)
    assert not list(packs.glob("tmp_*"))
    mirror.git.run("fsck", "--strict", "--full")


def test_a_stream_that_ends_early_is_no_release(
    server: IndexServer, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*args: Any) -> bytes:
        stream = fast_import_stream(*args)
        return stream[: stream.index(b"M 100644 inline", len(stream) // 2)]

    monkeypatch.setattr("vpatch.upstream.mirror.fast_import_stream", cut)
    with pytest.raises(HostError):
        mirror.fetch("v0.17.1", index=index_of(server))
    assert mirror.imported() == []


def test_rests_of_a_killed_git_are_removed(server: IndexServer, mirror: Mirror) -> None:
    rests = ["refs/vpatch/sdist/v0.17.1.lock", "objects/pack/tmp_pack_x", "shallow.lock"]
    for name in rests:
        path = mirror.git.git_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert mirror.fetch("v0.17.1", index=index_of(server)).commit == KNOWN_COMMITS[0]
    assert not any((mirror.git.git_dir / name).exists() for name in rests)


def test_a_half_made_mirror_is_made_again(server: IndexServer, tmp_path: Path) -> None:
    rest = tmp_path / "cache" / "mirror.new"
    rest.mkdir(parents=True)
    (rest / "HEAD").write_text("half")
    mirror = Mirror.open(tmp_path / "cache")
    assert mirror.fetch("v0.17.1", index=index_of(server)).commit == KNOWN_COMMITS[0]


def test_who_waits_says_for_what(server: IndexServer, mirror: Mirror) -> None:
    said = Said()
    process = None
    with locked(mirror.cache / "mirror.lock"):
        code = CHILD.replace("index=index)", "index=index, progress=P())").replace(
            "os.umask",
            "from vpatch.progress import SilentProgress\n"
            "class P(SilentProgress):\n"
            "    def say(self, text): print(text, flush=True)\n"
            "os.umask",
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, server.url, str(mirror.cache), "022", "v0.17.1"],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        said.say(process.stdout.readline().decode())
    assert "waiting for another vpatch" in said.lines[0]
    assert process.communicate(timeout=30)[0].decode().split() == KNOWN_COMMITS[:1]


def test_a_damaged_mirror_says_what_to_do(server: IndexServer, mirror: Mirror) -> None:
    mirror.fetch("v0.17.1", index=index_of(server))
    shutil.rmtree(mirror.git.git_dir / "objects")
    (mirror.git.git_dir / "objects").mkdir()
    with pytest.raises(HostError, match="damaged") as caught:
        mirror.find("v0.17.1")
    assert "rm -r" in caught.value.hint


def test_a_cache_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(HostError) as caught:
            Mirror.open(cache)
        assert "A file stands where" in caught.value.hint


# From a git remote


def git(folder: Path, *args: str) -> str:
    """The user's own git, not ours."""
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A bare repository of the same files, with an annotated and a plain tag and some history."""
    work, bare = tmp_path / "work", tmp_path / "upstream.git"

    work.mkdir()
    git(work, "init", "-q")
    (work / "old.py").write_text("x = 1\n")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "before")
    (work / "old.py").unlink()
    for path, (mode, data) in TREE.items():
        target = work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
    git(work, "add", "-A", "--force")
    git(work, "commit", "-qm", "release")
    git(work, "tag", "-a", "-m", "release", "v0.17.1")
    git(work, "tag", "v0.15.1")
    git(work, "clone", "-q", "--bare", ".", str(bare))
    return bare


@pytest.mark.parametrize("as_url", [True, False])
def test_a_git_remote_gives_the_same_blobs(
    server: IndexServer, mirror: Mirror, remote: Path, as_url: bool
) -> None:
    url = remote.as_uri() if as_url else str(remote)
    from_git = mirror.fetch("v0.17.1", upstream_git=url)
    from_sdist = mirror.fetch("v0.17.1", index=index_of(server))
    assert tree_of(mirror, from_git) == tree_of(mirror, from_sdist) == expected_tree(TREE)
    assert from_git.tree == from_sdist.tree
    assert from_git.kind == "git"
    head = git(remote, "rev-parse", "v0.17.1^{commit}").strip()
    assert from_git.commit == from_git.upstream_commit == head
    assert (from_git.filename, from_git.sha256) == (None, None)
    # No history, no other tags.
    assert mirror.git.line("rev-list", "--count", from_git.commit) == "1"
    assert mirror.git.output("for-each-ref", "refs/tags") == b""
    assert mirror.find("v0.17.1") == from_git
    assert [release.kind for release in mirror.imported()] == ["git", "sdist"]
    again = mirror.fetch("v0.15.1", upstream_git=url)
    assert again.commit == from_git.commit


def test_a_git_release_that_is_there_needs_no_remote(mirror: Mirror, remote: Path) -> None:
    first = mirror.fetch("v0.17.1", upstream_git=str(remote))
    remote.rename(remote.with_name("gone"))
    assert mirror.fetch("v0.17.1", upstream_git=str(remote)) == first


def test_hostile_settings_do_not_change_a_fetch(
    mirror: Mirror, remote: Path, hostile_git_config: Path
) -> None:
    with (hostile_git_config / ".gitconfig").open("a") as settings:
        settings.write("[fetch]\n\tprune = true\n\tpruneTags = true\n\twriteCommitGraph = true\n")
        settings.write('[url "file:///nonexistent/"]\n\tinsteadOf = never:\n')
    release = mirror.fetch("v0.17.1", upstream_git=str(remote))
    assert tree_of(mirror, release) == expected_tree(TREE)


def test_a_tag_that_the_remote_lacks(mirror: Mirror, remote: Path) -> None:
    with pytest.raises(UsageError, match=r"has no tag v0\.99\.0") as caught:
        mirror.fetch("v0.99.0", upstream_git=str(remote))
    assert caught.value.code == "unknown-tag"
    assert mirror.imported() == []


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch {marker}'",
        "--upload-pack=touch {marker}",
        "git://example.invalid/x",
        "ftp://example.invalid/x",
        "no such folder",
        "fd::17",
        "https://x.invalid/a\nb",
    ],
)
def test_remotes_that_are_not_talked_to(mirror: Mirror, tmp_path: Path, url: str) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(UsageError, match="not a git remote"):
        mirror.fetch("v0.17.1", upstream_git=url.format(marker=marker))
    assert not marker.exists()


def test_a_rewritten_url_cannot_run_a_command(mirror: Mirror, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    settings = Path(os.environ["HOME"]) / ".gitconfig"
    settings.write_text(
        f'[url "ext::touch {marker} "]\n\tinsteadOf = https://x.invalid/\n'
        "[protocol]\n\tallow = always\n"
    )
    with pytest.raises(HostError, match="not allowed"):
        mirror.fetch("v0.17.1", upstream_git="https://x.invalid/repo")
    assert not marker.exists()


def test_a_password_in_a_remotes_url_is_not_repeated(server: IndexServer, mirror: Mirror) -> None:
    server.login = "x:y"
    url = server.base.replace("://", "://me:geheim@") + "/repo.git"
    with pytest.raises(HostError) as caught:
        mirror.fetch("v0.17.1", upstream_git=url)
    assert "geheim" not in caught.value.message + caught.value.hint
    assert caught.value.code == "network"
    written = [path for path in mirror.cache.rglob("*") if path.is_file()]
    assert written
    assert not any(b"geheim" in path.read_bytes() for path in written)


@pytest.mark.parametrize(
    ("source", "commit"),
    [
        (b"__commit_id__ = commit_id = 'g95c0f928c'", "95c0f928c"),
        (b"commit_id = __commit_id__ = 'g95c0f928c'", "95c0f928c"),
        (b"__commit_id__ = None", None),
        (b"__commit_id__: str = x()", None),
        (b"__commit_id__ = 'g95c0f928c; rm'", None),
        (b"__commit_id__ = __import__('os').abort()", None),
        (b"not python (", None),
        (b"\0", None),
        (b"(" * 100_000, None),
    ],
)
def test_the_version_file_is_read_not_run(source: bytes, commit: str | None) -> None:
    assert commit_in_version_file(source) == commit


def test_another_remote_is_another_release(tmp_path: Path) -> None:
    for name, text in (("one", b"a = 1\n"), ("two", b"a = 2\n")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.py").write_bytes(text)
        for command in (
            ["init", "--quiet"],
            ["add", "a.py"],
            ["commit", "--quiet", "-m", "a"],
            ["tag", "v9.9.9"],
        ):
            subprocess.run(["git", *command], cwd=folder, check=True)  # noqa: S607
    mirror = Mirror.open(tmp_path / "cache")
    one = mirror.fetch("v9.9.9", upstream_git=str(tmp_path / "one"))
    two = mirror.fetch("v9.9.9", upstream_git=str(tmp_path / "two"))
    assert one.tree != two.tree
    assert mirror.fetch("v9.9.9", upstream_git=str(tmp_path / "one")).tree == one.tree
    with pytest.raises((HostError, UsageError)):
        mirror.fetch("v9.9.9", upstream_git=str(tmp_path / "three"))
