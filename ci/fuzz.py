"""Fuzzes what reads untrusted bytes, with atheris (`pip install -e .[fuzz]`).

    python ci/fuzz.py [patch] [archive] [--seconds 60] [--corpus DIR]

patch: mails, diffs, mailboxes' subjects, the `series` file and the pin. archive: sdists and wheels,
by all their readers. An error of ours (FindingsError, HostError, ...) is an answer; any other
exception, a hang of 30 seconds or 2 GB of memory is a crash: exit 1, and the input is kept in the
corpus folder's ``crashes/``, to be given to `python ci/fuzz.py TARGET --input FILE`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
_LONGEST = 1 << 16
_HANG_S, _MEMORY_MB = 30, 2048

Target = Callable[[bytes], None]


def patch_target(folder: Path) -> Target:
    """Everything that reads a patch, a series or a pin."""
    from vpatch.errors import VpatchError
    from vpatch.patches.form import lint_form
    from vpatch.patches.lint import lint_patch
    from vpatch.patches.patch import Patch
    from vpatch.patches.pin import Pin
    from vpatch.patches.place import applied_in_place
    from vpatch.patches.series import Series, lint

    def whole_patch(data: bytes) -> None:
        patch = Patch.parse("0001-x.patch", data)
        list(lint_patch(patch))
        list(lint_form(patch))
        for file in patch.files:
            applied_in_place(data, file)

    def whole_series(data: bytes) -> None:
        (folder / "series").write_bytes(data)
        (folder / "0001-x.patch").write_bytes(data)
        lint(folder)
        Series.read(folder, "v9.9.9")

    readers: list[Target] = [whole_patch, whole_series, lambda data: _pin(Pin, data)]

    def run(data: bytes) -> None:
        for reader in readers:
            with contextlib.suppress(VpatchError):
                reader(data)

    return run


def _pin(pin: type, data: bytes) -> None:
    pin.parse(data, "pin.toml")  # type: ignore[attr-defined]


def archive_target(folder: Path) -> Target:
    """Every reader of an sdist or a wheel; the first byte says how the rest is wrapped.

    A tar is compressed here: a fuzzer does not find the checksum of a gzip.
    """
    from vpatch.errors import VpatchError
    from vpatch.upstream.archive import Limits, read_sdist
    from vpatch.upstream.zipread import read_wheel
    from vpatch.wheel.inspect import inspect_wheel

    limits = Limits(members=1000, file_bytes=1 << 22, total_bytes=1 << 24)
    sdist = folder / "vllm-9.9.9.tar.gz"
    wheel = folder / "vllm-9.9.9-cp38-abi3-manylinux_2_31_x86_64.whl"

    def as_sdist(data: bytes) -> None:
        sdist.write_bytes(data)
        for _ in read_sdist(sdist, limits):
            pass

    def as_tar(data: bytes) -> None:
        as_sdist(gzip.compress(data, compresslevel=1, mtime=0))

    def as_wheel(data: bytes) -> None:
        for _ in read_wheel(wheel.name, io.BytesIO(data), lambda _: True, limits):
            pass

    def as_own_wheel(data: bytes) -> None:
        wheel.write_bytes(data)
        inspect_wheel(wheel)

    ways: list[list[Target]] = [[as_wheel, as_own_wheel], [as_tar], [as_sdist]]

    def run(data: bytes) -> None:
        for way in ways[data[0] % len(ways)] if data else ():
            with contextlib.suppress(VpatchError):
                way(data[1:])

    return run


TARGETS: dict[str, Callable[[Path], Target]] = {"patch": patch_target, "archive": archive_target}


def seeds(target: str) -> Iterator[bytes]:
    """Good inputs to start from: the series, and small releases."""
    if target == "patch":
        for path in sorted((ROOT / "patches").glob("*/*")):
            if path.stat().st_size <= _LONGEST:
                yield path.read_bytes()
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from archives import make_sdist, make_wheel

    small = make_sdist("9.9.9")
    yield b"\1" + zlib.decompress(small, wbits=31)
    yield b"\2" + small
    for compress in (False, True):
        yield b"\0" + make_wheel("9.9.9", compress=compress)


def fuzz(target: str, seconds: int, corpus: Path) -> None:
    """Runs one target in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["vpatch", "tarfile", "zipfile", "unidiff"]):
        scratch = tempfile.mkdtemp(prefix="vpatch-fuzz-")
        run = TARGETS[target](Path(scratch))
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={_HANG_S}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-max_len={_LONGEST}",
        f"-artifact_prefix={corpus}/crashes/{target}-",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus / target)], run)
    atheris.Fuzz()


def start(target: str, seconds: int, corpus: Path) -> bool:
    """Runs a target in a child process, from the seeds; returns whether it found nothing."""
    (corpus / target).mkdir(parents=True, exist_ok=True)
    (corpus / "crashes").mkdir(exist_ok=True)
    for number, data in enumerate(seeds(target)):
        (corpus / target / f"seed-{number:03d}").write_bytes(data)
    command = [sys.executable, __file__, target, "--child", "--seconds", str(seconds)]
    command += ["--corpus", str(corpus)]
    status = subprocess.run(command, check=False).returncode
    verdict = "nothing found" if not status else f"FAILED with {status}: see {corpus}/crashes"
    click.echo(f"fuzz {target}: {verdict}")
    return not status


@click.command(help=__doc__)
@click.argument("targets", nargs=-1, type=click.Choice(list(TARGETS)))
@click.option("--seconds", default=60, type=click.IntRange(1), help="For each target.")
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep inputs here. [default: a folder that goes unless something is found]",
)
@click.option(
    "--input",
    "file",
    type=click.Path(path_type=Path, exists=True),
    help="Run one target on this file only, without atheris.",
)
@click.option("--child", is_flag=True, hidden=True)
def main(
    targets: tuple[str, ...], seconds: int, corpus: Path | None, file: Path | None, child: bool
) -> None:
    """Fuzzes, and exits 1 where something was found."""
    names = targets or tuple(TARGETS)
    if file is not None:
        with tempfile.TemporaryDirectory(prefix="vpatch-fuzz-") as scratch:
            TARGETS[names[0]](Path(scratch))(file.read_bytes())
        return
    place = corpus or Path(tempfile.mkdtemp(prefix="vpatch-corpus-"))
    if child:
        fuzz(names[0], seconds, place)
        return
    good = [start(name, seconds, place.absolute()) for name in names]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
