"""The benchmark of ``vpatch collect --verify``: a set against sums of the same files."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

from bench_lab import Result, at_most, command, measure, named
from vpatch.collect.begin import begin
from vpatch.collect.intake import Finished
from vpatch.collect.manifest import About
from vpatch.collect.place import Folder
from vpatch.collect.prompts import digest_of

LAYERS, HIDDEN = (2, 30, 58), 7168
_ABOUT = About(
    target="bench",
    layers=LAYERS,
    vllm="0",
    series=None,
    layout="files",
    norm=False,
    sampling={},
    options={},
)


def make_set(folder: Path, samples: int, tokens: int, hidden: int = HIDDEN) -> None:
    """A whole set, of Kimi-K2.5's shape where nothing else is said."""
    prompts = folder.with_suffix(".jsonl")
    with prompts.open("w") as stream:
        for number in range(samples):
            stream.write(json.dumps({"prompt_token_ids": [number] * tokens}) + "\n")
    store = begin(Folder(folder), _ABOUT, prompts, None, shard_bytes=0).store
    if store is None:
        raise SystemExit(f"{folder} is there already")
    size = tokens * len(LAYERS) * hidden * 2
    block = struct.pack("<1024H", *(0x3F00 + one % 251 for one in range(1024)))
    states = (block * (size // len(block) + 1))[:size]
    header = _header(tokens, hidden, size)
    staging = folder.with_suffix(".staging")
    staging.mkdir()
    for number in range(samples):
        path = staging / f"{number}.safetensors"
        ids = struct.pack(f"<{tokens}q", *[number] * tokens)
        path.write_bytes(header + states + ids)
        sum_of = digest_of([number] * tokens)
        store.take([Finished(number, None, path, tokens, 1, sum_of, "length")])
    store.finish()


def _header(tokens: int, hidden: int, size: int) -> bytes:
    described = {
        "hidden_states": {
            "dtype": "BF16",
            "shape": [tokens, len(LAYERS), hidden],
            "data_offsets": [0, size],
        },
        "token_ids": {
            "dtype": "I64",
            "shape": [tokens],
            "data_offsets": [size, size + tokens * 8],
        },
    }
    raw = json.dumps(described).encode().ljust(4088)
    return struct.pack("<Q", len(raw)) + raw


def bench_verify(scratch: Path, runs: int) -> Result:
    """Whole commands, on 1 GB in files of 88 MB, on a quarter of it, and on many small files."""
    # In processes of their own: a child's peak begins with what its parent had.
    for name, *shape in (("large", 12, 2048), ("quarter", 3, 2048), ("small", 4000, 8, 64)):
        command(sys.executable, Path(__file__), "make", scratch / str(name), *map(str, shape))
    files = sorted((scratch / "large").glob("hs_*"))
    vpatch = (sys.executable, "-m", "vpatch", "collect", "--verify")

    def hashed() -> float:
        return command(sys.executable, Path(__file__), *files)

    def verify(name: str, *more: str) -> float:
        return command(*vpatch, scratch / name, *more)

    found = measure(
        runs,
        verify=lambda: verify("large"),
        alone=lambda: verify("large", "--jobs", "1"),
        quarter=lambda: verify("quarter", "--jobs", "1"),
        small=lambda: verify("small", "--jobs", "1"),
        sums=lambda: command("sha256sum", *files),
        hashed=hashed,
    )
    gigabytes = sum(file.stat().st_size for file in files) / 1e9
    seconds = {name: one.seconds for name, one in found.items()}
    peak = {name: one.peak_megabytes for name, one in found.items()}
    of = f"{gigabytes:.1f} GB in {len(files)} files"
    return Result(
        part="verify",
        measured=(
            named(found["verify"], f"vpatch collect --verify, {of}"),
            named(found["alone"], "the same, --jobs 1"),
            named(found["quarter"], "a quarter of it, --jobs 1"),
            named(found["small"], "4000 samples of 8 rows, --jobs 1"),
            named(found["sums"], "sha256sum of the files"),
            named(found["hashed"], "one sha256 after the other by this Python"),
        ),
        bounds=(
            at_most("times sha256sum", seconds["verify"] / seconds["sums"], 1),
            at_most("times a Python that only hashes", seconds["alone"] / seconds["hashed"], 1.6),
            at_most("times the peak memory of a quarter", peak["alone"] / peak["quarter"], 1.1),
            at_most("peak memory, MB", max(peak["alone"], peak["small"]), 100),
        ),
    )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make_set(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        from bench import sha256

        for name in sys.argv[1:]:
            sha256(Path(name))
