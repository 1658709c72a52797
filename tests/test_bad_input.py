"""Bad input x verb x outcome: one sentence, the documented exit code, nothing half-written.

A row names an input, the verbs that take it, and how a run ends: with an exit code and the code of
its error; ``None`` where the input does not matter to the verb.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bad_lab import (
    NEXT,
    STEPS,
    TAG,
    UNKNOWN,
    WHEEL,
    Ran,
    World,
    bad_wheels,
    copied,
    ended,
    make_world,
    served,
)
from kill_lab import contents, killed_at, spread, steps
from project_lab import committed, git, vpatch
from series_lab import TRAILERS

TESTS = Path(__file__).parent
WITH_TAG = (
    "fetch", "pin", "lint", "apply", "build", "smoke", "export", "edit", "refresh", "import",
)  # fmt: skip
WITH_PIN = ("apply", "build", "smoke", "export", "edit", "refresh", "import")
WITH_RELEASE = ("fetch", "pin", *WITH_PIN)
WITH_SERIES = ("pin", *WITH_PIN)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world that nobody changes."""
    return make_world(tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="module")
def wheels(template: World) -> Mapping[str, Path]:
    """Files that are no wheel of vLLM."""
    return bad_wheels(template.folder / "bad")


@pytest.fixture
def cold(template: World, tmp_path: Path) -> World:
    """A world whose cache is empty."""
    return copied(template, tmp_path / "world", warm=False)


@pytest.fixture
def warm(template: World, tmp_path: Path) -> World:
    """A world whose cache has all of the release."""
    return copied(template, tmp_path / "world", warm=True)


def told(ran: Ran, status: int, *codes: str) -> str:
    """Checks how a run failed; returns its sentence and its hint."""
    assert ran.status == status, ran
    assert "Traceback" not in ran.stderr
    error = ran.answer["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] in codes, ran
    message, hint = error["message"], error["hint"]
    assert message, ran
    assert hint, ran
    assert "\n" not in message + hint
    lines = ran.stderr.splitlines()
    assert [line for line in lines if line.startswith(f"vpatch {ran.verb}: ")] == [
        f"vpatch {ran.verb}: {message}"
    ]
    at = lines.index(f"vpatch {ran.verb}: {message}")
    assert lines[at + 1] == f"  -> {hint}"
    return f"{message}\n{hint}"


def refused(world: World, words: tuple[str, ...], status: int, *codes: str) -> str:
    """A run that fails so, and leaves everything as it was."""
    before = world.written()
    said = told(world.run(*words), status, *codes)
    assert world.written() == before
    assert_tidy(world)
    return said


def assert_tidy(world: World) -> None:
    """Nothing of a run's own is left beside what it was to make."""
    patches = world.repo / "patches"
    assert {path.name for path in patches.iterdir()} == {TAG}
    left = [path for path in world.out.rglob("*") if path.name.startswith(".vpatch")]
    left += list(world.out.glob(".*.vpatch-*")) if world.out.is_dir() else []
    assert left == []


# Tags.


@pytest.mark.parametrize("verb", WITH_TAG)
def test_what_is_no_tag(verb: str, template: World) -> None:
    said = refused(template, template.words(verb, "seventeen"), 2, "bad-tag")
    assert "'seventeen' is not a release tag" in said


@pytest.mark.parametrize("verb", WITH_TAG)
def test_a_tag_that_nobody_released(verb: str, template: World) -> None:
    code = {"fetch": "unknown-tag", "pin": "no-series", "lint": "no-series"}.get(verb, "no-pin")
    with served(template):
        said = refused(template, template.words(verb, UNKNOWN), 2, code)
    assert UNKNOWN in said
    assert TAG in said  # the nearest that is


@pytest.mark.parametrize("verb", [verb for verb in WITH_TAG if verb != "fetch"])
def test_a_release_without_a_pin(verb: str, template: World) -> None:
    code = "no-series" if verb in {"pin", "lint"} else "no-pin"
    said = refused(template, template.words(verb, NEXT), 2, code)
    assert f"Nearest pins: {TAG}." in said
    # To be changed when the verb is there.
    assert f"`vpatch rebase FROM {NEXT}` carries the series of another release to it." in said
    assert template.run("rebase", NEXT).status == 2


# The network.


@pytest.mark.parametrize("verb", ["releases", *WITH_RELEASE])
def test_no_network(verb: str, cold: World) -> None:
    said = refused(cold, cold.words(verb), 4, "network")
    assert "127.0.0.1:9" in said
    with served(cold):
        ran = cold.run(*cold.words(verb)) if verb != "smoke" else None
    assert ran is None or ran.status == 0, ran


@pytest.mark.parametrize("verb", ["lint", "fetch", "apply", "build", "edit", "refresh", "export"])
def test_no_network_is_no_matter_where_all_is_there(verb: str, warm: World) -> None:
    assert warm.run(*warm.words(verb)).status == 0


@pytest.mark.parametrize("verb", WITH_RELEASE)
def test_other_bytes_than_the_pinned_ones(verb: str, cold: World) -> None:
    with served(cold) as index:
        index.files = {name: data + b"more" for name, data in index.files.items()}
        said = refused(cold, cold.words(verb), 4, "hash-mismatch")
    assert "the pin wants sha256" in said


@pytest.mark.parametrize("verb", WITH_RELEASE)
def test_other_bytes_than_the_index_lists(verb: str, cold: World) -> None:
    with served(cold) as index:
        index.listed_hashes = {name: index.sha256(name) for name in index.files}
        index.files = {name: b"x" + data[1:] for name, data in index.files.items()}
        said = refused(cold, cold.words(verb), 4, "hash-mismatch")
    assert "sha256" in said
    assert not list(cold.cache.glob("artifacts/*/vllm*"))


# The disk.


@dataclass(frozen=True)
class _Twice:
    first: Ran
    seen: Mapping[str, bytes]
    second: Ran


_IN_A_NAMESPACE = """\
set -e
mkdir -p "$PLACE" "$ASIDE"
mount -t tmpfs -o size=64m none "$ASIDE"
cp -a "$PLACE/." "$ASIDE/"
mount --bind "$ASIDE" "$PLACE"
case $HOW in
    readonly) mount -o remount,ro,bind "$PLACE" ;;
    *) head -c "$HOW"k /dev/zero > "$ASIDE/spare"
       cat /dev/zero > "$ASIDE/fill" 2> /dev/null || true
       rm "$ASIDE/spare" ;;
esac
set +e
"$@" > "$RESULT/out1" 2> "$RESULT/err1"; echo $? > "$RESULT/rc1"
cp -a "$PLACE" "$RESULT/seen"
[ "$HOW" = readonly ] && mount -o remount,rw,bind "$PLACE"
rm -f "$ASIDE/fill" "$RESULT/seen/fill"
"$@" > "$RESULT/out2" 2> "$RESULT/err2"; echo $? > "$RESULT/rc2"
"""
# The nearest thing to a full disk where nothing can be mounted: files that may not grow.
_WITH_A_LIMIT = """\
mkdir -p "$PLACE"
(ulimit -f "$HOW"; exec "$@" > "$RESULT/out1" 2> "$RESULT/err1"); echo $? > "$RESULT/rc1"
cp -a "$PLACE" "$RESULT/seen"
"$@" > "$RESULT/out2" 2> "$RESULT/err2"; echo $? > "$RESULT/rc2"
"""


def _can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


CAN_MOUNT = _can_mount()


def on_a_bad_disk(world: World, words: tuple[str, ...], place: Path, how: str) -> _Twice:
    """Runs a command with a folder on a disk that refuses, then again on the same one, mended.

    Args:
        how: ``readonly``, or how many KB are free.
    """
    if not CAN_MOUNT and how == "readonly":
        pytest.skip("a read-only disk needs `unshare -rm`")
    result = world.folder / "result"
    result.mkdir()
    shell = ["unshare", "-rm", "/bin/sh", "-c", _IN_A_NAMESPACE]
    if not CAN_MOUNT:
        shell = ["/bin/sh", "-c", _WITH_A_LIMIT]
    setting = {
        "PLACE": place, "ASIDE": world.folder / "aside", "RESULT": result, "HOW": how,
    }  # fmt: skip
    subprocess.run(
        [*shell, "sh", sys.executable, "-m", "vpatch", *words, "--json"],
        cwd=world.repo,
        env={**world.environment, **{name: str(value) for name, value in setting.items()}},
        check=False,
        timeout=120,
    )

    def ran(number: int) -> Ran:
        out, err, code = ((result / f"{name}{number}").read_text() for name in ("out", "err", "rc"))
        return Ran(words[0], int(code), out, err)

    return _Twice(ran(1), contents(result / "seen"), ran(2))


@pytest.mark.parametrize("free", ["0", "32"])
@pytest.mark.parametrize("verb", WITH_RELEASE)
def test_a_cache_on_a_full_disk(verb: str, free: str, cold: World) -> None:
    before = cold.written()
    with served(cold):
        twice = on_a_bad_disk(cold, cold.words(verb), cold.cache, free)
    said = told(twice.first, 4, "disk", *(() if CAN_MOUNT else ("git", "environment")))
    assert "VPATCH_CACHE" in said or not CAN_MOUNT
    for path, data in twice.seen.items():  # a download that is kept is whole
        if path.startswith("artifacts/") and "/." not in path:
            assert hashlib.sha256(data).hexdigest() == path.split("/")[1]
    if verb == "smoke":
        return
    assert twice.second.status == 0, twice.second
    if verb in {"fetch", "apply", "refresh", "export"}:
        assert cold.written() == before


@pytest.mark.parametrize("state", ["cold", "warm"])
@pytest.mark.parametrize("verb", WITH_RELEASE)
def test_a_read_only_cache(verb: str, state: str, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(state)
    with served(world):
        twice = on_a_bad_disk(world, world.words(verb), world.cache, "readonly")
    if twice.first.status == 0:
        # Nothing had to be written into it.
        assert (state, verb) in {
            ("warm", verb) for verb in ("fetch", "refresh", "export", "import")
        }
        return
    said = told(twice.first, 4, "disk")
    assert "Read-only file system" in said
    assert "VPATCH_CACHE" in said
    assert verb == "smoke" or twice.second.status == 0, twice.second


@pytest.mark.parametrize("verb", ["pin", "export", "refresh", "import", "fix"])
def test_a_series_on_a_full_disk(verb: str, warm: World) -> None:
    words = _something_to_write(warm, verb)
    before = contents(warm.series)
    with served(warm):
        twice = on_a_bad_disk(warm, words, warm.repo / "patches", "0")
    said = told(twice.first, 4, "disk", *(() if CAN_MOUNT else ("git", "environment")))
    assert str(warm.repo) in said or not CAN_MOUNT
    seen = {path: data for path, data in twice.seen.items() if not path.endswith(".lock")}
    assert seen == {f"{TAG}/{path}": data for path, data in before.items()}
    assert twice.second.status == 0, twice.second


@pytest.mark.parametrize(("verb", "free"), [("build", "100"), ("build", "0"), ("edit", "16")])
def test_results_on_a_full_disk(verb: str, free: str, warm: World) -> None:
    with served(warm):
        twice = on_a_bad_disk(warm, warm.words(verb), warm.out, free)
    # git does not always say why it could not write a file.
    told(twice.first, 4, "disk", "git", *(() if CAN_MOUNT else ("environment",)))
    assert twice.seen == {}
    assert twice.second.status == 0, twice.second


def _something_to_write(world: World, verb: str) -> tuple[str, ...]:
    """A call that has a new series or pin to write; ``fix``: lint --fix."""
    if verb == "pin":
        _say_six(world)
    elif verb == "export":
        work = world.folder / "work"
        committed(work, {"vllm/y.py": b"y\n" * 9000}, f"y: say y\n\n{TRAILERS}")
    elif verb == "refresh":
        _say_six(world)
        patch = world.series / STEPS[0].file
        patch.write_bytes(patch.read_bytes().replace(b"@@ -2,7 +2,7 @@", b"@@ -3,7 +3,7 @@"))
    elif verb == "fix":
        listing = world.series / "series"
        listing.write_text(listing.read_text().rstrip("\n"))
        return ("lint", TAG, "--fix")
    return world.words(verb)


def _say_six(world: World) -> None:
    patch = world.series / STEPS[0].file
    patch.write_bytes(patch.read_bytes().replace(b"Because the test asks", b"As the test asks"))


# Wheels and patches.


NO_WHEEL = {
    "page": "its bytes are not those of a zip",
    "empty": "its bytes are not those of a zip",
    "zip": "it has no *.dist-info/METADATA",
    "name": "is not named as a wheel is",
    "folder": "there is no",
    "missing": "there is no",
    "other": "is a wheel of six 1.17.0, not of vLLM",
}


@pytest.mark.parametrize("what", NO_WHEEL)
@pytest.mark.parametrize(
    "verb", ["inspect", "inspect --base", "smoke", "smoke --unpatched", "build"]
)
def test_what_is_no_wheel_of_vllm(
    what: str, verb: str, template: World, wheels: Mapping[str, Path]
) -> None:
    said = refused(
        template,
        _with_wheel(template, verb, wheels[what]),
        2,
        "not-a-wheel",
        "no-wheel",
        "bad-base",
    )
    assert NO_WHEEL[what] in said
    assert wheels[what].name in said


@pytest.mark.parametrize(
    ("verb", "status"), [("inspect", 1), ("inspect --base", 1), ("smoke", 2), ("build", 1)]
)
def test_a_damaged_wheel(
    verb: str, status: int, template: World, wheels: Mapping[str, Path]
) -> None:
    said = refused(template, _with_wheel(template, verb, wheels["cut"]), status, "bad-wheel")
    assert "truncated" in said


def _with_wheel(world: World, verb: str, wheel: Path) -> tuple[str, ...]:
    if verb == "inspect --base":
        return ("inspect", str(world.folder / "wheels" / WHEEL), "--base", str(wheel))
    if verb == "build":
        return ("build", TAG, "--base", str(wheel), "--out", str(world.out / "dist"))
    return (*verb.split(" ")[:1], str(wheel), *verb.split(" ")[1:])


NO_PATCH = {"text": b"no patch\n", "empty": b"", "bytes": b"\xff\0\n", "page": b"<!DOCTYPE html>\n"}


@pytest.mark.parametrize("what", NO_PATCH)
@pytest.mark.parametrize("verb", WITH_SERIES)
def test_a_patch_that_is_none(verb: str, what: str, warm: World) -> None:
    patch = warm.series / STEPS[1].file
    patch.write_bytes(NO_PATCH[what])
    with served(warm):
        said = refused(warm, warm.words(verb), 1, "no-mbox-head", "not-a-mail", "no-mail")
    assert f"{patch}:1: " in said


@pytest.mark.parametrize("what", NO_PATCH)
@pytest.mark.parametrize("fix", [(), ("--fix",)])
def test_lint_finds_a_patch_that_is_none(fix: tuple[str, ...], what: str, warm: World) -> None:
    patch = warm.series / STEPS[1].file
    patch.write_bytes(NO_PATCH[what])
    before = warm.written()
    ran = warm.run(*warm.words("lint"), *fix)
    assert ran.status == 1
    assert "Traceback" not in ran.stderr
    assert (str(patch), 1) in {(one["file"], one["line"]) for one in ran.answer["findings"]}
    assert all(one["mend"] for one in ran.answer["findings"])
    assert warm.written() == before


@pytest.mark.parametrize("what", NO_PATCH)
def test_a_mailbox_that_is_none(what: str, warm: World) -> None:
    (warm.folder / "box").write_bytes(NO_PATCH[what])
    said = refused(warm, warm.words("import"), 1, "not-a-mailbox")
    assert "is no mailbox: it " in said
    assert "vpatch-mails-" not in said


# Two at once, and runs that are killed.


@pytest.mark.parametrize("verb", [verb for verb in ("releases", *WITH_TAG) if verb != "smoke"])
def test_two_at_once(verb: str, cold: World, template: World, tmp_path: Path) -> None:
    alone = copied(template, tmp_path / "alone", warm=False)
    with served(alone):
        assert alone.run(*alone.words(verb)).status == 0
    with served(cold):
        runs = [cold.start(*cold.words(verb)) for _ in range(2)]
        for ran in [ended(verb, process) for process in runs]:
            assert ran.status == 0, ran
            assert "Traceback" not in ran.stderr
            assert ran.answer["ok"]
    assert _without_times(cold.written()) == _without_times(alone.written())
    assert_tidy(cold)


def _without_times(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files whose bytes are the same in each run: git keeps times and a reflog of its own."""
    # A killed build's hidden rests are taken away once they are old (test_wheel.py).
    own = (".git/index", ".git/logs/", ".git/objects/", "out/dist/.")
    return {path: data for path, data in files.items() if not any(part in path for part in own)}


_SERVER = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from indexserver import IndexServer, running
files = {path.name: path.read_bytes() for path in Path(sys.argv[1]).iterdir() if path.is_file()}
with running(IndexServer(files=files)) as index:
    print(index.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def index_url(template: World, tmp_path: Path) -> Iterator[str]:
    """The index in a process of its own: what is forked below has one thread."""
    files = tmp_path / "index"
    files.mkdir()
    for name, data in template.files.items():
        (files / name).write_bytes(data)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(files), str(TESTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", ["fetch", "pin", "apply", "build", "export", "edit", "refresh", "import", "fix"]
)
def test_kill_9_at_five_moments(
    verb: str,
    template: World,
    tmp_path: Path,
    index_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "world"
    world = copied(template, place, warm=verb in {"export", "refresh", "import", "fix"})
    words = _something_to_write(world, verb)
    if verb == "apply":
        words = (*words, "--worktree", str(world.out / "tree"))
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_INDEX_URL", index_url)
    monkeypatch.chdir(world.repo)
    kept = tmp_path / "kept"
    place.rename(kept)

    def restore() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(kept, place, symlinks=True)
        os.chdir(world.repo)

    def work() -> None:
        if vpatch(*words, "--json"):
            raise SystemExit(3)

    restore()
    old = _without_times(world.written())
    count = steps(work)
    new = _without_times(world.written())
    assert (new != old) is (verb != "fetch")
    killed = 0
    for moment in spread(count, 5):
        restore()
        killed += killed_at(moment, work)
        _whole(world, old, new)
        # What it was to make stands there, and apply writes over nothing.
        done = verb == "apply" and (world.out / "tree").exists()
        again = subprocess.run(
            [sys.executable, "-m", "vpatch", *words], capture_output=True, check=False
        )
        assert again.returncode == (2 if done else 0), again
        assert _without_times(world.written()) == new
        assert_tidy(world)
    assert killed >= 5


def _whole(world: World, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> None:
    """What stands in its place after a kill is the old or the new, whole."""
    held = _without_times(world.written())
    series = f"repo/patches/{TAG}/"
    assert _below(held, series) in (_below(old, series), _below(new, series))
    for folder in ("edit", "tree"):
        if (world.out / folder).exists():
            assert git(world.out / folder, "status", "--porcelain") == ""
    for path in (world.out / "dist").glob("[!.]*"):
        assert path.read_bytes() == new[f"out/dist/{path.name}"]


def _below(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.startswith(folder)}
