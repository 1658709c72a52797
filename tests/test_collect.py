"""`vpatch collect` as a command: real child processes, and a package vllm in vLLM's place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collect_lab import names, tokens_of, write_prompts, write_vllm
from vpatch.errors import HostError
from vpatch.preflight.headers import read_whole_header
from vpatch.progress import SilentProgress
from vpatch.smoke.environment import Environment
from vpatch.smoke.origin import Origin
from vpatch.talk import ConsoleTally
from vpatch.verbs import collect as verb


class Lab:
    """A machine with a checkpoint, prompts and a Python that has vLLM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = write_vllm(folder / "site")
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.prompts = folder / "prompts.jsonl"
        self.set = folder / "sets" / "one"

    def command(self, *more: str, chaos: dict[str, Any] | None = None) -> list[str]:
        given = ["--option", f"chaos={json.dumps(chaos)}"] if chaos is not None else []
        words = ["collect", str(self.model), "--prompts", str(self.prompts)]
        words += ["--out", str(self.set), "--layers", "1,3", "--device", "cpu"]
        words += ["--installed", sys.executable]
        return [sys.executable, "-m", "vpatch", *words, *given, *more]

    def environ(self) -> dict[str, str]:
        tools = [one for one in sys.path if (Path(one) / "vpatch").is_dir()]
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.site), *tools])}

    def run(self, *more: str, chaos: dict[str, Any] | None = None) -> Any:
        """Returns the JSON object, with the exit code and the talk in it."""
        ran = subprocess.run(
            [*self.command(*more, chaos=chaos), "--json"],
            env=self.environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        return {
            "complete": None,
            **json.loads(ran.stdout),
            "exit": ran.returncode,
            "talk": ran.stderr,
        }

    def written(self) -> list[str]:
        """Labels of the files that the engine wrote, in order."""
        return (self.folder / "sets" / "written").read_text().split()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path / "lab")
    write_prompts(made.prompts, 6)
    return made


def names_of(lab: Lab) -> set[str]:
    return {one.name for one in lab.set.iterdir()}


def test_a_set_is_collected_and_proven(lab: Lab) -> None:
    found = lab.run("--max-tokens", "3")
    assert (found["exit"], found["ok"], found["complete"]) == (0, True, True), found
    assert (found["samples"], found["failed"], found["new_samples"]) == (6, 0, 6)
    assert found["rows"] == sum(len(tokens_of(number)) + 2 for number in range(6))
    assert found["vllm"] == "0.26.0+kimi.9"
    assert names_of(lab) == names(6)
    assert "the engine is ready after" in found["talk"]
    assert "[6/6]" in found["talk"]


def test_one_token_is_generated_where_nobody_asks_for_more(lab: Lab) -> None:
    assert lab.run()["rows"] == sum(len(tokens_of(number)) for number in range(6))


def test_shards(lab: Lab) -> None:
    found = lab.run("--max-tokens", "3", "--shard-size", "5kB")
    assert (found["complete"], found["layout"], found["samples"]) == (True, "shards", 6), found
    assert 1 < found["files"] < 6
    assert not [name for name in names_of(lab) if name.startswith("hs_")]


@pytest.mark.parametrize("more", [[], ["--shard-size", "5kB"]], ids=["files", "shards"])
def test_normed_last_states(lab: Lab, more: list[str]) -> None:
    found = lab.run("--max-tokens", "3", "--normed-last", *more)
    assert (found["complete"], found["samples"], found["norm"]) == (True, 6, True), found
    path = next(lab.set.glob("*.safetensors"))
    with path.open("rb") as stream:
        header = read_whole_header(lambda _, count: stream.read(count), path.stat().st_size, "f")
    last = [one for one in header.tensors.values() if one.name.startswith("last_hidden_states")]
    assert last
    assert all(one.dtype == "BF16" and one.shape[1:] == (4,) for one in last)
    with path.open("r+b") as stream:  # Inf, in the last row of one of them
        stream.seek(header.end + last[-1].start + last[-1].size - 2)
        stream.write(b"\x80\x7f")
    found = lab.run("--max-tokens", "3", "--normed-last", "--resume", *more)
    assert found["exit"] == 1
    assert set(found["findings_by_code"]) == {"checksum", "not-finite"}, found
    found = lab.run("--max-tokens", "3", "--resume", *more)
    assert (found["exit"], found["error"]["code"]) == (2, "other-set"), found


def test_last_states_that_are_not_normed(lab: Lab) -> None:
    found = lab.run("--normed-last", chaos={"last": "raw"})
    assert found["failed"] == 6, found
    assert "says that its last is 'raw', not normed" in found["failures"][0]["reason"]


def test_texts_messages_and_lengths_of_their_own(lab: Lab) -> None:
    lines = [
        {"prompt": "abc"},
        {"messages": [{"role": "user", "content": "hi"}]},
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "you"},
            ]
        },
        {"prompt": [7, 8], "max_tokens": 2},
    ]
    lab.prompts.write_text("\n".join(map(json.dumps, lines)))
    found = lab.run()
    assert found["complete"], found
    samples = [json.loads(one) for one in (lab.set / "samples.jsonl").read_text().splitlines()]
    prompts = {one["sample"]: (one["prompt"], one["generated"]) for one in samples}
    assert prompts == {0: (3, 1), 1: (7, 1), 2: (18, 1), 3: (2, 2)}


def test_prompts_that_fail_are_named(lab: Lab) -> None:
    lines = [{"prompt_token_ids": [first, 5]} for first in (1, 666, 667, 668, 669, 670, 2)]
    lab.prompts.write_text("\n".join(map(json.dumps, lines)))
    found = lab.run()
    assert (found["exit"], found["samples"], found["failed"]) == (0, 2, 5), found
    reasons = {one["sample"]: one["reason"] for one in found["failures"]}
    assert reasons == {
        1: "ValueError: the prompt is too long",
        2: "ended with error: the ring was full",
        3: "no space left",
        4: "the engine wrote no file",
        5: "the engine's file: token_ids has other token ids than the engine answered",
    }
    assert names_of(lab) == names(1) | {"hs_6.safetensors"}


def test_where_everything_fails_the_engine_is_not_kept_busy(lab: Lab) -> None:
    lab.prompts.write_text("\n".join(['{"prompt_token_ids": [667]}'] * 40))
    found = lab.run()
    assert (found["exit"], found["error"]["code"]) == (1, "all-failed")
    assert "the ring was full" in found["error"]["message"]


# resuming


def test_an_engine_that_is_killed(lab: Lab) -> None:
    found = lab.run(chaos={"dies": 3})
    assert (found["exit"], found["error"]["code"]) == (4, "engine")
    assert "was killed by signal SIGKILL: last words; 3 of 6 samples are kept" in str(found)
    kept = {one.name: one.stat().st_mtime_ns for one in lab.set.glob("hs_*")}
    assert len(kept) == 3
    verified = subprocess.run(
        [sys.executable, "-m", "vpatch", "collect", "--verify", str(lab.set)],
        env=lab.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 1
    assert "is not finished" in verified.stderr
    found = lab.run("--resume", chaos={"dies": 3})
    assert (found["exit"], found["complete"], found["new_samples"]) == (0, True, 3), found
    assert sorted(lab.written()) == sorted(map(str, range(6)))
    assert {name: (lab.set / name).stat().st_mtime_ns for name in kept} == kept
    assert names_of(lab) == names(6)


def test_vpatch_that_is_killed(lab: Lab) -> None:
    write_prompts(lab.prompts, 30)
    process = subprocess.Popen(lab.command(chaos={"slow": 0.1}), env=lab.environ())
    until = time.monotonic() + 30
    while len(list(lab.set.glob("hs_*"))) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {one.name: one.stat().st_mtime_ns for one in lab.set.glob("hs_*")}
    assert 4 <= len(kept) < 30
    found = lab.run("--resume", chaos={"slow": 0.1})
    assert found["complete"], found
    assert found["samples"] == 30
    assert {name: (lab.set / name).stat().st_mtime_ns for name in kept} == kept
    assert names_of(lab) == names(30)


def test_an_interrupt_says_how_to_go_on(lab: Lab, interruptible: None) -> None:
    write_prompts(lab.prompts, 30)
    process = subprocess.Popen(
        lab.command(chaos={"slow": 0.1}), env=lab.environ(), stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 30
    while not list(lab.set.glob("hs_*")):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Go on with the same command and --resume." in talk
    assert lab.run("--resume", chaos={"slow": 0.1})["complete"]


def test_a_finished_set_is_only_verified(lab: Lab) -> None:
    lab.run()
    found = lab.run("--resume")
    assert (found["complete"], found["new_samples"]) == (True, 0)
    assert "is finished already" in found["talk"]
    assert len(lab.written()) == 6


def test_a_set_grows(lab: Lab) -> None:
    assert lab.run("--samples", "2")["samples"] == 2
    assert names_of(lab) == names(2)
    found = lab.run("--samples", "5", "--resume")
    assert (found["complete"], found["samples"], found["new_samples"]) == (True, 5, 3), found
    assert lab.written() == ["0", "1", "2", "3", "4"]
    found = lab.run("--samples", "3", "--resume")
    assert (found["exit"], found["error"]["code"]) == (2, "other-prompts")


def test_failed_prompts_are_tried_again(lab: Lab) -> None:
    lab.prompts.write_text('{"prompt": [667]}\n{"prompt": [1]}\n')
    assert lab.run()["failed"] == 1
    found = lab.run("--resume")
    assert (found["complete"], found["failed"], found["new_samples"]) == (True, 1, 0)
    assert lab.written() == ["1"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (["--resume", "--max-tokens", "9"], "other-set"),
        (["--resume", "--layers", "1"], "other-set"),
        (["--resume", "--shard-size", "1G"], "other-set"),
        (["--resume", "--option", "dtype=float16"], "other-set"),
        ([], "not-empty"),
    ],
)
def test_another_set_is_not_gone_on_with(lab: Lab, change: list[str], code: str) -> None:
    lab.run()
    before = {one.name: one.read_bytes() for one in lab.set.iterdir()}
    found = lab.run(*change)
    assert (found["exit"], found["error"]["code"]) == (2, code), found
    assert {one.name: one.read_bytes() for one in lab.set.iterdir()} == before


def test_what_no_state_depends_on_may_be_mended(lab: Lab) -> None:
    assert lab.run(chaos={"dies": 3})["exit"] == 4
    before = (lab.set / "set.json").read_bytes()
    path = lab.site / "vllm/__init__.py"
    path.write_text(path.read_text().replace('options.get("chaos", {})', "{}"))
    found = lab.run("--resume", "--option", "max_num_seqs=5", chaos={"dies": 3})
    assert (found["complete"], found["new_samples"]) == (True, 3), found
    assert (lab.set / "set.json").read_bytes() == before


def test_a_set_without_samples_may_become_another_one(lab: Lab) -> None:
    assert lab.run("--layers", "1,99", chaos={"start": "no layer 99"})["exit"] == 4
    write_prompts(lab.prompts, 3)
    found = lab.run("--resume", "--layers", "2")
    assert (found["complete"], found["samples"], found["layers"]) == (True, 3, [2]), found


def test_other_prompts_are_not_gone_on_with(lab: Lab) -> None:
    lab.run()
    lab.prompts.write_text(lab.prompts.read_text().replace("[10]", "[11]"))
    found = lab.run("--resume")
    assert (found["exit"], found["error"]["code"]) == (2, "other-prompts")


# what is refused before an engine starts


def test_a_folder_with_something_else_in_it(lab: Lab) -> None:
    lab.set.mkdir(parents=True)
    (lab.set / "mine").touch()
    for more in ([], ["--resume"]):
        assert lab.run(*more)["error"]["code"] == "not-empty"
    assert names_of(lab) == {"mine"}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--layers", "3,1"], "bad-layers"),
        (["--layers", "1,,3"], "bad-layers"),
        (["--layers", "-1"], "bad-layers"),
        (["--backlog", "lots"], "bad-size"),
        (["--sampling", "max_tokens=5"], "bad-option"),
        (["--option", "hidden_states_collection={}"], "bad-option"),
        (["--option", "x"], "bad-option"),
    ],
)
def test_options_that_are_none(lab: Lab, more: list[str], code: str) -> None:
    found = lab.run(*more)
    assert (found["exit"], found["error"]["code"]) == (2, code)
    assert not lab.set.exists()


def test_prompts_that_are_none(lab: Lab) -> None:
    lab.prompts.write_text('{"prompt": "a"}\n\n{"prompt": 5}\n')
    found = lab.run()
    assert (found["exit"], found["error"]["code"]) == (2, "bad-prompts")
    assert "prompts.jsonl:3 has a prompt without token ids" in found["error"]["message"]
    assert not list(lab.set.glob("hs_*"))


def test_an_engine_that_does_not_start(lab: Lab) -> None:
    found = lab.run(chaos={"start": "no such layer: 61"})
    assert (found["exit"], found["error"]["code"]) == (4, "engine")
    assert "ValueError: no such layer: 61; 0 of 6 samples are kept" in found["error"]["message"]
    assert "engine.log" in found["error"]["hint"]


def test_an_engine_whose_own_process_does_not_start(lab: Lab) -> None:
    path = lab.site / "vllm/__init__.py"
    talk = "print('(Worker pid=7) ERROR 11-30 [x.py:7] ValueError: no memory left', flush=True)"
    start = 'if self.chaos.get("start"):'
    path.write_text(path.read_text().replace(start, f"{talk}\n        {start}"))
    found = lab.run(chaos={"start": "Engine core initialization failed. See root cause above."})
    assert "were through: ValueError: no memory left; 0 of 6" in found["error"]["message"]


def test_a_vllm_that_does_not_collect(lab: Lab) -> None:
    path = lab.site / "vllm/__init__.py"
    path.write_text(path.read_text().replace("hidden_states_collection, **options", "chaos=None"))
    found = lab.run()
    assert (found["exit"], found["error"]["code"]) == (4, "no-collection")
    assert "takes no hidden_states_collection" in found["error"]["message"]
    assert "topic collection" in found["error"]["hint"]


def test_a_series_without_the_topic_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = verb.Wish(
        model="owner/model",
        prompts=tmp_path / "p",
        out=str(tmp_path / "set"),
        samples=None,
        resume=False,
        python=Path("python3"),
        device="cpu",
        layers=(1, 3),
        norm=False,
        sampling={},
        options={},
        shard_bytes=None,
        in_flight=1,
        backlog=1,
        jobs=1,
    )
    environment = Environment(Path("/p"), (), {}, "0.26.0+kimi.5", "2.11.0", "cpu")
    series = {"sha256": "ab" * 32, "topics": ["aux-layers"]}
    monkeypatch.setattr(verb, "named_environment", lambda *_: environment)
    monkeypatch.setattr(verb, "origin_of", lambda *_: Origin(series, None, None, ""))

    def no_tally(*_: object) -> ConsoleTally:
        raise AssertionError("nothing is collected")

    with pytest.raises(HostError, match="has no topic collection") as caught:
        verb.run(wish, SilentProgress(), no_tally)
    assert caught.value.code == "no-collection"
    assert not (tmp_path / "set").exists()
