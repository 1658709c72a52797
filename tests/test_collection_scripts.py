"""ci/collection_gpu.py: what it would start, and that its judges can say no. No GPU, no vLLM."""

from __future__ import annotations

import copy
import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
CI = REPO / "ci"
sys.path.insert(0, str(CI))

import collection_fusion  # noqa: E402
import collection_gpu  # noqa: E402
import collection_parallel  # noqa: E402
import collection_rates  # noqa: E402
import collection_sleep  # noqa: E402
import collection_wide  # noqa: E402

Job = dict[str, Any]


def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Job]:
    assert collection_gpu.main(["--work", str(tmp_path / "work"), "--plan", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nap"], "there is no part 'nap'; there is kernels, answers,"),
        (["--cpu", "fusion"], "fusion needs a GPU; on a CPU there is answers,"),
        (["--cpu", "sleep", "throughput"], "throughput needs a GPU"),
    ],
)
def test_parts_that_do_not_run(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        collection_gpu.main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_the_plan_of_sleep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = planned(tmp_path, capsys, "sleep")
    assert [(job["runner"], job["options"].get("enforce_eager", False)) for job in jobs] == [
        ("v1", True),
        ("v1", False),
        ("v2", True),
        ("v2", False),
    ]
    for job in jobs:
        assert job["options"]["enable_sleep_mode"] is True
        assert (job["drafter"], job["late"]) == (None, True)
        levels = {act[1] for _, acts in job["rounds"] for act in acts if act[0] == "sleep"}
        assert levels == {1, 2}
        for _, acts in job["rounds"]:
            # Level 2 drops the weights: they are loaded again before the next round.
            assert (["sleep", 2] in acts) == (["reload", None] in acts)


def test_a_cpu_does_not_sleep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = planned(tmp_path, capsys, "--cpu", "sleep")
    assert "enable_sleep_mode" not in job["options"]
    assert [acts for _, acts in job["rounds"]] == [[], []]
    assert job["late"] is False


def test_the_plan_of_fusion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = planned(tmp_path, capsys, "--stock", "/release", "--runner", "v1", "fusion")
    assert [(job["engine"].rpartition("/")[2], job["stock"]) for job in jobs] == [
        ("plain", False),
        ("collect", False),
        ("stock", True),
    ] * 2
    assert [job["drafter"] is None for job in jobs] == [True] * 3 + [False] * 3
    for job in jobs:
        assert ("collection" in job) == job["engine"].endswith("collect")
        assert job["options"]["compilation_config"]["pass_config"]["fuse_allreduce_rms"] is True
        assert job["variables"] == {"VLLM_LOGGING_LEVEL": "DEBUG"}


def test_upstreams_extraction_comes_first_and_has_less_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = planned(tmp_path, capsys, "--stock", "/release", "throughput")
    by_name = {job["engine"]: job for job in jobs}
    upstream, ours = by_name["throughput v1/upstream"], by_name["throughput v1/shm"]
    (few,) = upstream["prompts"]
    assert (few, upstream["limit"], upstream["stock"]) == (12, 60, True)
    assert ours["prompts"] == [few, 8 * few]
    assert {tuple(job["prompts"]) for name, job in by_name.items() if "v2" in name} == {(8 * few,)}
    (alone,) = planned(
        tmp_path, capsys, "--stock", "/release", "--only", "v1/upstream", "throughput"
    )
    assert alone["prompts"] == [few]


def test_each_has_its_turn_and_is_kept_at_once(tmp_path: Path) -> None:
    order: list[str] = []
    kept: list[set[str]] = []

    def run(name: str, job: Job, runner: str, stock: bool) -> Job:
        turn = Path(job["turn"])
        turn.with_name(turn.name + ".ready").touch()
        while not turn.with_name(turn.name + ".go").exists():
            time.sleep(0.01)
        order.append(name)
        return {"error": "not over 60 s after its turn came"}

    def keep(checks: Job) -> None:
        kept.append(set(checks))

    only = ["v1/upstream", "v1/shm", "v2/shm"]
    checks = collection_wide.throughput(run, tmp_path, tmp_path, True, only, keep)
    assert order == ["throughput v1/upstream", "throughput v2/shm", "throughput v1/shm"]
    assert kept == [set(order[: count + 1]) for count in range(3)]
    assert not any(check["ok"] for check in checks.values())


def test_rates_of_as_many_prompts_are_compared() -> None:
    found: dict[str, Job] = {
        "throughput v1/shm": {"rate": 60000, "by_prompts": {"12": 50000, "96": 60000}},
        "throughput v1/upstream": {"rate": 40000, "by_prompts": {"12": 40000}},
        "throughput v2/none": {"rate": 100, "by_prompts": {"96": 100}},
        "throughput v2/shm": {"error": "ended"},
    }
    (name, check), *more = collection_wide.compared(found).items()
    assert not more
    assert name == "throughput v1/shm to v1/upstream"
    assert (check["ratio"], check["ok"], check["prompts"]) == (1.25, False, 12)
    found["throughput v1/upstream"]["by_prompts"] = {"12": 30000}
    (check,) = collection_wide.compared(found).values()
    assert check["ok"] is True


HANGS = """
import sys, time, json
sys.path.insert(0, {ci!r})
from collection_rates import end_after
job = {{"limit": 0.3, "stands": "waiting for files of 12 prompts"}}
end_after(job, lambda found: print(json.dumps(found), flush=True))
time.sleep(60)
"""


def test_an_engine_that_hangs_says_where() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HANGS.format(ci=str(CI))],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 1
    said = "not over 0.3 s after its turn came; it was waiting for files of 12 prompts"
    assert json.loads(ran.stdout) == {"error": said}
    assert 'File "<string>", line 7 in <module>' in ran.stderr  # where its threads stood


class Upstream:
    """An engine whose worker hears of what has finished with the step behind it, as upstream's."""

    def __init__(self, folder: Path, count: int) -> None:
        self.llm_engine = self.engine_core = self
        self.steps = 0
        self.held = []
        self.outputs = []
        for number in range(count):
            path = folder / f"{number}.safetensors"
            lock = Path(f"{path}.lock").open("w")  # noqa: SIM115 - held until a step
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.held.append(lock)
            parameters = {"hidden_states_path": str(path)}
            self.outputs.append(SimpleNamespace(kv_transfer_params=parameters))

    def get_output(self) -> None:
        self.steps += 1
        if self.held:
            self.held.pop().close()


def test_upstreams_files_are_waited_for_with_steps(tmp_path: Path) -> None:
    engine = Upstream(tmp_path, 3)
    collection_rates._wait_for_upstream(engine, engine.outputs)
    assert engine.steps == 3
    assert not engine.held


LOG = """\
(Worker_TP0 pid=7) DEBUG 11-30 18:40:00 [compilation/passes/fusion/{name}:856] Replaced 16 patterns
(Worker_TP1 pid=8) DEBUG 11-30 18:40:00 [{name}:856] Replaced 16 patterns
DEBUG 11-30 18:40:01 [.../fusion/allreduce_rms_fusion.py:1728] AllReduceRMS Replaced 3 patterns
DEBUG 11-30 18:40:01 [rms_quant_fusion.py:631] Replaced 0 patterns
INFO 11-30 18:40:01 [backends.py:1] 5 patterns were not Replaced
""".format(name="allreduce_rms_fusion.py")


def test_what_a_log_says_of_fusions() -> None:
    assert collection_fusion.replaced(LOG) == {
        "allreduce_rms_fusion.py": [3, 16, 16],
        "rms_quant_fusion.py": [0],
    }
    assert collection_fusion.replaced("") == {}


def test_fusions_are_equal_and_there_are_some() -> None:
    one = collection_fusion.replaced(LOG)
    less = {**one, "allreduce_rms_fusion.py": [3, 16, 15]}
    nothing = {"rms_quant_fusion.py": [0]}
    judge = collection_fusion.judge
    assert judge({"plain": one, "collect": one, "stock": one})["ok"] is True
    assert judge({"plain": one, "collect": less})["ok"] is False
    assert judge({"plain": one, "collect": one, "stock": nothing})["ok"] is False
    assert judge({"plain": nothing, "collect": nothing})["why"].startswith("the pass replaced")
    assert judge({"plain": one})["ok"] is False
    assert judge({})["ok"] is False


def slept() -> Job:
    rows = {str(number): [number + 1, f"hash of {number}"] for number in range(8)}
    one = {"rows": rows, "address": 4096, "counts": [{"failed": 0}]}
    return {"rounds": {name: copy.deepcopy(one) for name in ("awake", "level 1")}, "left_out": []}


def test_rows_behind_a_sleep_are_the_first_ones() -> None:
    judge = collection_sleep.judge
    assert judge(slept(), 2)["ok"] is True
    assert judge(slept(), 3)["ok"] is False
    other = slept()
    other["rounds"]["level 1"]["rows"]["3"] = [4, "another"]
    assert judge(other, 2)["other_rows"] == {"level 1": ["3"]}
    moved = slept()
    moved["rounds"]["level 1"]["address"] = 8192
    lost = slept()
    lost["rounds"]["level 1"]["counts"] = [{"failed": 1}]
    alone = slept()
    del alone["rounds"]["level 1"]
    for one, rounds in ((other, 2), (moved, 2), (lost, 2), (alone, 1)):
        assert judge(one, rounds)["ok"] is False


def parallel(*files: str | None) -> Job:
    return {
        "answers": {str(number): {"file": file} for number, file in enumerate(files)},
        "there": [file for file in files if file is not None],
    }


FIRST, SECOND = "hs-0a1b2c3d-0-00000000.safetensors", "hs-99887766-1-00000000.safetensors"


def test_each_rank_has_files_of_its_own() -> None:
    judge = collection_parallel.ranks_of
    assert judge(parallel(FIRST, SECOND)) == {"files": {0: 1, 1: 1}, "late": [], "ok": True}
    assert judge(parallel(FIRST))["ok"] is False
    assert judge(parallel(FIRST, FIRST, SECOND))["ok"] is False
    assert judge(parallel(FIRST, SECOND, None))["ok"] is False
    assert judge(parallel(FIRST, SECOND, "hs-0a1b2c3d-0-1"))["ok"] is False
    late = parallel(FIRST, SECOND)
    late["there"].remove(SECOND)
    assert judge(late)["late"] == [SECOND]
    assert judge(late)["ok"] is False
