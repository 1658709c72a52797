"""What runs under the engine's Python, here with an engine of a few lines; who listens to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpatch.collect.engine import drive
from vpatch.collect.engine.drive import Backlog, Driver, lines_of
from vpatch.collect.events import Events, first_error
from vpatch.collect.prompts import digest_of
from vpatch.collect.table import Seen


class Answer:
    def __init__(self, tokens: list[int]) -> None:
        self.token_ids, self.finish_reason, self.stop_reason = tokens, "length", None


class Output:
    finished = True

    def __init__(self, number: str, prompt: list[int]) -> None:
        self.request_id, self.prompt_token_ids = f"{number}-0a1b", prompt
        self.outputs = [Answer([5])]
        self.kv_transfer_params = {"hidden_states_file": f"hs-{number}.safetensors"}


class Engine:
    """Writes a file of 100 bytes for each request; the first ones are taken away at last."""

    def __init__(self, folder: Path, patience: int) -> None:
        self.llm_engine = self
        self.folder = folder
        self.patience = patience
        self.waiting: list[tuple[str, list[int]]] = []
        self.most_waiting = self.most_files = 0

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        assert params.given["extra_args"] == {"collect_hidden_states": True, "collect_label": name}
        self.waiting.append((name, prompt["prompt_token_ids"]))
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def step(self) -> list[Output]:
        name, prompt = self.waiting.pop(0)
        (self.folder / f"hs-{name}.safetensors").write_bytes(bytes(100))
        self.most_files = max(self.most_files, len(list(self.folder.iterdir())))
        return [Output(name, prompt)]


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        self.given = given


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    vllm = ModuleType("vllm")
    vllm.SamplingParams = SamplingParams  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    (tmp_path / "staging").mkdir()
    lines = [{"id": n, "prompt_token_ids": [n, 7]} for n in range(20)]
    (tmp_path / "prompts").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "prompts": str(tmp_path / "prompts"),
        "staging": str(tmp_path / "staging"),
        "todo": [[0, 3], [5, 19]],
        "sampling": {"max_tokens": 1},
        "in_flight": 4,
        "backlog": 10**9,
    }


def run(tmp_path: Path, engine: Engine, job: dict[str, Any]) -> list[Any]:
    path = tmp_path / "events"
    with path.open("w") as stream:
        Driver(engine, job, drive.Events(stream)).run()
    return list(Events(path).more())


def test_every_prompt_is_told_once(tmp_path: Path, job: dict[str, Any]) -> None:
    engine = Engine(tmp_path / "staging", 0)
    told = run(tmp_path, engine, job)
    assert sorted(one["sample"] for one in told) == [*range(4), *range(5, 20)]
    assert engine.most_waiting == 4
    one = next(one for one in told if one["sample"] == 5)
    assert one == {
        "sample": 5,
        "id": "5",
        "file": "hs-5.safetensors",
        "prompt": 2,
        "generated": 1,
        "tokens": digest_of([5, 7]),
        "finish": "length",
    }


def test_no_prompt_is_added_while_files_wait(
    tmp_path: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = tmp_path / "staging"
    engine = Engine(staging, 0)
    slept = []

    def taken_away(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) % 3 == 0:  # whoever reads is slow
            for path in staging.iterdir():
                path.unlink()

    monkeypatch.setattr(drive, "_LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr("time.sleep", taken_away)
    job["backlog"] = 250
    told = run(tmp_path, engine, job)
    assert len(told) == 19
    assert len(slept) >= 9
    assert engine.most_files <= 3 + job["in_flight"]


def test_a_backlog_is_looked_at_now_and_then(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    backlog = Backlog(staging, 10)
    assert not backlog.full()
    (staging / "x").write_bytes(bytes(11))
    assert not backlog.full()
    backlog._until = 0.0
    assert backlog.full()


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_lines_of_the_runs_that_are_missing(missing: list[bool]) -> None:
    seen = Seen(len(missing))
    for number, one in enumerate(missing):
        seen.put(number, Seen.MISSING if one else Seen.SAMPLE)
    path = Path("prompts.jsonl")
    text = "".join(json.dumps({"n": number}) + "\n" for number in range(len(missing)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: __import__("io").BytesIO(text.encode()))
        found = list(lines_of(path, [list(run) for run in seen.runs(Seen.MISSING)]))
    assert [number for number, _ in found] == [n for n, one in enumerate(missing) if one]
    assert all(line == {"n": number} for number, line in found)


def test_events_come_whole(tmp_path: Path) -> None:
    path = tmp_path / "events"
    events = Events(path)
    assert list(events.more()) == []
    with path.open("wb") as stream:
        for part, expected in (
            (b'{"a": 1}\n{"b"', [{"a": 1}]),
            (b": 2", []),
            (b'}\nnonsense\n[1]\n\n{"c": 3}\n', [{"b": 2}, {"c": 3}]),
        ):
            stream.write(part)
            stream.flush()
            assert list(events.more()) == expected


def test_the_first_error_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert first_error(log) is None
    log.write_text("all is well\n")
    assert first_error(log) is None
    log.write_text(
        "INFO starting\n"
        "(Worker pid=7) ERROR 11-30 09:08:16 [executor.py:1007]     raise ValueError(\n"
        "(Worker pid=7) ERROR 11-30 09:08:16 [executor.py:1007] ValueError: no memory left\n"
        "(EngineCore pid=3) RuntimeError: Worker failed with error 'no memory left'\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert first_error(log) == "ValueError: no memory left"


def test_the_digest_of_the_engine_side_is_ours() -> None:
    assert drive.digest_of([1, 163_839, 0]) == digest_of([1, 163_839, 0])
