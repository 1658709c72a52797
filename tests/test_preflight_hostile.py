"""Checkpoints and commands that are not what they look like: said, never taken for one that works.

What a loader would refuse (safetensors' own rules, the types of config.json) is refused here.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight_lab import IDS, LLAMA, MLA, TARGET, header_of, preflight, weights_of, write
from vpatch.errors import FindingError, UsageError
from vpatch.gates.tree import of_installation
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.installed import version_of_python
from vpatch.preflight.strictjson import read_object
from vpatch.verbs import preflight as verb

Entries = dict[str, Any]


def _file(folder: Path, change: Callable[[Entries], Entries], behind: bytes = b"") -> Path:
    """A drafter whose file's header is another one."""
    write(folder, LLAMA, weights_of(LLAMA))
    raw, length = header_of(weights_of(LLAMA))
    header = json.dumps(change(json.loads(raw[8:]))).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + length - len(raw))
        file.seek(0, 2)
        file.write(behind)
    return folder


def _moved(by: int, *, overlap: bool = False) -> Callable[[Entries], Entries]:
    def change(entries: Entries) -> Entries:
        for name, entry in entries.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                entry["data_offsets"] = [0, end - start] if overlap else [start + by, end + by]
        return entries

    return change


def _same(entries: Entries) -> Entries:
    return entries


@pytest.mark.parametrize(
    ("change", "behind", "said"),
    [
        (_moved(0, overlap=True), b"", "overlaps"),
        (_moved(64), b"\0" * 64, "lies behind a hole"),
        (_same, b"x" * 99, "99 bytes that no weight has"),
        (lambda all_: {**all_, "__metadata__": {"a": 5}}, b"", "__metadata__"),
        (lambda all_: {**all_, "__metadata__": []}, b"", "__metadata__"),
        (lambda all_: {**all_, "norm.weight": {**all_["norm.weight"], "dtype": "FOO"}}, b"",
         "the dtype FOO"),
    ],
)  # fmt: skip
def test_a_file_that_no_loader_takes(
    tmp_path: Path, change: Callable[[Entries], Entries], behind: bytes, said: str
) -> None:
    folder = _file(tmp_path, change, behind)
    with pytest.raises(FindingError, match=said):
        read_checkpoint(str(folder), weights=True)


@pytest.mark.parametrize("header", [b"{}", b'{"__metadata__": {"format": "pt"}}'])
def test_a_checkpoint_without_weights(tmp_path: Path, header: bytes) -> None:
    write(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(FindingError, match="holds no weights"):
        read_checkpoint(str(tmp_path), weights=True)


def test_the_file_itself_is_taken(tmp_path: Path) -> None:
    assert read_checkpoint(str(_file(tmp_path, _same)), weights=True).tensors


@pytest.mark.parametrize("raw", [json.dumps({"a": 1}).encode("utf-16"),
                                 b"\xef\xbb\xbf" + b'{"a": 1}', b'{"a": "\xff"}'])  # fmt: skip
def test_json_is_utf_8_without_a_mark(raw: bytes) -> None:
    """transformers reads it so: another encoding is an error there."""
    with pytest.raises(FindingError, match="is no JSON"):
        read_object(raw, "config.json")


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": 0},
        {"num_attention_heads": "4"},
        {"num_key_value_heads": "2"},
        {"intermediate_size": "96"},
        {"head_dim": -16},
        {"target_hidden_size": "64"},
        {"draft_vocab_size": "384"},
        {"num_aux_hidden_states": 10**9},
    ],
)
def test_a_config_of_wrong_types_or_sizes(tmp_path: Path, change: Mapping[str, Any]) -> None:
    folder = write(tmp_path, {**LLAMA, **change}, weights_of(LLAMA))
    with pytest.raises(FindingError, match=f"has no usable {next(iter(change))}"):
        read_drafter(read_checkpoint(str(folder), weights=True))


@pytest.mark.parametrize("name", ["q_lora_rank", "kv_lora_rank", "qk_rope_head_dim"])
def test_a_config_of_an_mla_drafter(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, {**MLA, name: -1}, weights_of(MLA))
    with pytest.raises(FindingError, match=f"has no usable {name}"):
        read_drafter(read_checkpoint(str(folder), weights=True))


def test_what_may_be_left_out(tmp_path: Path) -> None:
    left = {"head_dim": None, "num_key_value_heads": None, "target_hidden_size": None}
    folder = write(tmp_path, {**LLAMA, **left}, weights_of(LLAMA))
    assert read_drafter(read_checkpoint(str(folder), weights=True)).hidden == 64


@pytest.mark.parametrize(("name", "dtype"), [("d2t", "BF16"), ("d2t", "F16"), ("fc.weight", "I64")])
def test_weights_of_a_type_that_says_something_else(tmp_path: Path, name: str, dtype: str) -> None:
    given = weights_of(LLAMA)
    found = preflight(
        tmp_path, LLAMA, "0.33.0", weights={**given, name: (dtype, given[name][1])}, patched=True
    )
    assert found.first is not None
    assert (found.first.effect, found.first.check) == ("wrong-result", "weights")
    assert f"{name} is {dtype}" in found.first.why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vocab_size": 256, "draft_vocab_size": 256}, "the target's tokens from 256 on"),
        ({"draft_vocab_size": 1000}, "drafts from 1000 tokens, and the target has 512"),
    ],
)
def test_vocabularies_that_cannot_be_the_targets(
    tmp_path: Path, change: Mapping[str, Any], why: str
) -> None:
    config = {**LLAMA, **change}
    own = ("lm_head", "embed_tokens")
    found = preflight(tmp_path, config, "0.33.0", weights=weights_of(config, own=own), patched=True)
    assert found.word == "wrong-result"
    assert found.first is not None
    assert found.first.check == "vocabularies"
    assert why in found.first.why


def test_a_few_tokens_more_are_padding(tmp_path: Path) -> None:
    config = {**LLAMA, "vocab_size": 576}
    weights = weights_of(config, own=("lm_head", "embed_tokens"))
    assert preflight(tmp_path, config, "0.33.0", weights=weights, patched=True).word == "works"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"method": "mtp"}', "eagle3"),
        ('{"eagle_aux_hidden_state_layers_ids": [2, 20, 50]}', IDS),
        ('{"eagle_aux_hidden_state_layer_ids": [2, NaN]}', "no JSON object"),
        ('{"eagle_aux_hidden_state_layer_ids": [2], "eagle_aux_hidden_state_layer_ids": [3]}',
         "no JSON object"),
    ],
)  # fmt: skip
def test_options_that_the_engine_takes_otherwise(given: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        verb._options(given)
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_options_of_other_things_are_left_alone() -> None:
    given = {"method": "eagle3", "model": "x", "num_speculative_tokens": 3, IDS: [2, 20, 50]}
    assert verb._options(json.dumps(given)) == given


# -- installations --------------------------------------------------------------------------------


def _python_with(folder: Path, *versions: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    ask = "import site; print(site.getsitepackages()[0])"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout
    packages = Path(told.strip())
    for version in versions:
        info = packages / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (packages / "vllm").mkdir()
    (packages / "vllm" / "__init__.py").write_text("")
    return python


def test_two_versions_in_one_python(tmp_path: Path) -> None:
    python = _python_with(tmp_path / "v", "0.17.1+kimi.3", "0.33.0")
    with pytest.raises(UsageError, match=r"0\.17\.1\+kimi\.3.*0\.33\.0"):
        version_of_python(python)


def test_a_python_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _python_with(tmp_path / "v", "0.33.0")
    monkeypatch.chdir(tmp_path)
    assert str(version_of_python(Path("v/bin/python"))) == "0.33.0"
    assert of_installation("v/bin/python").name == "0.33.0 of v/bin/python"


def test_a_target_is_read_as_before(tmp_path: Path) -> None:
    assert read_checkpoint(str(write(tmp_path, TARGET)), weights=False).config == TARGET
