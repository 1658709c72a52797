"""`vpatch collect --verify` of a server's folder: whole files are, and each wrong one is named."""

from __future__ import annotations

import io
import json
import random
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from collect_lab import HIDDEN, answer_of, make_set, sample_file, states_of, tokens_of
from vpatch.collect import reading
from vpatch.collect.place import Folder, Place, place_of
from vpatch.collect.served import Served, read_served
from vpatch.collect.verify_served import Found, is_served, verify_served
from vpatch.errors import UsageError
from vpatch.progress import SilentProgress
from vpatch.verbs import collect_verify

ENGINE, OTHER = "hs-0a1b2c3d-0", "hs-99887766-1"
COUNT = 5


def file_of(number: int, **changes: Any) -> bytes:
    """What the engine writes for a request of a server."""
    served = {
        "model": "/models/kimi",
        "last_token_id": "9",
        "finish_reason": "length",
        "request_id": f"cmpl-{number}",
        "label": f"sample {number}",
    }
    return sample_file(number, **{**served, **changes})


def put(folder: Path, number: int, data: bytes | None = None, engine: str = ENGINE) -> Path:
    path = folder / f"{engine}-{number:08}.safetensors"
    path.write_bytes(file_of(number) if data is None else data)
    return path


def put_note(folder: Path, number: int, engine: str = ENGINE, **changes: object) -> None:
    note = {"request_id": f"cmpl-{number}", "label": "", "error": "no space left", **changes}
    (folder / f"{engine}-{number:08}.error.json").write_text(json.dumps(note))


@pytest.fixture
def served(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    for number in range(COUNT):
        put(folder, number)
    return folder


def verified(folder: Path, jobs: int = 1) -> Found:
    assert is_served(Folder(folder))
    return verify_served(Folder(folder), SilentProgress(), jobs=jobs)


def said(folder: Path) -> str:
    return "\n".join(map(str, verified(folder).findings))


def run(folder: Path) -> tuple[int, str]:
    """The verb's exit code, and what it says to people."""
    report = collect_verify.run(str(folder), SilentProgress(), 1)
    console = Console(width=1000, record=True, quiet=False, file=io.StringIO())
    console.print(report.text)
    return report.exit_code, console.export_text()


def test_whole_files_are_whole(served: Path) -> None:
    put(served, 0, engine=OTHER)
    found = verified(served)
    assert not found.findings
    first, second = found.engines
    assert (first.name, len(first.files), first.untold) == (ENGINE, COUNT, 0)
    assert first.rows == sum(len(tokens_of(n) + answer_of(n)) - 1 for n in range(COUNT))
    assert first.bytes == sum(one.stat().st_size for one in served.glob(f"{ENGINE}*"))
    assert (second.name, len(second.files)) == (OTHER, 1)
    code, text = run(served)
    assert code == 0
    assert "each file is whole: 6 files" in text
    assert "BF16 [2, 4], layers 1, 3, " in text
    assert "not known: which requests were asked for" in text


def test_json_says_what_cannot_be_known(served: Path) -> None:
    put_note(served, 9, label="sample 9")
    report = collect_verify.run(str(served), SilentProgress(), 1)
    data = json.loads(report.to_json())
    assert (data["schema"], data["ok"], report.exit_code) == ("vpatch/collect/1", True, 0)
    assert (data["kind"], data["complete"]) == ("served", None)
    assert any("asked for" in one for one in data["unknown"])
    (engine,) = data["engines"]
    assert (engine["numbered"], engine["files"], engine["failed"], engine["untold"]) == (
        10,
        COUNT,
        1,
        10 - COUNT - 1,
    )
    assert data["failures"] == [
        {
            "file": f"{ENGINE}-00000009.error.json",
            "id": "cmpl-9",
            "label": "sample 9",
            "reason": "no space left",
        }
    ]


def test_numbers_without_anything_are_told(served: Path) -> None:
    (served / f"{ENGINE}-00000002.safetensors").unlink()
    code, text = run(served)
    assert code == 0
    assert f"of {COUNT} numbered requests 1 left nothing" in text


def test_failed_requests_are_named(served: Path) -> None:
    put_note(served, 7, label="sample 7")
    code, text = run(served)
    assert code == 0
    assert "00000007.error.json: request cmpl-7 (sample 7) failed: no space left" in text
    assert "5 files, 1 failed" in text


def test_a_note_beside_a_whole_file(served: Path) -> None:
    put_note(served, 3)
    found = verified(served)
    assert [one.code for one in found.findings] == ["double"]
    assert found.findings[0].file == f"{ENGINE}-00000003.safetensors"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"request_id": "a", "label": "", "error": ""}', '{"a": NaN}']
)
def test_a_note_that_is_none(served: Path, text: str) -> None:
    (served / f"{ENGINE}-00000007.error.json").write_text(text)
    assert "00000007.error.json: " in said(served)
    assert [one.code for one in verified(served).findings] == ["note"]


@pytest.mark.parametrize("end", ["safetensors.tmp", "safetensors.last.tmp"])
def test_a_part_of_a_file(served: Path, end: str) -> None:
    (served / f".{ENGINE}-00000005.{end}").write_bytes(bytes(5000))
    found = verified(served)
    assert [one.code for one in found.findings] == ["unfinished"]
    assert found.engines[0].untold == 0
    assert run(served)[0] == 1


WRONG = [
    ("metadata", {"prompt_tokens": None}, "prompt_tokens in its header is missing"),
    ("metadata", {"prompt_tokens": "0"}, "no number that can be"),
    ("metadata", {"generated_tokens": "-1"}, "no number that can be"),
    ("metadata", {"last_token_id": "x"}, "no number that can be"),
    ("metadata", {"finish_reason": "abort"}, "is 'abort', none of stop"),
    ("metadata", {"request_id": ""}, "request_id"),
    ("metadata", {"label": None}, "label in its header is missing"),
    ("metadata", {"layers": "[3, 1]"}, "no list of ascending ids"),
    ("metadata", {"layers": "[" * 500}, "no list of ascending ids"),
    ("metadata", {"last": "raw"}, "not normed"),
    ("format", {"format": "vllm-hidden-states/2"}, "not vllm-hidden-states/1"),
    ("layers", {"layers": "[1, 3, 5]"}, "has 2 layers, and says that they are [1, 3, 5]"),
    ("tensors", {"last": "normed"}, "lacks the tensor 'last_hidden_states'"),
    ("tensors", {"tensors": {"more": ("U8", (1,), b"1")}}, "a tensor 'more'"),
    ("shape", {"generated_tokens": "7"}, "not BF16 [8, 2, 4]"),
]


@pytest.mark.parametrize(("code", "changes", "text"), WRONG)
def test_what_a_header_says_wrongly(
    served: Path, code: str, changes: dict[str, Any], text: str
) -> None:
    put(served, 1, file_of(1, **changes))
    found = verified(served)
    assert code in {one.code for one in found.findings}
    assert {one.file for one in found.findings} == {f"{ENGINE}-00000001.safetensors"}
    assert text in said(served)


def test_any_bytes_are_whole_or_named(tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 - numbers, no secrets
    raw = file_of(1)
    path = put(tmp_path, 1)
    place = Folder(tmp_path)
    named = 0
    for _ in range(400):
        changed = bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            # Rather in the header: what states are, no checksum tells.
            changed[chance.randrange(len(raw) // 2)] = chance.randrange(256)
        path.write_bytes(bytes(changed))
        served = read_served(place, path.name)
        assert served.size == len(raw)
        named += bool(served.findings)
    assert named > 200


@pytest.mark.parametrize("cut", [3, 100, -9, -1])
def test_a_file_that_ends_early(served: Path, cut: int) -> None:
    path = put(served, 1)
    path.write_bytes(path.read_bytes()[:cut])
    assert [one.code for one in verified(served).findings] == ["header"]


def test_numbers_that_are_none(served: Path) -> None:
    rows = len(tokens_of(1) + answer_of(1)) - 1
    nan = struct.pack("<H", 0x7FC0) + states_of(1, rows)[2:]
    put(served, 1, file_of(1, tensors={"hidden_states": ("BF16", (rows, 2, HIDDEN), nan)}))
    zero = bytes(len(nan))
    put(served, 3, file_of(1, tensors={"hidden_states": ("BF16", (rows, 2, HIDDEN), zero)}))
    found = verified(served)
    assert {one.code for one in found.findings} == {"not-finite", "empty-row"}


def test_token_ids_that_are_none(served: Path) -> None:
    rows = len(tokens_of(1) + answer_of(1)) - 1
    tokens = struct.pack(f"<{rows}q", *[5, *[-1] * (rows - 1)])
    put(served, 1, file_of(1, tensors={"token_ids": ("I64", (rows,), tokens)}))
    assert "has an id below 0, the first is row 1 [tokens]" in said(served)


def test_two_files_of_a_request(served: Path) -> None:
    put(served, 6, file_of(0))
    found = verified(served)
    assert [one.code for one in found.findings] == ["double"]
    assert found.findings[0].file == f"{ENGINE}-00000006.safetensors"


def test_a_request_that_was_asked_again_is_no_error(served: Path) -> None:
    """Another engine may count its requests alike; a client may ask twice."""
    put(served, 0, engine=OTHER)
    put(served, 6, file_of(0, request_id="cmpl-6"))
    found = verified(served)
    assert not found.findings
    assert found.repeated == 2
    assert "2 files with label and prompt of another one" in run(served)[1]


def test_files_of_one_engine_are_alike(served: Path) -> None:
    rows = len(tokens_of(4) + answer_of(4)) - 1
    other = {"hidden_states": ("F16", (rows, 2, HIDDEN), states_of(4, rows))}
    put(served, 4, file_of(4, tensors=other))
    assert "is F16 [2, 4], layers 1, 3, and hs-" in said(served)
    put(served, 4)
    put(served, 4, file_of(4, tensors=other), engine=OTHER)
    found = verified(served)
    assert not found.findings
    assert "BF16 [2, 4], layers 1, 3; F16 [2, 4], layers 1, 3" in run(served)[1]


def test_the_normed_last_state(tmp_path: Path) -> None:
    rows = len(tokens_of(1) + answer_of(1)) - 1
    last = {"last_hidden_states": ("BF16", (rows, HIDDEN), states_of(2, rows, 1))}
    put(tmp_path, 1, file_of(1, tensors=last, last="normed"))
    assert not verified(tmp_path).findings
    assert "and the normed last state" in run(tmp_path)[1]
    put(tmp_path, 1, file_of(1, tensors=last))
    assert "a tensor 'last_hidden_states' that does not belong" in said(tmp_path)


def test_what_no_server_writes(served: Path) -> None:
    (served / "model.safetensors").write_bytes(b"")
    (served / "log.txt").write_text("")
    link = served / f"{ENGINE}-00000008.safetensors"
    link.symlink_to(served / f"{ENGINE}-00000000.safetensors")
    found = verified(served)
    assert {(one.file, one.code) for one in found.findings} == {
        ("model.safetensors", "foreign"),
        (link.name, "no-file"),
    }
    assert found.others == 1


def test_processes_say_the_same(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(served, 1, file_of(1, layers="[1, 3, 5]"))
    alone = verified(served)
    monkeypatch.setattr(reading, "_WORTH_PROCESSES", 0)
    beside = verified(served, jobs=2)
    assert beside.findings == alone.findings
    assert beside.engines == alone.engines


def test_files_are_told_of_in_their_order(tmp_path: Path) -> None:
    """The one that the others are held against is the first by name, not by luck."""
    place = place_of(f"memory://order-{tmp_path.name}")
    second_is_read = threading.Event()

    def look(_: Place, name: str) -> Served:
        if name == "1":
            assert second_is_read.wait(30)
        elif name == "2":
            second_is_read.set()
        return Served(name, 0, 0, None, None, None, ())

    told: list[str] = []
    names = iter("123456789")
    hear = told.append
    reading.run_jobs(names, look, place, 2, 1 << 40, lambda one: hear(one.file), lambda _: None)
    assert told == list("123456789")


def test_a_url(served: Path) -> None:
    place = place_of(f"memory://served-{served.parent.name}")
    for path in served.iterdir():
        place.put(path.read_bytes(), path.name)
    assert is_served(place)
    found = verify_served(place, SilentProgress(), jobs=1)
    assert not found.findings
    assert len(found.engines[0].files) == COUNT


def test_what_is_a_set_is_verified_as_one(tmp_path: Path) -> None:
    make_set(Folder(tmp_path / "set"), tmp_path / "scratch")
    assert not is_served(Folder(tmp_path / "set"))
    put(tmp_path / "set", 1)
    assert "00000001.safetensors: does not belong to the set" in run(tmp_path / "set")[1]


def test_a_folder_of_neither(tmp_path: Path) -> None:
    (tmp_path / "hs_1.safetensors").write_bytes(b"")
    assert not is_served(Folder(tmp_path))
    with pytest.raises(UsageError, match="is no set") as caught:
        run(tmp_path)
    assert caught.value.exit_code == 2
    assert "--hidden-states-collection" in caught.value.hint
