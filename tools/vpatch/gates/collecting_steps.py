"""Of the gate `collection`: snapshots in the runners, and what the worker tells the collector."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from vpatch.gates.classes import Class
from vpatch.gates.collecting import (
    COLLECTOR,
    PROTOCOL,
    REQUEST,
    ROWS,
    Broken,
    attrs_of,
    calls_of_attribute,
    check_methods,
    held_by,
    line,
    method_of,
    own_names,
)
from vpatch.gates.engine import Runner, Scene, Start
from vpatch.gates.gate import Evidence, Subject
from vpatch.gates.machine import Machine
from vpatch.gates.registry import class_at
from vpatch.gates.steps import (
    _steps as steps_of,
)
from vpatch.gates.steps import mentions, reaches, run_statements, runner_class
from vpatch.gates.values import UNKNOWN, Code, Native, Obj, Tensor, Value
from vpatch.gates.walk import walk

_WORKER = "vllm.v1.worker.gpu_worker"
_SAMPLES = {"_sample", "sample"}
_LATER = ("propose_draft_token_ids", "propose", "speculator")


def runner_links(subject: Subject, runner: Runner) -> Iterator[Evidence]:
    """After sampling, before anything else is launched, a snapshot; then the report.

    Raises:
        Broken: One of them is not there.
    """
    program = subject.program
    of = runner_class(program, runner)
    node = method_of(of, "sample_tokens")
    steps = list(steps_of(node.body))
    sampled = next((n for n, each in enumerate(steps) if _samples(each)), len(steps))
    behind = steps[sampled + 1 :]
    end = next(
        (n for n, e in enumerate(behind) if any(mentions(e, w) for w in _LATER)), len(behind)
    )
    taken = [e for e in behind[:end] if reaches(program, of, of.module, e, "snapshot")]
    if not taken:
        raise Broken("snapshot", line(of, node, f"{of.name}.sample_tokens"))
    _snapshot(subject, of, taken[0])
    yield line(of, taken[0])
    reports = list(calls_of_attribute(node, held_by(of), "report"))
    if not reports or not any(_hands(each) for each in walk(node)):
        raise Broken("report", line(of, node, f"{of.name}.sample_tokens"))
    yield line(of, reports[0])


def _samples(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in _SAMPLES
        for each in walk(node)
    )


def _hands(node: ast.AST) -> bool:
    """Whether a report is handed over: of one rank, or of all."""
    return _is_handed(node, "collector_report") or _is_handed(node, "collector_reports")


def _is_handed(node: ast.AST, name: str) -> bool:
    """Whether a value is set as an attribute, or given under a name."""
    if isinstance(node, ast.Assign):
        return any(getattr(each, "attr", "") == name for each in node.targets)
    return isinstance(node, ast.keyword) and node.arg == name


def _snapshot(subject: Subject, of: Class, statement: ast.stmt) -> None:
    """What the runner's statement gives to the collector."""
    whose = class_at(subject.program, COLLECTOR, "HiddenStatesCollector")
    method = Code(whose.module, method_of(whose, "snapshot"), whose)
    positions, tokens = Tensor("positions", dtype="torch.int64"), Tensor("ids", dtype="torch.int64")

    def ask(made: Scene) -> Value:
        given: list[Value] = []

        def snapshot(run: Machine, *args: Value, **how: Value) -> None:
            bound = run._bind(method, [UNKNOWN, *args], how)
            names = [each.arg for each in method.node.args.args[1:]]
            given.append([bound[name] for name in names])

        batch = Obj(
            None,
            "InputBatch",
            {"req_ids": [REQUEST], "positions": positions, "input_ids": tokens, "num_reqs": 1,
             "num_scheduled_tokens": [ROWS]},
        )  # fmt: skip
        collector = Obj(None, "HiddenStatesCollector", {"snapshot": Native("snapshot", snapshot)})
        actor = Obj(of, of.name, {
            held_by(of): collector,
            "input_batch": batch,
            "positions": _held(of, "positions", positions),
            "input_ids": _held(of, "input_ids", tokens),
        })  # fmt: skip
        scheduled = Obj(None, "SchedulerOutput", {"num_scheduled_tokens": {REQUEST: ROWS}})
        names: dict[str, Value] = {
            "self": actor,
            "*self": actor,
            "input_batch": batch,
            "scheduler_output": scheduled,
            "spec_decode_metadata": Obj(None, "SpecDecodeMetadata", {}),
            "sampler_output": Obj(None, "SamplerOutput", {}),
            "num_rejected": Tensor("rejected", (1,), "torch.int32"),
        }
        run_statements(made, of.module, of, [statement], names)
        return given

    way = subject.way(Start(place="top"), ask)
    place = line(of, statement)
    if way.thrown is not None:
        raise Broken("snapshot", place, thrown=way.thrown, when="first step")
    wanted = [[REQUEST], [ROWS], positions, tokens]
    if len(way.value) != 1 or way.value[0][:4] != wanted or way.value[0][4] is None:
        raise Broken("snapshot", place, "it gets other requests, counts, positions or tokens")


def _held(of: Class, name: str, tensor: Tensor) -> Value:
    """As the runner has it: the tensor, or a buffer that has it on the host too."""
    buffered = any(
        isinstance(each, ast.Assign)
        and any(getattr(target, "attr", "") == name for target in each.targets)
        and isinstance(each.value, ast.Call)
        and getattr(each.value.func, "attr", "") == "_make_buffer"
        for each in walk(method_of(of, "__init__"))
    )
    return Obj(None, "CpuGpuBuffer", {"gpu": tensor}) if buffered else tensor


def worker_links(subject: Subject) -> Iterator[Evidence]:
    """The worker tells the collector of each step before its forward, and flushes when asked.

    Raises:
        Broken: It does not.
    """
    of = class_at(subject.program, _WORKER, "Worker")
    node = method_of(of, "execute_model")
    told: list[Any] = [each for each in walk(node) if _is_begin(each)]
    run = list(calls_of_attribute(node, "model_runner", "execute_model"))
    if not told or not run or told[0].lineno > run[0].lineno:
        raise Broken("begin", line(of, node, f"{of.name}.execute_model"))
    yield line(of, told[0])
    for name in ("flush_hidden_states", "tell_hidden_states_collector"):
        found = of.method(name)
        if found is None:
            raise Broken(name.partition("_")[0], line(of, None))
        _asked(subject, of, name)
        yield line(of, found[1], f"def {name}")


def _is_begin(node: Any) -> bool:
    return (
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") == "begin_step"
        and any(mentions(each, "collection") for each in node.args)
    )


def _asked(subject: Subject, of: Class, name: str) -> None:
    """What a method of the worker does to the collector, which is followed as it is."""

    def ask(made: Scene) -> Value:
        seen: list[str] = []
        step = _step(made, [], 0)
        collector = _collector(made, seen)
        held = held_by(runner_class(made.program, "v1"))
        runner = Obj(None, "GPUModelRunner", {held: collector})
        worker = Obj(of, of.name, {"model_runner": runner})
        one = Obj(None, "Finish", {"request_id": REQUEST, "writer": 0})
        news = Obj(None, step.name, {**step.attrs, "finish": [one]})
        how: dict[str, Value] = {"step": news}
        if name == "flush_hidden_states":
            how["timeout"] = 5
        made.run.call(made.run.attribute(worker, name), [], how)
        return seen

    way = subject.way(Start(place="top"), ask)
    place = line(of, method_of(of, name), f"def {name}")
    if way.thrown is not None:
        raise Broken("flush", place, thrown=way.thrown, when="first step")
    wanted = ["put", "flush"] if name == "flush_hidden_states" else ["put"]
    if way.value != wanted:
        raise Broken("flushed", place, name)


def collector_links(subject: Subject) -> Iterator[Evidence]:
    """A snapshot's rows go to the writer, for the requests that it was told of.

    Raises:
        Broken: They do not.
    """
    of = class_at(subject.program, COLLECTOR, "HiddenStatesCollector")
    check_methods(of, ("begin_step", "snapshot", "report", "flush", "close"))

    def ask(made: Scene) -> Value:
        seen: list[str] = []
        collector = _collector(made, seen)
        begin = Obj(None, "Begin", {"request_id": REQUEST, "writer": 0})
        step = _step(made, [begin], ROWS)
        made.run.call(made.run.attribute(collector, "begin_step"), [step], {})
        taken = made.run.attribute(collector, "snapshot")
        made.run.call(taken, [["other", REQUEST], [2, ROWS], UNKNOWN, UNKNOWN, None], {})
        report = made.run.call(made.run.attribute(collector, "report"), [], {})
        return seen, report

    way = subject.way(Start(place="top"), ask)
    place = line(of, method_of(of, "snapshot"), f"{of.name}.snapshot")
    if way.thrown is not None:
        raise Broken("snapshot", place, thrown=way.thrown, when="first step")
    seen, report = way.value
    if seen != ["put", "rows r 5"]:
        raise Broken("rows", place)
    if attrs_of(report).get("steps_rows") != ROWS:
        raise Broken("report", line(of, method_of(of, "report"), f"{of.name}.report"))
    yield place


def _step(made: Scene, begin: list[Value], rows: int) -> Obj:
    """What the scheduler tells; of rows by the rank that writes, where ranks share them."""
    shared = "writer" in class_at(made.program, PROTOCOL, "Begin").values
    told = {"begin": begin, "finish": [], "num_rows": [rows] if shared else rows, "waits": False}
    return Obj(None, "CollectionStep", told)


def _collector(made: Scene, seen: list[str]) -> Obj:
    """A collector on a CPU, and what its writer is told."""

    def put(_run: object, _news: Value) -> None:
        seen.append("put")

    def put_rows(_run: object, rows: Value, _ready: Value) -> None:
        requests = attrs_of(rows).get("requests", ())
        seen.extend(f"rows {name} {count}" for name, count in requests)

    def flush(_run: object, _timeout: Value) -> bool:
        seen.append("flush")
        return True

    made.run.known = {**made.run.known, **own_names(made.run)}
    writer = Obj(None, "Writer", {
        "put": Native("put", put),
        "put_rows": Native("put_rows", put_rows),
        "flush": Native("flush", flush),
        "take_failures": Native("take_failures", lambda _run: {}),
        "dead": None,
    })  # fmt: skip
    ring = Obj(None, "Ring", {"take": Native("take", lambda _run, *_args: 0), "free": 1, "size": 1})
    of = class_at(made.program, COLLECTOR, "HiddenStatesCollector")
    return Obj(of, of.name, {
        "_writer": writer,
        "_ring": ring,
        "_collected": set(),
        "_on_device": False,
        "_row_size": 64,
        "_number": 0,
        **dict.fromkeys(("_coming_steps", "_steps", "_row_bytes"), 0),
        **dict.fromkeys(("_step_bytes", "_largest_step"), 0),
        "_step_rows": 0,
        "_steps_rows": 0,
        "_stalls": 0,
        "_stalled": 0.0,
        "_buffer": Tensor("buffer", (64, 48)),
    })  # fmt: skip
