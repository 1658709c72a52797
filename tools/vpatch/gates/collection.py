"""Can an engine collect hidden states of Kimi-K2.5 as training data: topic `collection`.

The way of the option, of a request and of a row is followed from one end to the other; what is
not there, or leads elsewhere, is told with what a user gets of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.gates import collecting_engine, collecting_model, collecting_option, collecting_steps
from vpatch.gates.collecting import COLLECTOR, OPTION, OWN, Broken, check_imports, read_ahead
from vpatch.gates.engine import Runner
from vpatch.gates.gate import Evidence, Found, Gate, Subject, When, raised
from vpatch.gates.registry import MissingPart

_ARGUMENTS = "vllm/engine/arg_utils.py"
_CLASS = b"class EngineArgs"


def _collects(subject: Subject) -> Found:
    data = subject.program.tree.read(_ARGUMENTS)
    if data is None:
        raise MissingPart("vllm.engine.arg_utils")
    if OPTION.encode() not in data and not _has_own(subject):
        number = data[: max(data.find(_CLASS), 0)].count(b"\n") + 1
        return _words("option", "", Evidence(_ARGUMENTS, number, _CLASS.decode()), absent=True)
    try:
        return Found("pass", tuple(dict.fromkeys(_links(subject))), note=_NOTE)
    except Broken as broken:
        if broken.thrown is not None:
            found = raised(subject, broken.thrown, broken.when)
            return Found("fail", (broken.evidence, *found.evidence), found.error, found.when)
        return _words(broken.link, broken.detail, broken.evidence)
    except MissingPart as missing:
        return _words(
            "import",
            f"cannot import name '{missing}'",
            Evidence(_ARGUMENTS, 1, f"there is no {missing}"),
        )


_NOTE = "files, the ring and kernels are not read"


def _has_own(subject: Subject) -> bool:
    return subject.program.tree.has_module(COLLECTOR.rpartition(".")[0])


def _links(subject: Subject) -> Iterator[Evidence]:
    """The way, link by link."""
    program = subject.program
    read_ahead(subject, (*OWN, *collecting_engine.USERS, *(e[0] for e in collecting_engine.FIELDS)))
    yield from collecting_option.option_links(subject)
    check_imports(program, collecting_engine.USERS)
    runners: tuple[Runner, ...] = ("v1", "v2") if subject.runner == "v1" else ("v2", "v1")
    for runner in runners:
        yield from collecting_model.model_links(subject, runner)
        yield from collecting_steps.runner_links(subject, runner)
    yield from collecting_steps.collector_links(subject)
    yield from collecting_option.request_links(subject)
    yield from collecting_engine.scheduler_links(subject)
    yield from collecting_steps.worker_links(subject)
    yield from collecting_engine.engine_links(subject)


def _words(link: str, detail: str, evidence: Evidence, *, absent: bool = False) -> Found:
    """What a user gets of a link that does not hold."""
    serve = "error: unrecognized arguments: --hidden-states-collection"
    lost = f"no rows are collected: {detail or 'nothing asks for them'}"
    said: dict[str, tuple[str, When, str]] = {
        "option": (
            "TypeError: EngineArgs.__init__() got an unexpected keyword argument "
            "'hidden_states_collection'",
            "config",
            " ".join(("so says LLM(...); vllm serve:", serve)),
        ),
        "flag": (serve, "config", "LLM(...) takes it, vllm serve does not"),
        "field": (
            "ValueError: Field 'hidden_states_collection' not found in VllmConfig.",
            "config",
            "",
        ),
        "import": (f"ImportError: {detail}", "config", ""),
        "unrefused": ("", "never", "layers that are not there are not refused"),
        "buffer": (
            f"AttributeError: {detail}",
            "after load",
            "the model gets no buffer before its collector is made",
        ),
        "attribute": (f"AttributeError: {detail}", "first step", ""),
        "flush": (
            "NotImplementedError: Method 'flush_hidden_states' is not implemented.",
            "first step",
            "",
        ),
        "tell": (
            "NotImplementedError: Method 'tell_hidden_states_collector' is not implemented.",
            "first step",
            "",
        ),
        "request": ("", "never", "requests that cannot be collected are not refused"),
        "asks": ("", "never", "what a request asks for is not read"),
        "report": ("", "never", "nobody hears of failures, and nothing holds prefills back"),
        "holds_back": ("", "never", "nothing holds prefills back while the writer is behind"),
        "update": ("", "never", "requests whose rows are lost end as if they were not"),
        "finish": ("", "never", "a request's file is never completed, or has no name"),
        "told": ("", "never", f"what has ended is not told with {detail}: its files are not there"),
        "flushed": ("", "never", f"{detail} does not reach the writer"),
        "metrics": ("", "never", "/metrics shows nothing of it"),
        "columns": ("", "never", f"wrong rows: {detail}"),
        "written": ("", "never", f"wrong rows: {detail}"),
    }
    error, when, note = said.get(link, ("", "never", lost))
    return Found("fail", (evidence,), error, when, note, absent=absent)


OPTIONS = (
    Gate(
        name="collection",
        asks="hidden states of Kimi-K2.5 are collected as training data",
        group="option",
        topic="collection",
        upstream="",
        check=_collects,
    ),
)
