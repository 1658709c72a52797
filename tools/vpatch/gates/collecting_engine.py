"""Of the gate `collection`: scheduler, engine and metrics."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vpatch.gates.classes import Class
from vpatch.gates.collecting import (
    REQUEST,
    ROWS,
    SCHEDULER,
    Broken,
    attrs_of,
    calls_of_attribute,
    check_methods,
    collected,
    line,
    make,
    method_of,
    own_names,
    says,
)
from vpatch.gates.collecting_option import ARGUMENTS, INPUT
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Subject
from vpatch.gates.modules import Function
from vpatch.gates.registry import class_at
from vpatch.gates.steps import RUNNERS, mentions, run_statements
from vpatch.gates.values import Foreign, Native, Obj, Value
from vpatch.gates.walk import walk

_CORE = "vllm.v1.engine.core"
_CLIENT = "vllm.v1.engine.core_client"
_LOGGERS = "vllm.v1.metrics.loggers"
_SCHED = "vllm.v1.core.sched.scheduler"
USERS = (
    *RUNNERS.values(),
    ARGUMENTS,
    _CORE,
    _CLIENT,
    INPUT,
    _LOGGERS,
    _SCHED,
    "vllm.v1.worker.gpu_worker",
)
FIELDS = (
    ("vllm.v1.core.sched.output", "SchedulerOutput", "collection"),
    ("vllm.v1.outputs", "ModelRunnerOutput", "collector_report"),
    ("vllm.v1.metrics.stats", "SchedulerStats", "collector_report"),
)
_START = Start(place="top")


def scheduler_links(subject: Subject) -> Iterator[Evidence]:
    """The scheduler tells of requests, names their files, ends them, and hears of failures.

    Raises:
        Broken: It does not.
    """
    of = class_at(subject.program, _SCHED, "Scheduler")
    for dotted, name, field in FIELDS:
        owner = class_at(subject.program, dotted, name)
        # Reports of one rank, or of all.
        if field not in owner.values and f"{field}s" not in owner.values:
            raise Broken(
                "attribute", line(owner, None), f"'{name}' object has no attribute '{field}'"
            )
    init = method_of(of, "__init__")
    made = [e for e in init.body if any(_is_side(each) for each in walk(e))]
    if not made or not _begun(subject, of, made):
        raise Broken("scheduler", line(of, init, "Scheduler.__init__"))
    yield line(of, made[0])
    for method, name, into in _CALLS:
        node = method_of(of, method)
        calls = [e for e in calls_of_attribute(node, "collection", name) if _own(e)]
        if not calls or (into and not _lands(node, calls[0], into)):
            raise Broken(name, line(of, node, f"Scheduler.{method}"))
        yield line(of, calls[0])
    stats = method_of(of, "make_stats")
    if not any(_gives(each, "collector_report", "collection") for each in walk(stats)):
        raise Broken("metrics", line(of, stats, "Scheduler.make_stats"))
    yield _followed(subject)


def _is_side(node: ast.AST) -> bool:
    return _makes(node, "collection", "CollectionScheduler")


def _begun(subject: Subject, of: Class, made: list[ast.stmt]) -> bool:
    """Whether a scheduler has the collection's side where the option is given."""

    def ask(scene: Scene) -> Value:
        scene.run.known = {**scene.run.known, **own_names(scene.run)}
        actor = Obj(of, of.name, {})
        names: dict[str, Value] = {"self": actor, "*self": actor, "vllm_config": collected(scene)}
        for statement in made:
            run_statements(scene, of.module, of, [statement], names)
        return actor.attrs.get("collection")

    return isinstance(subject.way(_START, ask).value, Obj)


# Method, what it calls, and where the result has to arrive.
_CALLS = (
    ("add_request", "add", ""),
    ("schedule", "take_step", "collection"),
    ("schedule", "holds_back", ""),
    ("_free_request", "finish", "FILE"),
    ("update_from_output", "update", "error_req_ids"),
)


def _own(call: ast.Call) -> bool:
    return ast.unparse(call.func).startswith("self.collection.")


def _makes(node: ast.AST, attribute: str, name: str) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    targets = {getattr(each, "attr", "") for each in node.targets}
    return attribute in targets and getattr(node.value.func, "id", "") == name


def _gives(node: ast.AST, name: str, what: str) -> bool:
    return isinstance(node, ast.keyword) and node.arg == name and mentions(node.value, what)


def _lands(node: Function, call: ast.Call, into: str) -> bool:
    """Whether what a call returns arrives: in an attribute, or by its name beside another one."""
    names = set()
    for each in walk(node):
        if isinstance(each, ast.Assign) and each.value is call:
            if any(getattr(target, "attr", "") == into for target in each.targets):
                return True
            names |= {getattr(target, "id", "") for target in each.targets}
        elif isinstance(each, ast.NamedExpr) and each.value is call:
            names.add(each.target.id)
    return any(
        mentions(each, into) and any(mentions(each, name) for name in names)
        for each in walk(node)
        if isinstance(each, (ast.Expr, ast.Assign)) and call not in walk(each)
    )


def _followed(subject: Subject) -> Evidence:
    """A request's way through the scheduler's side, which is followed as it is."""
    of = class_at(subject.program, SCHEDULER, "CollectionScheduler")

    check_methods(of, ("add", "take_step", "finish", "update", "holds_back", "collects"))
    check_methods(of, ("has_news", "report"))

    def ask(made: Scene) -> Value:
        run = made.run
        run.known = {**run.known, **own_names(run)}
        side = make(run, of, collected(made))
        one, other = _request(REQUEST, asked=True), _request("other", asked=False)
        for each in (one, other):
            run.call(run.attribute(side, "add"), [each], {})
        first = run.call(run.attribute(side, "take_step"), [{REQUEST: ROWS, "other": 3}], {})
        file = run.call(run.attribute(side, "finish"), [one], {})
        last = run.call(run.attribute(side, "take_step"), [{}], {})
        skips = one.attrs.get("skip_reading_prefix_cache")
        return attrs_of(first), file, attrs_of(last), skips

    way = subject.way(_START, ask)
    place = line(of, None)
    if way.thrown is not None:
        raise Broken("scheduler", place, thrown=way.thrown, when="first step")
    first, file, last, skips = way.value
    begun = [attrs_of(each) for each in first.get("begin", ())]
    ended = [attrs_of(each) for each in last.get("finish", ())]
    right = first.get("num_rows") in (ROWS, [ROWS])
    if [e.get("request_id") for e in begun] != [REQUEST] or not right or skips is not True:
        raise Broken("add", place)
    told = [(each.get("request_id"), each.get("token_ids")) for each in ended]
    if told != [(REQUEST, [7, 8, 9])] or file != f"{begun[0].get('name')}.safetensors":
        raise Broken("finish", place)
    return place


def _request(name: str, *, asked: bool) -> Obj:
    given: dict[str, Value] = {
        "extra_args": {"collect_hidden_states": 1} if asked else None,
    }
    return Obj(None, "Request", {
        "request_id": name,
        "sampling_params": Obj(None, "SamplingParams", given),
        "num_prompt_tokens": 2,
        "all_token_ids": [7, 8, 9],
        "status": Foreign("vllm.v1.request.RequestStatus.FINISHED_STOPPED"),
        "get_finished_reason": Native("reason", lambda _run: "stop"),
    })  # fmt: skip


def engine_links(subject: Subject) -> Iterator[Evidence]:
    """What has ended is told behind the last step and before a flush; metrics are shown.

    Raises:
        Broken: It is not.
    """
    core = class_at(subject.program, _CORE, "EngineCore")
    flush = method_of(core, "collective_rpc")
    tells = list(calls_of_attribute(flush, "collection", "take_step"))
    passed = list(calls_of_attribute(flush, "model_executor", "collective_rpc"))
    asked = any(says(each, "flush_hidden_states") for each in walk(flush))
    if not tells or not asked or not any(mentions(each, "kwargs") for each in passed):
        raise Broken("told", line(core, flush, "EngineCore.collective_rpc"), "a flush")
    yield line(core, tells[0])
    client = class_at(subject.program, _CLIENT, "InprocClient")
    output = method_of(client, "get_output")
    name = "tell_hidden_states_collector"
    called = list(calls_of_attribute(output, "engine_core", name))
    if not called or name not in core.methods or not _tells(core.methods[name], name):
        raise Broken("told", line(client, output, "InprocClient.get_output"), "the last step")
    yield line(client, called[0])
    loggers = class_at(subject.program, _LOGGERS, "PrometheusStatLogger")
    shown = list(calls_of_attribute(method_of(loggers, "record"), "collection_prom", "observe"))
    init = method_of(loggers, "__init__")
    if not shown or not any(_makes(e, "collection_prom", "CollectionProm") for e in walk(init)):
        raise Broken("metrics", line(loggers, init, "PrometheusStatLogger"))
    yield line(loggers, shown[0])


def _tells(node: Function, name: str) -> bool:
    return any(says(each, name) for each in walk(node)) and mentions(node, "take_step")
