"""`vpatch collect --verify`: a whole set is complete, and each thing that is wrong is named."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collect_lab import (
    ABOUT,
    HIDDEN,
    LAYERS,
    SHARDED,
    answer_of,
    finished,
    make_set,
    names,
    open_store,
    sample_file,
    states_of,
    tokens_of,
    with_header,
    write_prompts,
)
from vpatch.collect import reading
from vpatch.collect.lines import Failed
from vpatch.collect.place import Folder
from vpatch.collect.verify import Verified, verify
from vpatch.collect.verify_served import is_served
from vpatch.errors import FindingError, UsageError
from vpatch.progress import SilentProgress
from vpatch.verbs import collect_verify


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    make_set(Folder(tmp_path / "set"), tmp_path / "scratch")
    return tmp_path / "set"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    make_set(Folder(tmp_path / "set"), tmp_path / "scratch", 9, SHARDED)
    return tmp_path / "set"


def verified(folder: Path, jobs: int = 1) -> Verified:
    return verify(Folder(folder), SilentProgress(), jobs=jobs)


def said(folder: Path) -> str:
    return "\n".join(map(str, verified(folder).findings))


def change(folder: Path, name: str, old: str, new: str, *, manifest: bool = True) -> None:
    """Changes a text, and the manifest with it, so that no checksum tells of it."""
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if manifest:
        keep_checksum(folder, name)


def keep_checksum(folder: Path, name: str) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(data))


def replace(folder: Path, number: int, data: bytes, *, line: bool = True) -> None:
    """Another file of a sample, and its line and the counts with it."""
    path = folder / f"hs_{number}.safetensors"
    size = path.stat().st_size
    path.write_bytes(data)
    if not line:
        return
    lines = [json.loads(one) for one in (folder / "samples.jsonl").read_text().splitlines()]
    lines[number] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["bytes"] += len(data) - size
    (folder / "manifest.json").write_text(json.dumps(manifest))
    keep_checksum(folder, "samples.jsonl")


def test_a_whole_set_is_complete(whole: Path) -> None:
    found = verified(whole)
    assert not found.findings
    rows = sum(len(tokens_of(number) + answer_of(number)) - 1 for number in range(5))
    assert (found.counts.prompts, found.counts.samples, found.counts.failed) == (5, 5, 0)
    assert (found.counts.rows, found.counts.files) == (rows, 5)
    assert found.counts.bytes == found.read
    assert found.counts.bytes == sum(one.stat().st_size for one in whole.glob("hs_*"))
    assert {one.name for one in whole.iterdir()} == names(5)


def test_a_whole_set_of_shards_is_complete(sharded: Path) -> None:
    found = verified(sharded)
    assert not found.findings
    assert found.counts.samples == 9
    assert 1 < found.counts.files < 9
    assert len(list(sharded.glob("shard-*"))) == found.counts.files
    assert not list(sharded.glob("hs_*"))


def test_processes_say_the_same(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole / "hs_3.safetensors").unlink()
    alone = verified(whole)
    monkeypatch.setattr(reading, "_WORTH_PROCESSES", 0)
    assert set(verified(whole, jobs=2).findings) == set(alone.findings)


def test_failed_prompts_are_named(tmp_path: Path) -> None:
    store = open_store(Folder(tmp_path / "set"), write_prompts(tmp_path / "p", 3))
    store.take([finished(tmp_path / "engine", number) for number in (0, 2)])
    store.fail([Failed(1, "p1", "too long")])
    store.finish()
    found = verified(tmp_path / "set")
    assert not found.findings
    assert (found.counts.samples, found.counts.failed) == (2, 1)
    assert found.failed == (Failed(1, "p1", "too long"),)


# what there is no set in


def test_an_empty_folder_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no set"):
        verified(tmp_path)
    with pytest.raises(UsageError, match="is no set"):
        verified(tmp_path / "missing")


def test_a_file_is_no_set(tmp_path: Path) -> None:
    file = tmp_path / "rows.safetensors"
    file.write_bytes(b"")
    with pytest.raises(UsageError, match="is no folder"):
        verified(file)
    with pytest.raises(UsageError, match="is no folder"):
        is_served(Folder(file))


def test_a_set_without_its_manifest_is_not_finished(whole: Path) -> None:
    (whole / "manifest.json").unlink()
    with pytest.raises(FindingError, match="is not finished") as caught:
        verified(whole)
    assert "--resume" in caught.value.hint


@pytest.mark.parametrize(
    "change_to",
    [
        {"samples": -1},
        {"prompts": 10**12},
        {"shape": {"dtype": "BF16", "layers": 1 << 30, "hidden": 1 << 30}},
        {"shape": {"dtype": "I64", "layers": 2, "hidden": 4}},
        {"sha256": {}},
        {"sha256": dict.fromkeys(("set.json", "prompts.jsonl", "samples.jsonl"), "0" * 63)},
        {"shape": {"dtype": "BF16", "layers": 2, "hidden": 4, "more": 1}},
        {"shape": [2, 4]},
        {"shape": {"dtype": "BF16", "layers": 0, "hidden": 4}},
        {"schema": "vpatch/set/2"},
    ],
)
def test_a_manifest_that_is_none(whole: Path, change_to: dict[str, Any]) -> None:
    path = whole / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change_to}))
    with pytest.raises(FindingError, match=r"manifest\.json"):
        verified(whole)


@pytest.mark.parametrize(
    "change_to",
    [
        {"target": None},
        {"vllm": 26},
        {"series": 5},
        {"sampling": []},
        {"options": None},
        {"layers": []},
        {"layers": [1, "3"]},
        {"layers": 3},
        {"layout": "tar"},
        {"norm": 1},
        {"schema": None},
    ],
)
def test_a_set_json_that_is_none(whole: Path, change_to: dict[str, Any]) -> None:
    path = whole / "set.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change_to}))
    with pytest.raises(FindingError, match=r"set\.json"):
        verified(whole)


def test_a_manifest_of_gigabytes(whole: Path) -> None:
    with (whole / "manifest.json").open("ab") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(FindingError, match=r"manifest\.json has 1099511627776 bytes"):
        verified(whole)


# files that are not what they have to be


def nan_at(row: int, bits: int = 0x7FC0) -> Callable[[int], bytes]:
    def states(number: int) -> bytes:
        rows = len(tokens_of(number) + answer_of(number)) - 1
        data = bytearray(states_of(number, rows))
        struct.pack_into("<H", data, row * len(LAYERS) * HIDDEN * 2 + 6, bits)
        return sample_file(
            number, tensors={"hidden_states": ("BF16", (rows, len(LAYERS), HIDDEN), bytes(data))}
        )

    return states


def other_tokens(number: int) -> bytes:
    tokens = (tokens_of(number) + answer_of(number))[:-1]
    raw = struct.pack(f"<{len(tokens)}q", *tokens[:-1], tokens[-1] + 1)
    return sample_file(number, tensors={"token_ids": ("I64", (len(tokens),), raw)})


def zero_row(number: int) -> bytes:
    rows = len(tokens_of(number) + answer_of(number)) - 1
    width = len(LAYERS) * HIDDEN * 2
    data = states_of(number, rows)[:-width] + bytes(width)
    shape = (rows, len(LAYERS), HIDDEN)
    return sample_file(number, tensors={"hidden_states": ("BF16", shape, data)})


def wide(number: int) -> bytes:
    rows = len(tokens_of(number) + answer_of(number)) - 1
    shape = (rows, len(LAYERS), HIDDEN + 1)
    data = states_of(number, rows, hidden=HIDDEN + 1)
    return sample_file(number, tensors={"hidden_states": ("BF16", shape, data)})


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (nan_at(1), "not-finite", "NaN or Inf in 1 of 4 rows, the first is row 1"),
        (nan_at(2, 0x7F80), "not-finite", "the first is row 2"),
        (nan_at(0, 0xFF80), "not-finite", "the first is row 0"),
        (zero_row, "empty-row", "nothing but zeros in 1 of 4 rows, the first is row 3"),
        (other_tokens, "tokens", "other token ids than the engine answered"),
        (wide, "shape", "not BF16 [4, 2, 4]"),
        (lambda n: sample_file(n, label="7"), "metadata", "its label is '7', not 1"),
        (lambda n: sample_file(n, layers="[1, 4]"), "layers", "'[1, 4]', not [1, 3]"),
        (lambda n: sample_file(n, layers="[[[["), "layers", "says that its layers"),
        (lambda n: sample_file(n, x=5), "header", "no object of texts"),
        (lambda n: sample_file(n) + b"\0", "header", "that no weight has"),
        (lambda n: sample_file(n)[:-1], "header", "lies behind the file's end"),
        (lambda _: b"", "header", "ends before its header"),
        (
            lambda n: sample_file(n, tensors={"more": ("U8", (1,), b"x")}),
            "tensors",
            "'more' that does not belong",
        ),
        (lambda _: with_header({}), "tensors", "lacks the tensor 'hidden_states'"),
    ],
)
def test_a_file_that_is_not_its_sample(
    whole: Path, data: Callable[[int], bytes], code: str, text: str
) -> None:
    replace(whole, 1, data(1))
    found = verified(whole)
    assert {one.file for one in found.findings} == {"hs_1.safetensors"}, found.findings
    assert found.findings[0].code == code
    assert text in found.findings[0].message


def test_the_largest_finite_number_is_one(whole: Path) -> None:
    replace(whole, 1, nan_at(1, 0x7F7F)(1))
    assert not verified(whole).findings


def test_one_flipped_bit(whole: Path) -> None:
    path = whole / "hs_2.safetensors"
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    assert "hs_2.safetensors: has other bytes than were written [checksum]" in said(whole)


def test_a_file_of_another_size(whole: Path) -> None:
    replace(whole, 2, sample_file(2) + b"more", line=False)
    assert verified(whole).by_code.keys() == {"header", "size", "checksum", "counts"}


# samples that are missing, double, foreign


def test_a_missing_file(whole: Path) -> None:
    (whole / "hs_2.safetensors").unlink()
    assert "hs_2.safetensors: is missing" in said(whole)


@pytest.mark.parametrize("place", ["outside", "hs_3.safetensors"])
def test_a_link_is_no_file(whole: Path, place: str) -> None:
    path = whole / "hs_2.safetensors"
    path.rename(whole.parent / "outside")
    path.symlink_to(whole.parent / place)
    assert "hs_2.safetensors: is a link [no-file]" in said(whole)


def test_a_pipe_is_not_waited_for(whole: Path) -> None:
    (whole / "hs_2.safetensors").unlink()
    os.mkfifo(whole / "hs_2.safetensors")
    assert "is no file" in said(whole)


@pytest.mark.parametrize(
    "name",
    [
        "hs_5.safetensors",
        "hs_02.safetensors",
        "shard-000000.safetensors",
        ".hs_1.safetensors.1a2b.tmp",
        "notes.txt",
        "hs_1.safetensors.part",
    ],
)
def test_foreign_files(whole: Path, name: str) -> None:
    (whole / name).write_bytes(b"x")
    assert f"{name}: does not belong to the set [foreign]" in said(whole)


def test_foreign_folders_and_work_that_is_not_done(whole: Path) -> None:
    (whole / "more").mkdir()
    (whole / ".collect").mkdir()
    assert "more: does not belong" in said(whole)
    assert ".collect: is there: run vpatch collect again with --resume [unfinished]" in said(whole)


def test_a_prompt_without_a_sample(whole: Path) -> None:
    lines = (whole / "samples.jsonl").read_text().splitlines(keepends=True)
    (whole / "samples.jsonl").write_text("".join(lines[:1] + lines[3:]))
    keep_checksum(whole, "samples.jsonl")
    text = said(whole)
    assert "2 prompts have no sample: 1-2 [missing]" in text
    assert "hs_1.safetensors: does not belong to the set" in text
    assert "manifest.json: tells of 5 samples, and there are 3 [counts]" in text


def test_a_sample_twice(whole: Path) -> None:
    with (whole / "samples.jsonl").open("a") as stream:
        stream.write((whole / "samples.jsonl").read_text().splitlines()[2] + "\n")
    keep_checksum(whole, "samples.jsonl")
    assert "samples.jsonl:6: sample 2 is there twice [double]" in said(whole)
    assert verified(whole).read == verified(whole).manifest.counts.bytes


def test_a_sample_of_no_prompt(whole: Path) -> None:
    line = json.loads((whole / "samples.jsonl").read_text().splitlines()[2])
    with (whole / "samples.jsonl").open("a") as stream:
        stream.write(json.dumps({**line, "sample": 9, "file": "hs_9.safetensors"}) + "\n")
    keep_checksum(whole, "samples.jsonl")
    assert "sample 9 has no prompt [foreign]" in said(whole)


@pytest.mark.parametrize(
    "file", ["../hs_0.safetensors", "/etc/passwd", "hs_1.safetensors", "a\u0000", "", 7]
)
def test_a_line_that_names_another_file(whole: Path, file: object) -> None:
    change(whole, "samples.jsonl", '"hs_0.safetensors"', json.dumps(file))
    found = verified(whole)
    assert found.by_code["samples"] == 1
    assert "samples.jsonl:1" in said(whole)


def test_a_torn_line(whole: Path) -> None:
    with (whole / "samples.jsonl").open("a") as stream:
        stream.write('{"sample":4,"fi')
    keep_checksum(whole, "samples.jsonl")
    assert "samples.jsonl:6: is no whole line" in said(whole)


def test_prompts_that_were_changed(whole: Path) -> None:
    change(whole, "prompts.jsonl", "[10]", "[11]")
    assert "token_ids does not begin with its prompt's token ids [prompt]" in said(whole)


def test_a_longer_prompt(whole: Path) -> None:
    change(whole, "prompts.jsonl", "[10]", "[10, 5]")
    assert "sample 0 has 1 tokens of a prompt of 2 [prompt]" in said(whole)


def test_another_id(whole: Path) -> None:
    change(whole, "prompts.jsonl", '"p3"', '"p9"')
    assert "sample 3 has another id than its prompt [id]" in said(whole)


def test_a_prompt_that_is_none(whole: Path) -> None:
    change(whole, "prompts.jsonl", "[10]", "{}")
    assert "prompts.jsonl:1: has a prompt_token_ids without token ids [bad-prompts]" in said(whole)


def test_a_prompt_more(whole: Path) -> None:
    with (whole / "prompts.jsonl").open("a") as stream:
        stream.write('{"id": "p5", "prompt": "more"}\n')
    keep_checksum(whole, "prompts.jsonl")
    assert "has 6 prompts, and the manifest tells of 5 [counts]" in said(whole)


@pytest.mark.parametrize("name", ["set.json", "prompts.jsonl", "samples.jsonl"])
def test_small_files_have_checksums(whole: Path, name: str) -> None:
    with (whole / name).open("a") as stream:
        stream.write("\n")
    assert f"{name}: is not the file that the manifest tells of [checksum]" in said(whole)


@pytest.mark.parametrize("name", ["prompts.jsonl", "samples.jsonl"])
def test_small_files_are_not_missing(whole: Path, name: str) -> None:
    (whole / name).unlink()
    assert f"{name}: is missing [missing]" in said(whole)


@pytest.mark.parametrize("name", ["samples", "failed", "rows", "bytes", "files"])
def test_counts_of_the_manifest(whole: Path, name: str) -> None:
    path = whole / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, name: data[name] + 1}))
    assert f"tells of {data[name] + 1} {name}, and there are {data[name]}" in said(whole)


# shards


def test_a_shard_that_lacks_a_sample(sharded: Path) -> None:
    lines = (sharded / "samples.jsonl").read_text().splitlines(keepends=True)
    del lines[1]
    (sharded / "samples.jsonl").write_text("".join(lines))
    keep_checksum(sharded, "samples.jsonl")
    assert "samples behind its line, not " in said(sharded)


def test_a_shard_of_other_samples(sharded: Path) -> None:
    first, *_, last = sorted(sharded.glob("shard-*"))
    last.write_bytes(first.read_bytes())
    text = said(sharded)
    assert f"{last.name}: has a tensor " in text
    assert f"{last.name}: has other bytes than were written" in text


def test_a_shard_twice(sharded: Path) -> None:
    lines = (sharded / "samples.jsonl").read_text().splitlines(keepends=True)
    first = lines[: 1 + json.loads(lines[0])["samples"]]
    (sharded / "samples.jsonl").write_text("".join([*lines, *first]))
    keep_checksum(sharded, "samples.jsonl")
    found = verified(sharded)
    assert "shard-000000.safetensors is there twice [double]" in said(sharded)
    assert found.by_code == {"double": 1}


def test_folders_under_the_names_of_files(whole: Path) -> None:
    (whole / "set.json").rename(whole / "x")
    (whole / "set.json").symlink_to("x")
    with pytest.raises(FindingError, match="is a link"):
        verified(whole)
    (whole / "set.json").unlink()
    (whole / "x").rename(whole / "set.json")
    (whole / "hs_1.safetensors").unlink()
    (whole / "hs_1.safetensors").mkdir()
    assert verified(whole).by_code["no-file"] == 2  # as a file of a sample, and in the listing


def test_layouts_are_not_mixed(whole: Path) -> None:
    change(whole, "set.json", '"files"', '"shards"')
    assert "hs_0.safetensors is of another layout" in said(whole)


# the report


def test_the_report(whole: Path) -> None:
    report = collect_verify.run(str(whole), SilentProgress(), 1)
    assert report.exit_code == 0
    data = json.loads(report.to_json())
    assert (data["schema"], data["ok"], data["complete"]) == ("vpatch/collect/1", True, True)
    assert (data["samples"], data["layers"]) == (5, list(ABOUT.layers))
    assert data["shape"] == {"dtype": "BF16", "layers": 2, "hidden": 4}
    (whole / "x").touch()
    report = collect_verify.run(str(whole), SilentProgress(), 1)
    data = json.loads(report.to_json())
    assert (report.exit_code, data["ok"], data["complete"]) == (1, False, False)
    assert data["findings_by_code"] == {"foreign": 1}
    assert data["findings"][0]["file"] == "x"


def test_many_findings_are_counted_and_some_listed(whole: Path) -> None:
    for number in range(150):
        (whole / f"x{number}").touch()
    found = verified(whole)
    assert (len(found.findings), found.more, found.by_code["foreign"]) == (100, 50, 150)
