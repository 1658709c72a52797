"""What a drafter embeds, and where it looks for its tokens: followed in the code that drafts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vpatch.gates.classes import Class, make_class
from vpatch.gates.drafter import build
from vpatch.gates.engine import TOKENS, WIDTH, Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised, unread
from vpatch.gates.modules import Function, Module
from vpatch.gates.registry import registered_class
from vpatch.gates.stand_ins import states
from vpatch.gates.steps import RUNNERS, calls_of, proposer_class, run_statements
from vpatch.gates.values import UNKNOWN, Code, Native, Obj, Tensor, Value
from vpatch.gates.walk import walk
from vpatch.gates.way import DRAFTERS, below

_V2 = "vllm/v1/worker/gpu/spec_decode/"
_GREEDY = {"v1": ("_greedy_sample",), "v2": ("sample_draft",)}
_WAYS = 64
_DRAFTED = 32  # of the 64 tokens of the target
_PADDED = "prepare_next_token_ids_padded"
# Tokens 6 to 12 of a prompt of 19 are computed: what comes next is its token 13.
_COMPUTED, _SCHEDULED, _PROMPT = 6, 7, 19
_KEY = "use_multimodal_embeddings"
_MERGE = "_merge_multimodal_embeddings"


def _within_vocabulary(subject: Subject) -> Found:
    drafter = registered_class(subject.program, DRAFTERS[0])
    place = next(_places(subject, _GREEDY[subject.runner]), None)
    if drafter is None or place is None:
        return Found("not-applicable", note="this release has no method of its own that drafts")
    of, owner, method = place

    def ask(made: Scene) -> Value:
        whole: list[bool] = []
        model = _reduced(made, drafter, whole)
        actor = Obj(of, of.name, _settings(made, model))
        _prepare(made, actor, method)
        arguments = [states("h"), *(UNKNOWN for _ in method.args.args[2:])]
        known = {"draft_logits": None}
        given = [known.get(a.arg, v) for a, v in zip(method.args.args[1:], arguments, strict=True)]
        made.run.call(Code(owner.module, method, owner), [actor, *given], {})
        return bool(whole)

    evidence = (Evidence(owner.module.path, method.lineno, f"def {method.name}"),)
    ways = subject.ways(Start(), ask, limit=_WAYS)
    if any(way.thrown is None and way.value is False for way in ways):
        return Found("pass", evidence)
    note = "a reduced draft vocabulary is spread over the target's in every step: slow, not wrong"
    return Found("fail", evidence, "", "never", note)


def _reduced(made: Scene, of: Class, whole: list[bool]) -> Obj:
    """A drafter with a vocabulary of its own, and whether its logits over the target's are made."""

    def logits(_run: object, *_args: Value, **_how: Value) -> Value:
        whole.append(True)
        return states("logits")

    model = build(made, of)
    head = Obj(None, "ParallelLMHead", {"org_vocab_size": _DRAFTED})
    processor = Obj(
        None,
        "LogitsProcessor",
        {"scale": 1.0, "__call__": Native("logits", lambda _run, *_args, **_how: states("own"))},
    )
    model.attrs.update(
        compute_logits=Native("compute_logits", logits),
        draft_id_to_target_id=Tensor("d2t", (_DRAFTED,), "torch.int64"),
        lm_head=head,
        logits_processor=processor,
    )
    return model


def _settings(made: Scene, model: Obj) -> dict[str, Value]:
    return {
        "model": model,
        "method": "eagle3",
        "vllm_config": made.config,
        "speculative_config": made.speculative,
        "use_local_argmax_reduction": False,
        "use_heterogeneous_vocab": False,
        "use_acceptance_estimator": False,
        "acceptance_estimator": None,
    }


def _prepare(made: Scene, actor: Obj, method: Function) -> None:
    """What load_model sets that the method reads, itself or in what it calls of its own."""
    of = actor.of
    found = of.method("load_model") if of else None
    if of is None or found is None:
        return
    named = {each.attr for each in walk(method) if isinstance(each, ast.Attribute)}
    called = [inner[1] for name in named if (inner := of.method(name)) is not None]
    own = [each for one in (method, *called) for each in walk(one) if _is_own(each)]
    read = {each.attr for each in own if isinstance(each, ast.Attribute)} - actor.attrs.keys()
    for node in found[1].body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Attribute) and _is_own(t) and t.attr in read for t in targets):
            names: dict[str, Value] = {"self": actor, "*self": actor}
            run_statements(made, found[0].module, found[0], [node], names)


def _is_own(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _places(subject: Subject, names: tuple[str, ...]) -> Iterator[tuple[Class, Class, Function]]:
    """The class that drafts, and its method of one of these names with the class that has it."""
    program = subject.program
    if subject.runner == "v1":
        every = [proposer_class(program)]
    else:
        modules = [program.at(path) for path in below(subject, (_V2,)) if path.endswith("or.py")]
        every = [make_class(program, m, node) for m in modules if m for node in m.classes.values()]
        every.sort(key=lambda of: -len(of.mro))  # the nearest to a drafter first
        every = [of for of in every if of.method("load_model")]
    for of in every:
        for name in names:
            found = of.method(name)
            if found is not None and (subject.runner == "v1" or name in found[0].methods):
                yield of, *found


def _after_a_chunk(subject: Subject) -> Found:
    of = proposer_class(subject.program)
    found = of.method(_PADDED)
    if found is None:
        return Found("not-applicable", note="the V1 proposer pads no batches")
    owner, method = found
    given = _is_given(subject, method)
    asked: list[Value] = []

    def ask(made: Scene) -> Value:
        asked.clear()
        values = _chunk(asked, given=given)
        arguments = [values.get(each.arg, UNKNOWN) for each in method.args.args[1:]]
        actor = Obj(of, of.name, {})
        return made.run.call(Code(owner.module, method, owner), [actor, *arguments], {})

    subject.way(Start(), ask)
    evidence = (Evidence(owner.module.path, method.lineno, f"def {_PADDED}"),)
    if not asked:
        return unread("which token follows a part of a prompt cannot be followed", evidence)
    if asked[0] == _COMPUTED + _SCHEDULED:
        return Found("pass", evidence, note="" if subject.runner == "v1" else "V1 runner only")
    note = (
        f"V1: after tokens {_COMPUTED} - {_COMPUTED + _SCHEDULED - 1} of a prompt of {_PROMPT} the "
        f"drafter embeds token {asked[0]}, not {_COMPUTED + _SCHEDULED}"
    )
    return Found("fail", evidence, "", "never", note)


def _chunk(asked: list[Value], *, given: bool) -> dict[str, Value]:
    def token(_run: object, index: Value) -> Value:
        asked.append(index)
        return UNKNOWN

    end = _COMPUTED + _SCHEDULED
    request = Obj(
        None,
        "CachedRequestState",
        {"num_computed_tokens": _COMPUTED, "get_token_id": Native("get_token_id", token)},
    )
    length = Obj(None, "length", {"item": Native("item", lambda _run: end)})
    batch = {"num_reqs": 1, "req_ids": ["r"], "num_tokens_no_spec": [_PROMPT]}
    return {
        "requests": {"r": request},
        "gpu_input_batch": Obj(None, "InputBatch", batch),
        "num_scheduled_tokens": {"r": _SCHEDULED} if given else None,
        "common_attn_metadata": Obj(None, "Metadata", {"seq_lens_cpu": [length]}),
        "seq_lens_cpu": [length],
    }


def _is_given(subject: Subject, method: Function) -> bool:
    """Whether the V1 runner says how many tokens of a request are scheduled."""
    runner = subject.program.module(RUNNERS["v1"])
    names = [each.arg for each in method.args.args[1:]]
    if runner is None or "num_scheduled_tokens" not in names:
        return False
    place = names.index("num_scheduled_tokens")
    return any(
        len(call.args) > place or any(each.arg == "num_scheduled_tokens" for each in call.keywords)
        for call in calls_of(runner.body)
        if isinstance(call.func, ast.Attribute) and call.func.attr == _PADDED
    )


def _images(subject: Subject) -> Found:
    if subject.program.module("vllm.v1.spec_decode.llm_base_proposer") is None:
        return Found("not-applicable", note="runners of this release hand no images to drafters")
    for name in DRAFTERS:
        of = registered_class(subject.program, name)
        if of is not None:
            found = _embeds(subject, of, mla=name != DRAFTERS[0])
            if found.word != "pass":
                return found
    return Found("pass")


def _embeds(subject: Subject, of: Class, *, mla: bool) -> Found:
    merged: list[bool] = []

    def merge(_run: object, *_args: Value, **_how: Value) -> Value:
        merged.append(True)
        return states("merged")

    def ask(made: Scene) -> Value:
        merged.clear()
        made.run.known = {**made.run.known, _MERGE: Native(_MERGE, merge)}
        drafter = build(made, of)
        tokens = Tensor("tokens", (TOKENS,), "torch.int64")
        given = [tokens, [Tensor("image", (1, WIDTH))], Tensor("mask", (TOKENS,), "torch.bool")]
        made.run.call(made.run.attribute(drafter, "embed_input_ids"), given, {})
        return made.run.attribute_or(drafter, "supports_multimodal_embeddings", False)

    way = subject.way(Start(mla=mla, extra=((_KEY, True),)), ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "first step")
    evidence = (_place(of),)
    if merged and way.value is True:
        return Found("pass", evidence)
    note = f"{of.name} embeds the placeholder token at an image, whatever {_KEY} says"
    return Found("fail", evidence, "", "never", note)


def _place(of: Class) -> Evidence:
    found = of.method("embed_input_ids")
    module: Module = found[0].module if found else of.module
    node: ast.stmt = found[1] if found else of.node
    return Evidence(module.path, node.lineno, f"{of.name}.embed_input_ids")


OPTIONS = (
    Gate(
        name="drafter-chunks",
        asks="after a part of a prompt the drafter embeds the prompt's next token",
        group="option",
        topic="drafter-mm",
        upstream="",
        check=_after_a_chunk,
    ),
    Gate(
        name="drafter-images",
        asks="a drafter that was trained with images gets their embeddings",
        group="option",
        topic="drafter-mm",
        upstream="",
        check=_images,
    ),
    # No error and no wrong state: a cost.
    Gate(
        name="draft-vocabulary",
        asks="a reduced draft vocabulary is searched as it is",
        group="code",
        topic="draft-logits",
        upstream="",
        check=_within_vocabulary,
    ),
)
