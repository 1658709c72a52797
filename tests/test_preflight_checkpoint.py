"""Configs and headers from strangers: read in bounds, or refused in one sentence."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from preflight_lab import LLAMA, header_of, weights_of, write
from vpatch.errors import FindingError, UsageError
from vpatch.preflight.checkpoint import Folder, read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.target import read_target


def folder_of(tmp_path: Path) -> Path:
    return write(tmp_path / "drafter", LLAMA, weights_of(LLAMA))


def refused(folder: Path, *, kind: type[Exception] = FindingError) -> str:
    with pytest.raises(kind) as caught:
        read_checkpoint(str(folder), weights=True)
    return str(caught.value)


def test_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path)
    ends: list[int] = []
    read = Folder.read

    def listening(self: Folder, name: str, start: int, count: int) -> bytes | None:
        if name.endswith(".safetensors"):
            ends.append(start + count)
        return read(self, name, start, count)

    monkeypatch.setattr(Folder, "read", listening)
    found = read_checkpoint(str(folder), weights=True)
    raw, length = header_of(weights_of(LLAMA))
    assert max(ends) == len(raw) < length
    assert found.tensors["fc.weight"].shape == (64, 192)
    assert found.tensors["d2t"].dtype == "I64"
    assert sum(tensor.size for tensor in found.tensors.values()) == length - len(raw)


def test_several_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "drafter", LLAMA)
    parts = list(weights_of(LLAMA).items())
    names: dict[str, str] = {}
    for number, part in enumerate((parts[:4], parts[4:])):
        file = f"model-{number}-of-2.safetensors"
        raw, length = header_of(dict(part))
        (folder / file).write_bytes(raw + b"\0" * (length - len(raw)))
        names |= dict.fromkeys(dict(part), file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert read_checkpoint(str(folder), weights=True).tensors.keys() == dict(parts).keys()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b'{"a": 1, "a": 2}', "is there twice"),
        (b'{"a": NaN}', "is no JSON value"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested deeper"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b'{"a": "' + b"x" * (17 << 20) + b'"}', "more than 16 MiB"),
    ],
    ids=["empty", "bytes", "list", "twice", "nan", "deep", "deeper", "number", "large"],
)
def test_config_that_is_none(raw: bytes, said: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "config.json").write_bytes(raw)
    assert said in refused(folder)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def header(entries: object, body: int = 8) -> bytes:
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw + b"\0" * body


def tensor(**changes: Any) -> dict[str, Any]:
    return {"fc.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"1234", "ends before its header"),
        (POINTER, "its header would have"),
        (struct.pack("<Q", 1 << 20) + b"{}", "ends within its header"),
        (struct.pack("<Q", 1 << 40), "its header would have"),
        (header([]), "is no JSON object"),
        (header({"fc.weight": 1}), "is no object"),
        (header(tensor(dtype="os.system")), "has no dtype"),
        (header(tensor(shape=[-1])), "has no shape"),
        (header(tensor(shape=[True, 2])), "has no shape"),
        (header(tensor(shape=[1] * 9)), "has no shape"),
        (header(tensor(data_offsets=[8, 0])), "has no data_offsets"),
        (header(tensor(data_offsets=[0])), "has no data_offsets"),
        (header(tensor(data_offsets=[0, 4])), "has 4 bytes, not those of"),
        (header(tensor(), body=4), "lies behind the file's end"),
    ],
)
def test_header_that_is_none(raw: bytes, said: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "model.safetensors").write_bytes(raw)
    assert said in refused(folder)


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "x.bin",
        ".safetensors",
        "a\n.safetensors",
    ],
)
def test_index_that_leads_out(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    index = {"weight_map": {"fc.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "no safetensors file beside it" in refused(folder)


def test_index_that_names_too_many_or_none(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in range(1100)}}))
    assert "1100 files" in refused(folder)
    index.write_text("{}")
    assert "has no weight_map" in refused(folder)
    index.write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    assert "is not there" in refused(folder)


def test_weight_that_two_files_have(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert "which another of its files has too" in refused(folder)


def test_pipe_is_no_config(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert "has no config.json" in refused(folder, kind=UsageError)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "drafter", LLAMA)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    found = read_checkpoint(str(folder), weights=True)
    assert (found.weighed, dict(found.tensors)) == (False, {})


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "../a", "-x/y", "a/b?c"])
def test_neither_folder_nor_repository(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_checkpoint(str(tmp_path / name) if name == "nowhere" else name, weights=True)


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, True, "8", 1 << 40])
def test_config_without_numbers(field: str, value: object, tmp_path: Path) -> None:
    folder = write(tmp_path / "drafter", {**LLAMA, field: value}, weights_of(LLAMA))
    found = read_checkpoint(str(folder), weights=False)
    with pytest.raises(FindingError, match=field):
        read_drafter(found)
    model = {key: each for key, each in LLAMA.items() if key not in _ONLY_DRAFTERS}
    model |= {"architectures": ["LlamaForCausalLM"], field: value}
    folder = write(tmp_path / "target", model, weights_of(LLAMA))
    with pytest.raises(FindingError, match=field):
        read_target(read_checkpoint(str(folder), weights=False))


@pytest.mark.parametrize(
    "more",
    [
        {"architectures": ["LlamaForCausalLMEagle3"]},
        {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 8},
        {"architectures": ["LlamaForCausalLM"], "eagle_config": {}},
    ],
)
def test_a_drafter_is_no_target(more: dict[str, object], tmp_path: Path) -> None:
    bare = {key: value for key, value in LLAMA.items() if key not in _ONLY_DRAFTERS}
    folder = write(tmp_path / "drafter", {**bare, **more}, weights_of(LLAMA))
    with pytest.raises(FindingError, match="is a drafter's") as caught:
        read_target(read_checkpoint(str(folder), weights=False))
    assert caught.value.code == "drafter-as-target"


def test_a_model_of_a_drafters_family_may_be_a_target(tmp_path: Path) -> None:
    bare = {key: value for key, value in LLAMA.items() if key not in _ONLY_DRAFTERS}
    config = {**bare, "architectures": ["LlamaForCausalLM"]}
    folder = write(tmp_path / "target", config, weights_of(LLAMA))
    assert read_target(read_checkpoint(str(folder), weights=False)).layers > 0


_ONLY_DRAFTERS = ("draft_vocab_size", "eagle_config", "speculators_config")
