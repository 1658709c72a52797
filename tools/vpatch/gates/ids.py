"""Do the layers that a drafter's config names reach the runner, the drafter and the cache key?"""

from __future__ import annotations

from collections.abc import Mapping

from vpatch.gates.engine import ASKED, IDS, Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised, unread
from vpatch.gates.machine import Path
from vpatch.gates.registry import class_at
from vpatch.gates.steps import (
    RUNNERS,
    config_checks,
    layers_of,
    post_init,
    runner_class,
    set_layers,
)
from vpatch.gates.values import Foreign, Native, Obj, Unknown, Value, show

NUMBERING = "eagle_aux_hidden_state_layer_numbering"
_IMPOSSIBLE = ((1, 3, 99), (1, 1, 7), (3, 1, 7))


def taken(subject: Subject, start: Start) -> Path:
    """Which layers the target is told, by the runner."""

    def ask(made: Scene) -> Value:
        target = made.target()
        set_layers(made, subject.runner, target)
        return layers_of(target)

    return subject.way(start, ask)


def _reaches(subject: Subject, start: Start) -> Found:
    way = taken(subject, start)
    if way.thrown is not None or way.value is None or isinstance(way.value, Unknown):
        # The gate `interface` says why; what is read can still be told.
        return _read(subject, start)
    if tuple(way.value) == start.ids:
        return Found("pass", _readers(subject))
    return _ignored(subject, start, show(way.value))


def _read(subject: Subject, start: Start) -> Found:
    of = runner_class(subject.program, subject.runner)
    found = of.method("_get_eagle3_aux_layers_from_config")
    if found is None:
        return Found("not-applicable", note="the runner has no reader of its own")

    def ask(made: Scene) -> Value:
        actor = Obj(of, of.name, {"speculative_config": made.speculative})
        reader = made.run.attribute(actor, "_get_eagle3_aux_layers_from_config")
        return made.run.call(reader, [], {})

    way = subject.way(start, ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    if way.value == start.ids:
        return Found("pass", _readers(subject))
    return _ignored(subject, start, "the target's default layers")


def _ignored(subject: Subject, start: Start, instead: str) -> Found:
    where = {
        "nested": "eagle_config",
        "top": "the top level",
        "layer_ids": "eagle_config.layer_ids",
    }
    default = ", which is the default" if subject.runner == subject.default_runner else ""
    note = (
        f"ids {list(start.ids or ())} in {where[start.place]} are ignored by the "
        f"{subject.runner.upper()} runner{default}: {instead} are taken"
    )
    return Found("fail", _readers(subject), "", "never", note)


def _readers(subject: Subject) -> tuple[Evidence, ...]:
    program = subject.program
    module = program.module(RUNNERS[subject.runner])
    places = [(runner_class(program, subject.runner).methods, module)]
    utils = program.module("vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils")
    if subject.runner == "v2" and utils is not None:
        places.append((utils.functions, utils))
    for functions, where in places:
        for name, node in functions.items():
            if "aux_layers_from_config" in name and where is not None:
                return (Evidence(where.path, node.lineno, f"def {name}"),)
    return ()


def _nested(subject: Subject) -> Found:
    return _reaches(subject, Start(place="nested"))


def _top(subject: Subject) -> Found:
    return _reaches(subject, Start(place="top"))


def _layer_ids(subject: Subject) -> Found:
    return _reaches(subject, Start(place="layer_ids"))


def _refused(subject: Subject) -> Found:
    def ask(made: Scene) -> Value:
        return config_checks(made)

    for ids in _IMPOSSIBLE:
        plain = subject.way(Start(), ask)
        way = subject.way(Start(ids=ids), ask)
        texts = [each.thrown.text for each in (plain, way) if each.thrown is not None]
        if len(texts) == 2 and texts[0] == texts[1]:  # noqa: PLR2004 - both are refused
            return Found("not-applicable", note="the config refuses every drafter")
        if way.thrown is None:
            of = runner_class(subject.program, subject.runner)
            evidence = Evidence(of.module.path, of.node.lineno, "no check before weights load")
            note = f"ids {list(ids)} of eight layers are not refused at the config"
            return Found("fail", (evidence,), "", "never", note)
        refused = subject.evidence(way.thrown.place)
        if way.thrown.kind != "ValueError" or str(ids[-1]) not in way.thrown.text:
            return raised(subject, way.thrown, "config", "refused, but not for its layers")
    return Found("pass", (refused,))


def _warned(subject: Subject) -> Found:
    def ask(made: Scene) -> Value:
        config_checks(made)
        target = made.target()
        set_layers(made, subject.runner, target)
        return layers_of(target)

    way = subject.way(Start(ids=None), ask)
    if way.thrown is not None or way.value is None:
        return Found("not-applicable", note="the layers do not reach the target")
    layers = show(list(way.value)) if isinstance(way.value, (list, tuple)) else "default"
    said = [text for level, text in way.said if level == "warning" and "layer" in text]
    if any("default" in text or layers[1:-1] in text for text in said):
        return Found("pass", _readers(subject))
    note = f"a drafter without ids gets layers {show(way.value)} without a warning"
    return Found("fail", _readers(subject), "", "never", note)


def _numbering(subject: Subject) -> Found:
    outputs = tuple(each - 1 for each in ASKED)
    start = Start(ids=outputs, place="top", extra=((NUMBERING, "layer-output"),))
    way = taken(subject, start)
    if way.thrown is not None or way.value is None or isinstance(way.value, Unknown):
        return Found("not-applicable", note="the layers do not reach the target")
    if tuple(way.value) == ASKED:
        return Found("pass", _readers(subject))
    note = "ids that name a layer's output, as SGLang's do, are read as naming its input"
    return Found("fail", _readers(subject), "", "never", note)


_GIVEN = (1, 3, 8)


def _overridden(subject: Subject) -> Found:
    """Ids in --speculative-config, and their numbering, in place of those of the drafter."""
    of = class_at(subject.program, "vllm.config.speculative", "SpeculativeConfig")
    if IDS not in of.values:
        return Found("not-applicable", note="--speculative-config of this release names no layers")
    given = {IDS: list(_GIVEN)}
    numbered = {NUMBERING: "layer-output"}
    outputs = Start(ids=tuple(each - 1 for each in ASKED))
    for start, options, wanted in ((Start(), given, _GIVEN), (outputs, numbered, ASKED)):
        way = _with_options(subject, start, options)
        if way.thrown is not None:
            return raised(subject, way.thrown, "config")
        if isinstance(way.value, Unknown) or way.value is None:
            return Found("not-applicable", note="the layers do not reach the target")
        if tuple(way.value) != wanted:
            note = f"{options} in --speculative-config is ignored: {show(way.value)} are taken"
            return Found("fail", _readers(subject), "", "never", note)
    return Found("pass", _readers(subject))


def _with_options(subject: Subject, start: Start, options: Mapping[str, Value]) -> Path:
    def ask(made: Scene) -> Value:
        made.speculative.attrs.update({IDS: None, NUMBERING: None, **options})
        post_init(made, IDS)
        config_checks(made)
        target = made.target()
        set_layers(made, subject.runner, target)
        return layers_of(target)

    return subject.way(start, ask)


def _cache_key(subject: Subject) -> Found:
    def ask(made: Scene) -> Value:
        run = made.run
        draft = made.speculative.attrs["draft_model_config"]
        # The whole config has a hash of its own, which covers all that is in it.
        ids = made.start.ids
        draft.attrs["compute_hash"] = _constant(f"hash of {ids}")
        seen: list[Value] = []
        run.known = {**run.known, "safe_hash": _recorder(seen)}
        run.call(run.attribute(made.speculative, "compute_hash"), [], {})
        return seen[0] if seen else None

    keys = []
    for ids in (ASKED, (2, 4, 6)):
        way = subject.way(Start(ids=ids), ask)
        if way.thrown is not None or not isinstance(way.value, bytes):
            return unread("the key cannot be followed")
        keys.append(way.value)
    of = class_at(subject.program, "vllm.config.speculative", "SpeculativeConfig")
    evidence = (Evidence(of.module.path, of.node.lineno, f"{of.name}.compute_hash"),)
    if keys[0] != keys[1]:
        return Found("pass", evidence)
    if _nested(subject).word == "fail":
        return Found("not-applicable", note="nobody reads these ids")
    note = "two drafters with other nested ids share one compiled graph"
    return Found("fail", evidence, "", "never", note)


def _constant(value: str) -> Value:
    return Native("compute_hash", lambda _run: value)


def _recorder(seen: list[Value]) -> Value:
    def record(_run: object, value: Value, **_how: Value) -> Value:
        seen.append(value)
        return Foreign("hash")

    return Native("safe_hash", record)


GATES = (
    Gate(
        name="ids-nested",
        asks="ids in eagle_config, where public Kimi drafters keep them, reach the runner",
        group="start",
        topic="aux-layers",
        upstream="",
        check=_nested,
    ),
)
OPTIONS = (
    Gate(
        name="ids-top",
        asks="ids at the config's top level reach the runner",
        group="option",
        topic="aux-layers",
        upstream="v0.15.0",
        check=_top,
    ),
    Gate(
        name="ids-layer-ids",
        asks="ids as eagle_config.layer_ids reach the runner",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_layer_ids,
    ),
    Gate(
        name="ids-numbering",
        asks="ids in layer-output numbering can say so",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_numbering,
    ),
    Gate(
        name="ids-override",
        asks="ids and numbering in --speculative-config take the place of the drafter's own",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_overridden,
    ),
    Gate(
        name="ids-refused",
        asks="ids that cannot be right are refused before weights load",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_refused,
    ),
    Gate(
        name="ids-default",
        asks="a drafter without ids gets the default layers with a warning",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_warned,
    ),
    Gate(
        name="cache-key",
        asks="the compile cache key covers the ids",
        group="option",
        topic="aux-layers",
        upstream="v0.26.0",
        check=_cache_key,
    ),
)
