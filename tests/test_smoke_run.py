"""Engine starts as child processes: real ones, of a small engine side that does as its job says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from small_engine import write_small_engine
from vpatch.errors import HostError, VpatchError
from vpatch.smoke import run, session
from vpatch.smoke.environment import Environment
from vpatch.smoke.judge import Check, Judged
from vpatch.smoke.plan import Copy, Plan, Preparation
from vpatch.smoke.run import Children, Outcome, Start, run_starts


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    variables = {"OF_ENVIRONMENT": "1", "SHARED": "environment"}
    path = (tmp_path / "vllm-of-the-run", tmp_path / "more")
    return Environment(Path(sys.executable), path, variables, "0.17.1", "2.10.0", "cpu")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "engine_library", write_small_engine)
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def children(environment: Environment, scratch: Path) -> Children:
    return Children(environment, scratch, {"OF_RUN": "1", "SHARED": "run"})


def start(name: str, does: str, limit: float = 30.0, **job: Any) -> Start:
    return Start(name, {"does": does, **job}, {"OF_START": name}, limit=limit)


def one(children: Children, scratch: Path, asked: Start) -> Outcome:
    told: list[Outcome] = []
    found = run_starts([asked], children, scratch, at_once=1, on_end=told.append)
    assert found == {asked.name: told[0]}
    return told[0]


def has_ended(pid: int) -> bool:
    """Ended, or a zombie that nobody here can take away."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


# how a start ends


def test_an_engine_that_answers(children: Children, scratch: Path) -> None:
    found = one(children, scratch, start("a/v1/eager", "answer", more={"phases": {}}))
    assert found.error is None
    assert found.outputs is not None
    assert found.outputs["phases"] == {}
    assert found.compared is None
    assert (found.seconds, found.ready) == (3.5, 2.0)
    assert found.log == scratch / "a-v1-eager" / "log"
    assert found.tail() == "talk"


def test_an_engine_that_writes_an_error(children: Children, scratch: Path) -> None:
    found = one(children, scratch, start("a", "error"))
    assert found.error == "ValueError: no\nway"
    assert found.outputs is None
    assert (found.seconds, found.ready) == (4.5, 4.5)


@pytest.mark.parametrize(
    ("does", "error"),
    [
        ("kill", "the engine's process was killed by signal SIGSEGV"),
        # What it answered before it died proves nothing.
        ("answer-and-kill", "the engine's process was killed by signal SIGABRT"),
        ("exit", "the engine's process ended with exit code 3"),
        ("silent", "the engine's process wrote no whole answer"),
        ("half", "the engine's process wrote no whole answer"),
        ("list", "the engine's process wrote no whole answer"),
    ],
)
def test_an_engine_that_ends_badly(
    children: Children, scratch: Path, does: str, error: str
) -> None:
    found = one(children, scratch, start("a", does))
    assert (found.error or "").startswith(error)
    assert found.outputs is None
    assert found.seconds > 0
    assert found.tail().splitlines()[0] == "talk"
    if does == "exit":
        assert found.tail().splitlines()[-1] == "last words"


@pytest.mark.parametrize("does", ["hang", "hang-on"])
def test_an_engine_that_hangs_is_ended_with_its_children(
    children: Children, scratch: Path, does: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GRACE_S", 0.1)
    # Long enough for it to have started its child, on a busy machine too.
    found = one(children, scratch, start("a", does, limit=4.0))
    assert (found.error or "").startswith("the engine's process did not end within 4 seconds")
    assert found.ready is None
    for name in ("pid", "child"):
        pid = int((scratch / "a" / name).read_text())
        wait_for(lambda pid=pid: has_ended(pid))  # type: ignore[misc]


def test_what_an_engine_leaves_behind_is_ended(children: Children, scratch: Path) -> None:
    assert one(children, scratch, start("a", "leave")).error is None
    wait_for(lambda: has_ended(int((scratch / "a" / "child").read_text())))


# comparisons


def test_rows_are_compared(children: Children, scratch: Path) -> None:
    found = one(children, scratch, start("a", "rows"))
    assert found.error is None
    assert found.compared is not None
    assert found.compared["by"] == "vpatch.smoke.engine.compare"
    variables = found.compared["variables"]
    assert (variables["OMP_NUM_THREADS"], variables["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert "OF_START" not in variables
    assert found.tail().splitlines() == ["talk", "not for the answer"]


def test_samples_are_held_against_their_distribution(children: Children, scratch: Path) -> None:
    found = one(children, scratch, start("a", "answer", distribution={"temperature": 1}))
    assert found.compared is not None
    assert found.compared["by"] == "vpatch.smoke.engine.sampled"


@pytest.mark.parametrize(
    ("how", "why"), [("fails", "ended with exit code 1"), ("silent", "wrote no answer")]
)
def test_a_comparison_that_fails_is_told(
    children: Children, scratch: Path, how: str, why: str
) -> None:
    found = one(children, scratch, start("a", "rows", compare=how))
    assert (found.error or "").startswith(f"the engine's process answered; its comparison {why}")
    assert found.outputs is found.compared is None


def test_an_error_is_not_compared(children: Children, scratch: Path) -> None:
    found = one(children, scratch, start("a", "error", distribution={}))
    assert found.error == "ValueError: no\nway"
    assert found.compared is None
    assert not (scratch / "a" / "compared.json").exists()


def test_a_server_answers_on_its_standard_output(children: Children, scratch: Path) -> None:
    found = one(children, scratch, Start("a", {}, module="serve"))
    assert found.outputs == {"seconds": {"start": 1.0}, "tokens": [[5]]}
    assert found.tail() == "talk"


# environment variables


def test_children_get_what_is_meant_for_them_and_nothing_of_the_callers(
    children: Children, scratch: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = {
        "SECRET_TOKEN": "x",
        "PYTHONPATH": "/of/the/caller",
        "PYTHONHOME": "/nowhere",
        "PIP_INDEX_URL": "https://user:password@index.invalid",
        "LD_PRELOAD": "",
        "VLLM_USE_V1": "0",
        "CUDA_VISIBLE_DEVICES": "3",
        "HTTPS_PROXY": "http://proxy.invalid",
    }
    for name, value in callers.items():
        monkeypatch.setenv(name, value)
    found = one(children, scratch, start("a", "answer"))
    assert found.outputs is not None
    variables: Mapping[str, str] = found.outputs["variables"]
    ours = {
        "HOME",
        "PYTHONUSERBASE",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "OF_ENVIRONMENT",
        "OF_RUN",
        "OF_START",
    }
    of_the_system = {"PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "LC_CTYPE"}
    allowed = ours | of_the_system | {"SHARED", "CUDA_VISIBLE_DEVICES"}
    assert set(variables) <= allowed
    assert ours <= set(variables)
    assert variables["OF_START"] == "a"
    assert variables["SHARED"] == "run"  # the run's go over the environment's
    assert variables["CUDA_VISIBLE_DEVICES"] == "3"
    path = [scratch / "lib", *environment.path]
    assert variables["PYTHONPATH"] == os.pathsep.join(map(str, path))
    assert variables["HOME"] == found.outputs["cwd"] == str(scratch / "home")
    assert found.outputs["path"][1:4] == list(map(str, path))


def test_a_starts_own_variables_go_over_all_others(children: Children, scratch: Path) -> None:
    asked = Start("a", {"does": "answer"}, {"SHARED": "start", "PATH": "/bin"})
    found = one(children, scratch, asked)
    assert found.outputs is not None
    assert found.outputs["variables"]["SHARED"] == "start"
    assert found.outputs["variables"]["PATH"] == "/bin"


# several starts


def test_two_at_once(children: Children, scratch: Path) -> None:
    asked = [start("a", "meet", me="x", other="y"), start("b", "meet", me="y", other="x")]
    found = run_starts(asked, children, scratch, at_once=2, on_end=lambda _one: None)
    assert list(found) == ["a", "b"]
    assert all(each.outputs and each.outputs["met"] for each in found.values())


def test_one_that_fails_stops_no_other(children: Children, scratch: Path) -> None:
    asked = [start("a", "kill"), start("b", "error"), start("c", "answer")]
    found = run_starts(asked, children, scratch, at_once=1, on_end=lambda _one: None)
    assert [each.error is None for each in found.values()] == [False, False, True]


def test_closing_ends_what_runs_and_begins_nothing(children: Children, scratch: Path) -> None:
    told: list[Outcome] = []
    asked = [start("a", "hang"), start("b", "answer")]

    def all_of_them() -> None:
        run_starts(asked, children, scratch, at_once=1, on_end=told.append)

    thread = threading.Thread(target=all_of_them)
    thread.start()
    wait_for((scratch / "a" / "child").is_file)
    wait_for(lambda: (scratch / "a" / "child").read_text() != "")
    children.close()
    thread.join(10)
    ended, never_began = [each.error or "" for each in told]
    assert ended.startswith("the engine's process was killed by signal SIGTERM")
    assert never_began.startswith("the engine's process did not begin: the run was ended")
    for name in ("pid", "child"):
        wait_for(lambda name=name: has_ended(int((scratch / "a" / name).read_text())))  # type: ignore[misc]


def test_an_interruption_ends_everything(children: Children, scratch: Path) -> None:
    asked = [start("a", "answer"), start("b", "hang"), start("c", "answer")]

    def interrupt(_ended: Outcome) -> None:
        wait_for((scratch / "b" / "pid").is_file)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_starts(asked, children, scratch, at_once=2, on_end=interrupt)
    assert time.monotonic() - began < 10
    wait_for(lambda: has_ended(int((scratch / "b" / "pid").read_text())))
    assert not (scratch / "c" / "pid").exists()


# a whole run


def plan(starts: Sequence[Start], **more: Any) -> Plan:
    models = {
        "targets": [{"name": "kimi"}],
        "drafters": [{"name": "llama"}],
        **more.pop("models", {}),
    }
    checks = tuple(
        Check(f"starts/{each.name}", (each.name,), lambda _found: Judged("pass", "said"))
        for each in starts
    )
    return Plan(models, more.pop("preparations", ()), more.pop("copies", ()), tuple(starts), checks)


def test_a_plan_is_run(scratch: Path, environment: Environment, tmp_path: Path) -> None:
    said: list[str] = []
    graphs = Start("b", {"does": "answer", "target": "unreadable"}, fresh_cache=True)
    asked = plan(
        [start("a", "answer", target="kimi", drafter="trained-shifted"), graphs],
        preparations=(
            Preparation(
                "trained",
                "train",
                {"target": "kimi", "out": "trained", "seed": 3, "ids": [1, 3]},
            ),
        ),
        copies=(Copy("trained-shifted", "trained", {"ids": [4]}),),
    )
    results = session.run_plan(asked, environment, scratch, tmp_path / "kept", said.append)
    assert [(one.check, one.verdict) for one in results] == [
        ("starts/a", "pass"),
        ("starts/b", "pass"),
    ]
    assert said[0] == "making trained"
    assert sorted(line.partition("] ")[2] for line in said[1:]) == [
        "a answered after 4 s",
        "b answered after 4 s",
    ]
    placed = json.loads((scratch / "a" / "job.json").read_text())
    models = scratch / "models"
    assert placed["target"] == str(models / "kimi")
    assert placed["drafter"] == str(models / "trained-shifted")
    weights = (models / "trained-shifted/model.safetensors").read_text()
    assert weights == f"{models / 'kimi'} 3 [1, 3]"
    configs = [
        json.loads((models / name / "config.json").read_text())
        for name in ("trained", "trained-shifted")
    ]
    assert configs == [{"name": "trained", "ids": [3]}, {"name": "trained", "ids": [4]}]
    # Who reads these weights, fails; the others are as they were.
    assert (models / "unreadable/model.safetensors").read_bytes()[:2] == b"no"
    assert (models / "kimi/model.safetensors").read_text() == "kimi"
    caches = [
        json.loads((scratch / name / "outputs.json").read_text())["variables"]["VLLM_CACHE_ROOT"]
        for name in ("a", "b")
    ]
    assert caches == [str(tmp_path / "kept/vllm/vllm-of-the-run"), str(scratch / "compiled")]


def test_checkpoints_that_cannot_be_made_are_the_hosts(
    scratch: Path, environment: Environment, tmp_path: Path
) -> None:
    asked = plan([start("a", "answer", target="kimi")], models={"fails": True})
    with pytest.raises(HostError, match="models's process ended with exit code 1: OSError") as told:
        session.run_plan(asked, environment, scratch, tmp_path / "kept", lambda _text: None)
    assert "models-of-spec/log" in told.value.hint


def test_a_plan_that_names_what_it_does_not_make_is_a_bug(
    scratch: Path, environment: Environment, tmp_path: Path
) -> None:
    asked = plan([start("a", "answer", target="other")])
    with pytest.raises(VpatchError, match="names other") as told:
        session.run_plan(asked, environment, scratch, tmp_path / "kept", lambda _text: None)
    assert told.value.exit_code == 70


def test_checkpoints_are_made_beside_each_other_after_what_they_are_made_of(
    environment: Environment, scratch: Path, tmp_path: Path
) -> None:
    def step(name: str, target: str, **job: Any) -> Preparation:
        return Preparation(name, "train", {"target": target, "seed": 1, "ids": [1], **job})

    asked = plan(
        [start("a", "answer", target="kimi", drafter="left")],
        preparations=(
            step("listener", "kimi"),
            step("left", "listener", meets=["right"]),
            step("right", "listener", meets=["left"]),
            step("last", "right"),
        ),
    )
    said: list[str] = []
    session.run_plan(asked, environment, scratch, tmp_path / "kept", said.append)
    assert said[:3] == ["making listener", "making left, right", "making last"]
    models = scratch / "models"
    weights = {name: (models / name / "model.safetensors").read_text() for name in ("left", "last")}
    assert weights == {
        "left": f"{models / 'listener'} 1 [1]",
        "last": f"{models / 'right'} 1 [1]",
    }
