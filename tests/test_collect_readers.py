"""Readers of what strangers wrote: prompts, safetensors headers, rows, lines. Refused or exact."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import struct
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collect_lab import (
    HIDDEN,
    LAYERS,
    answer_of,
    safetensors,
    sample_file,
    states_of,
    tokens_of,
    with_header,
)
from vpatch.collect import prompts as prompts_module
from vpatch.collect.blocks import Block, read_blocks
from vpatch.collect.content import Content, Wanted, read_content
from vpatch.collect.file import Shape
from vpatch.collect.lines import Failed, Line, Sample, Shard, line_of, parse_line
from vpatch.collect.options import read_layers, read_size
from vpatch.collect.prompts import Prompt, digest_of, read_prompts
from vpatch.collect.rows import NUMBERS, Rows
from vpatch.errors import FindingError, UsageError
from vpatch.findings import Finding

# prompts


def read(data: bytes, most: int | None = None) -> list[Prompt]:
    return list(read_prompts(io.BytesIO(data), "p.jsonl", most))


def refused(data: bytes) -> str:
    with pytest.raises(UsageError) as caught:
        read(data)
    assert caught.value.exit_code == 2
    assert caught.value.code == "bad-prompts"
    return caught.value.message


def test_prompts_of_all_kinds() -> None:
    data = (
        b'\xef\xbb\xbf{"id": "a", "prompt": "text"}\r\n\n'
        b'{"id": 7, "prompt": [1, 2], "more": {"x": [1]}}\n'
        b'  {"id": "c", "prompt_token_ids": [3], "max_tokens": 4}  \n'
        b'{"id": "d", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}'
    )
    found = read(data)
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert [one.id for one in found] == ["a", "7", "c", "d"]
    assert [one.kind for one in found] == ["text", "tokens", "tokens", "messages"]
    assert [None if one.tokens is None else list(one.tokens) for one in found] == [
        None,
        [1, 2],
        [3],
        None,
    ]
    assert json.loads(found[0].raw)["prompt"] == "text"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "p.jsonl:1 is no JSON"),
        (b"[1]", "p.jsonl:1 is no JSON object"),
        (b"\xff", "p.jsonl:1 is no JSON"),
        (b'{"prompt": NaN}', "NaN is no JSON value"),
        (b'{"prompt": "a", "prompt": "b"}', "is there twice"),
        (b"{}", "and has none of them"),
        (b'{"prompt": "a", "messages": []}', "and has prompt and messages"),
        (b'{"prompt": ""}', "has a prompt that is no text"),
        (b'{"prompt": "\\ud800"}', "half a character"),
        (b'{"prompt": []}', "without token ids"),
        (b'{"prompt": [1.0]}', "1.0, which is no token id"),
        (b'{"prompt": [true]}', "True, which is no token id"),
        (b'{"prompt": [-1]}', "-1, which is no token id"),
        (b'{"prompt": [99999999999]}', "which is no token id"),
        (b'{"prompt_token_ids": "text"}', "without token ids"),
        (b'{"prompt": null}', "without token ids"),
        (b'{"messages": {}}', "no list"),
        (b'{"messages": []}', "no list"),
        (b'{"messages": [{"content": "x"}]}', "without a role"),
        (b'{"messages": [{"role": "user"}]}', "has a content that is no text"),
        (
            b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "only texts are collected",
        ),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens 0"),
        (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens '5'"),
        (b'{"prompt": "a", "id": ""}', "has an id"),
        (b'{"prompt": "a", "id": 1.5}', "has an id"),
        (b'{"prompt": "a", "id": "%s"}' % (b"x" * 201), "has an id"),
        (b'{"prompt": ' + b"[" * 100_000, "is no JSON"),
    ],
)
def test_a_line_that_is_no_prompt(line: bytes, why: str) -> None:
    assert why in refused(line + b"\n")
    assert "p.jsonl:3 " in refused(b'{"prompt": "ok"}\n\n' + line)


def test_ids_are_there_for_all_or_none_and_once() -> None:
    one, other, none = b'{"id":"1","prompt":"a"}\n', b'{"id":2,"prompt":"a"}\n', b'{"prompt":"a"}\n'
    assert "p.jsonl:2 has no id, and the lines before it have one" in refused(one + none)
    assert "p.jsonl:2 has an id, and the lines before it have none" in refused(none + one)
    assert "p.jsonl:3 has the id 1 of a line before it" in refused(
        one + other + b'{"id":1,"prompt":"b"}'
    ).replace("'", "")
    assert len(read(one + other)) == 2


def test_a_line_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, "LONGEST_LINE", 40)
    assert "p.jsonl:2 is longer than 40 bytes" in refused(
        b'{"prompt": "a"}\n{"prompt": "' + b"a" * 40 + b'"}\n'
    )


def test_more_token_ids_than_a_prompt_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, "_MOST_IDS", 2)
    assert "has a prompt of 3 token ids" in refused(b'{"prompt": [1, 2, 3]}')


def test_only_what_is_wanted_is_read() -> None:
    assert len(read(b'{"prompt": "a"}\n{"prompt": "b"}\nnonsense\n', 2)) == 2


def test_long_files_take_no_memory() -> None:
    line = b'{"prompt": "%s"}\n' % (b"a" * 100_000)

    class Endless(io.RawIOBase):
        left = 300

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.left:
                return 0
            self.left -= 1
            data = line[: len(buffer)]
            buffer[: len(data)] = data
            return len(data)

    tracemalloc.start()
    count = sum(1 for _ in read_prompts(io.BufferedReader(Endless(), len(line)), "p"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 300
    assert peak < 3_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["prompt", "prompt_token_ids", "messages", "id", "max_tokens", "role", "content"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON.map(json.dumps).map(str.encode) | st.binary(max_size=30), max_size=4))
def test_any_lines_are_prompts_or_refused(lines: list[bytes]) -> None:
    with contextlib.suppress(UsageError):
        for prompt in read(b"\n".join(lines)):
            assert (prompt.tokens is not None) == (prompt.kind == "tokens")
            assert b"\n" not in prompt.raw


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_the_digest_is_that_of_the_files_bytes(tokens: list[int]) -> None:
    raw = struct.pack(f"<{len(tokens)}q", *tokens)
    assert digest_of(tokens) == hashlib.sha256(raw).hexdigest()


# rows

FORMATS = {"BF16": ("H", 2), "F16": ("H", 2), "F32": ("I", 4), "F8_E4M3": ("B", 1)}


def is_finite(dtype: str, bits: int) -> bool:
    """By arithmetic, where the code looks at bytes."""
    if dtype == "F8_E4M3":
        return bits & 0x7F != 0x7F
    if dtype == "F16":
        return math.isfinite(struct.unpack("<e", struct.pack("<H", bits))[0])
    word = bits << 16 if dtype == "BF16" else bits
    return math.isfinite(struct.unpack("<f", struct.pack("<I", word))[0])


@given(st.data())
def test_rows_that_are_not_finite_or_empty(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(sorted(FORMATS)))
    code, size = FORMATS[dtype]
    most = 2 ** (8 * size) - 1
    edges = {
        "BF16": [0x7F80, 0x7F7F, 0xFF80, 0x7FC0, 0x7F00, 0x80],
        "F16": [0x7C00, 0x7BFF, 0xFC01, 0x7E00],
        "F32": [0x7F800000, 0x7F7FFFFF, 0xFFC00000, 0x7F000000],
        "F8_E4M3": [0x7F, 0xFF, 0x7E, 0xFE],
    }[dtype]
    number = st.just(0) | st.sampled_from(edges) | st.integers(0, most)
    width = data.draw(st.integers(1, 5))
    rows = data.draw(st.lists(st.lists(number, min_size=width, max_size=width), max_size=9))
    looks = Rows(dtype, width * size)
    cut = data.draw(st.integers(0, len(rows)))
    for part in (rows[:cut], rows[cut:]):
        numbers = [one for row in part for one in row]
        looks.feed(struct.pack(f"<{len(numbers)}{code}", *numbers))
    wrong = [at for at, row in enumerate(rows) if not all(is_finite(dtype, n) for n in row)]
    empty = [at for at, row in enumerate(rows) if not any(row)]
    assert (looks.wrong, looks.first) == (len(wrong), wrong[0] if wrong else None)
    assert (looks.empty, looks.first_empty) == (len(empty), empty[0] if empty else None)


def test_e5m2_ends_earlier() -> None:
    looks = Rows("F8_E5M2", 1)
    looks.feed(bytes([0x7B, 0x7C, 0x7F, 0xFC, 0xFB, 0x3C]))
    assert (looks.wrong, looks.first) == (3, 1)
    assert set(NUMBERS) == {*FORMATS, "F8_E5M2"}


# files of a set


def wanted(number: int = 1, **changes: Any) -> Wanted:
    prompt, answer = tokens_of(number), answer_of(number)
    sample = Sample(
        number,
        None,
        f"hs_{number}.safetensors",
        len(prompt),
        len(answer),
        digest_of((prompt + answer)[:-1]),
        "stop",
        0,
        "",
    )
    return Wanted(sample, changes.get("digest", digest_of(prompt)))


def content(data: bytes, size: int | None = None, layers: Sequence[int] = LAYERS) -> Content:
    return read_content(
        io.BytesIO(data),
        len(data) if size is None else size,
        "f",
        [wanted()],
        shape=None,
        shard=False,
        norm=False,
        layers=layers,
    )


def test_a_good_file() -> None:
    data = sample_file(1)
    found = content(data)
    assert not found.findings
    assert found.shape == Shape("BF16", len(LAYERS), HIDDEN)
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.metadata["label"] == "1"


def test_int32_token_ids() -> None:
    tokens = (tokens_of(1) + answer_of(1))[:-1]
    raw = struct.pack(f"<{len(tokens)}i", *tokens)
    assert not content(sample_file(1, tensors={"token_ids": ("I32", (len(tokens),), raw)})).findings


ROWS = len(tokens_of(1) + answer_of(1)) - 1
STATES = ROWS * len(LAYERS) * HIDDEN * 2


def header(**changes: Any) -> dict[str, Any]:
    return {
        "hidden_states": {
            "dtype": "BF16",
            "shape": [ROWS, len(LAYERS), HIDDEN],
            "data_offsets": [0, STATES],
        },
        "token_ids": {
            "dtype": "I64",
            "shape": [ROWS],
            "data_offsets": [STATES, STATES + ROWS * 8],
        },
        **changes,
    }


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


BODY = sample_file(1)[-(STATES + ROWS * 8) :]


def test_the_header_of_this_test_is_good() -> None:
    assert not content(with_header(header(), BODY)).findings


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff" * 8, "its header would have"),
        (struct.pack("<Q", 1 << 30) + b"{}", "its header would have"),
        (struct.pack("<Q", 100) + b"{}", "ends within its header"),
        (with_header(b"[]"), "no JSON object"),
        (with_header(b"\x80"), "is no JSON"),
        (with_header(b'{"a":' * 1000), "is no JSON"),
        (with_header(header(token_ids=entry("I64", [ROWS], 0, ROWS * 8)), BODY), "overlaps"),
        (
            with_header(
                header(token_ids=entry("I64", [ROWS], STATES + 8, STATES + 8 + ROWS * 8)),
                BODY + b"0" * 8,
            ),
            "lies behind a hole",
        ),
        (
            with_header(header(token_ids=entry("I64", [ROWS], STATES, STATES + 7)), BODY),
            "not those of I64",
        ),
        (
            with_header(header(hidden_states=entry("BF16", [1 << 40, 1 << 40], 0, STATES)), BODY),
            "not those of BF16",
        ),
        (
            with_header(
                header(token_ids=entry("I64", [ROWS], 1 << 60, (1 << 60) + ROWS * 8)), BODY
            ),
            "no data_offsets",
        ),
        (with_header(header(token_ids=entry("I64", [-1], 0, 0)), BODY), "has no shape"),
        (with_header(header(token_ids=entry("I64", [ROWS], 9, 1)), BODY), "no data_offsets"),
        (with_header(header(__metadata__=[]), BODY), "no object of texts"),
        (with_header(header(__metadata__={"a": {}}), BODY), "no object of texts"),
        (with_header(header(), BODY + b"more"), "that no weight has"),
        (with_header(header(), BODY[:-1]), "lies behind the file's end"),
        (
            with_header(b'{"a": 1, ' + json.dumps(header()).encode()[1:-1] + b', "a": 2}'),
            "is there twice",
        ),
    ],
)
def test_a_header_that_lies(data: bytes, why: str) -> None:
    (found,) = content(data).findings
    assert (found.code, found.file) == ("header", "f")
    assert why in found.message


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"hidden_states": ("BF16", (ROWS, 8), states_of(1, ROWS))}, "no states [tokens"),
        ({"hidden_states": ("I16", (ROWS, 2, HIDDEN), states_of(1, ROWS))}, "no states [tokens"),
        ({"hidden_states": ("BF16", (ROWS, 1, 8), states_of(1, ROWS))}, "has 1 layers, not 2"),
        ({"hidden_states": ("BF16", (ROWS - 1, 2, HIDDEN), states_of(1, ROWS - 1))}, "not BF16 ["),
        ({"hidden_states": ("BF16", (ROWS, 2, 0), b"")}, "a row of hidden_states has 0 bytes"),
        ({"token_ids": ("F64", (ROWS,), b"0" * 8 * ROWS)}, "not int64"),
        ({"token_ids": ("I64", (ROWS, 1), b"0" * 8 * ROWS)}, "not int64"),
    ],
)
def test_tensors_that_are_no_sample(tensors: Any, why: str) -> None:
    assert why in content(sample_file(1, tensors=tensors)).findings[0].message


def test_a_file_that_becomes_shorter_while_it_is_read() -> None:
    data = sample_file(1)
    found = content(data[:-20], size=len(data))
    assert {one.code for one in found.findings} == {"header", "size"}


def test_more_token_ids_than_memory_should_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vpatch.collect.file._MOST_TOKENS", ROWS - 1)
    assert f"has {ROWS} token ids" in content(sample_file(1)).findings[0].message


def test_a_large_file_takes_no_memory() -> None:
    rows, width = ROWS, 1 << 20
    data = states_of(1, 1, hidden=1) * (rows * width // 2)
    tokens = (tokens_of(1) + answer_of(1))[:-1]
    whole = safetensors(
        {
            "hidden_states": ("BF16", (rows, 2, width // 2), data),
            "token_ids": ("I64", (rows,), struct.pack(f"<{rows}q", *tokens)),
        }
    )
    stream = io.BytesIO(whole)
    tracemalloc.start()
    found = read_content(
        stream,
        len(whole),
        "f",
        [wanted()],
        shape=None,
        shard=False,
        norm=False,
        layers=LAYERS,
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not found.findings
    assert peak < 12 << 20 < 3 * len(whole)


def mutated(base: bytes) -> st.SearchStrategy[bytes]:
    """A good file with some bytes changed, cut or added; most of them in its header."""
    at = st.integers(0, len(base) - 1) | st.integers(0, 420)

    def change(edits: list[tuple[int, bytes, int]]) -> bytes:
        data = bytearray(base)
        for place, new, cut in edits:
            data[place : place + cut] = new
        return bytes(data)

    edit = st.tuples(at, st.binary(max_size=9), st.integers(0, 9))
    return st.lists(edit, min_size=1, max_size=4).map(change)


@given(mutated(sample_file(1)) | st.binary(max_size=60))
def test_any_other_file_is_found_out_or_is_the_same_sample(data: bytes) -> None:
    found = content(data)
    assert found.size == len(data)
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    if not found.findings:
        assert found.shape == Shape("BF16", len(LAYERS), HIDDEN)
        assert data[-ROWS * 8 :] == BODY[-ROWS * 8 :] or BODY[STATES:] in data


@given(JSON | st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.binary(max_size=40))
def test_any_header_is_found_out(said: Any, body: bytes) -> None:
    assert content(with_header(json.dumps(said).encode(), body)).findings


# lines of samples.jsonl

LINES: Sequence[Line] = [
    Sample(3, "a", "hs_3.safetensors", 5, 2, "0" * 64, "stop", 100, "1" * 64),
    Sample(3, None, "shard-000001.safetensors", 5, 2, "0" * 64, "stop", None, None),
    Failed(3, "a", "why not"),
    Shard("shard-000001.safetensors", 9, "2" * 64, 3),
]


@pytest.mark.parametrize("line", LINES)
def test_lines_are_read_as_they_were_written(line: Any) -> None:
    assert parse_line(line_of(line), "l") == line


@pytest.mark.parametrize(
    ("line", "changes", "why"),
    [
        (0, {"id": 5}, "has an id that is no text"),
        (0, {"sample": -1}, "has no sample"),
        (0, {"sample": True}, "has no sample"),
        (0, {"sample": 10**9}, "has no sample"),
        (0, {"file": "hs_4.safetensors"}, "where hs_3.safetensors or a shard would be"),
        (0, {"file": "../hs_3.safetensors"}, "where hs_3.safetensors or a shard would be"),
        (0, {"file": "shard-1.safetensors"}, "where hs_3.safetensors or a shard would be"),
        (0, {"file": ["hs_3.safetensors"]}, "has no file"),
        (0, {"prompt": 0}, "counts no token"),
        (0, {"generated": 0}, "counts no token"),
        (0, {"generated": 1 << 40}, "has no generated"),
        (0, {"size": 1 << 60}, "has no size"),
        (0, {"sha256": "A" * 64}, "has no sha256"),
        (0, {"tokens": None}, "has no tokens"),
        (0, {"finish": "x" * 3000}, "has no finish"),
        (2, {"failed": ""}, "has no failed"),
        (3, {"shard": "hs_1.safetensors"}, "which is no shard"),
        (3, {"shard": "shard-000001.safetensors/../x"}, "which is no shard"),
        (3, {"samples": "3"}, "has no samples"),
    ],
)
def test_a_line_with_one_wrong_thing(line: int, changes: dict[str, Any], why: str) -> None:
    fields = {**json.loads(line_of(LINES[line])), **changes}
    with pytest.raises(FindingError, match=why):
        parse_line(json.dumps(fields).encode(), "l")


@given(st.sampled_from(LINES), st.data())
def test_lines_that_are_none(line: Any, data: st.DataObject) -> None:
    fields = json.loads(line_of(line))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(JSON)
    with contextlib.suppress(FindingError):
        parse_line(json.dumps(fields).encode(), "l")


def test_blocks() -> None:
    own, inner, failed, shard = LINES[0], LINES[1], LINES[2], "shard-000001.safetensors"
    told: list[Finding] = []
    lines: list[Line] = [own, failed, Shard(shard, 9, "2" * 64, 1), inner, inner]
    data = b"".join(line_of(one) for one in lines)
    found = list(read_blocks(io.BytesIO(data), told.append))
    assert [one.file if isinstance(one, Block) else one[1] for one in found] == [
        "hs_3.safetensors",
        failed,
        shard,
    ]
    assert [one.line for one in told] == [5]


# options


@pytest.mark.parametrize(
    ("text", "size"),
    [("5", 5), ("5B", 5), ("2kB", 2000), ("2K", 2000), ("4GiB", 4 << 30), ("1TiB", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size("--x", text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "5X", "5iB", "G", "99999999999"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UsageError):
        read_size("--x", text)


def test_layers() -> None:
    assert read_layers("2, 30,58") == (2, 30, 58)
    with pytest.raises(UsageError) as caught:
        read_layers("30,2,2")
    assert caught.value.hint == "--layers 2,30"
