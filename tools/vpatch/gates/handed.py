"""Does the runner hand the target's states on to the drafter: all, in order, side by side?"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from vpatch.gates.engine import ASKED, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, unread
from vpatch.gates.machine import Machine, paths
from vpatch.gates.modules import Module
from vpatch.gates.stand_ins import stand_ins, states
from vpatch.gates.steps import RUNNERS
from vpatch.gates.values import UNKNOWN, Tensor, Value
from vpatch.gates.walk import walk
from vpatch.gates.way import below

AUX = "aux_hidden_states"
_BUILTINS = frozenset(dir(builtins))
_JOINER = "side_by_side"
"""The topic collection's: a join that copies nothing where the states are columns of a buffer."""
_FOLDERS = {"v1": (), "v2": ("vllm/v1/worker/gpu/spec_decode/",)}


def _handed_on(subject: Subject) -> Found:
    joined = 0
    for module in _modules(subject):
        for node in walk(module.body):
            if isinstance(node, ast.Assign) and _is_swapped(node):
                note = "hidden states and aux hidden states are taken for each other"
                return _wrong(module, node, note)
            if isinstance(node, ast.Call) and _joins(node):
                joined += 1
                note = _misjoined(subject, module, node)
                if note:
                    return _wrong(module, node, note)
    if joined:
        return Found("pass")
    note = "nothing of the runner puts the aux states side by side"
    return unread(note)


def _wrong(module: Module, node: ast.expr | ast.stmt, note: str) -> Found:
    text = ast.unparse(node).split("\n", 1)[0][:100]
    return Found("fail", (Evidence(module.path, node.lineno, text),), "", "never", note)


def _modules(subject: Subject) -> Iterator[Module]:
    program, tree = subject.program, subject.program.tree
    runner = program.module(RUNNERS[subject.runner])
    if runner is not None:
        yield runner
    for path in below(subject, _FOLDERS[subject.runner]):
        if AUX.encode() in (tree.read(path) or b""):
            module = program.at(path)
            if module is not None:
                yield module


def _is_swapped(node: ast.Assign) -> bool:
    """``aux_hidden_states, hidden_states = model_output``: a pair the wrong way round."""
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Name):
        return False
    names = [each.id for each in target.elts if isinstance(each, ast.Name)]
    return names[:1] == [AUX]


def _joins(node: ast.Call) -> bool:
    """``torch.cat`` of the aux states, or what stands in its place."""
    function = node.func
    plain = isinstance(function, ast.Attribute) and function.attr in {"cat", "concat"}
    if not plain and not _is_joiner(node):
        return False
    return bool(node.args) and any(
        isinstance(each, ast.Name) and each.id == AUX for each in walk(node.args[0])
    )


def _is_joiner(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == _JOINER


def _as_cat(node: ast.Call) -> ast.Call:
    """What the joiner does where it copies."""
    call = ast.parse("torch.cat(None, dim=-1)", mode="eval").body
    assert isinstance(call, ast.Call)  # noqa: S101
    call.args = [node.args[0]]
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _misjoined(subject: Subject, module: Module, node: ast.Call) -> str:
    """What is wrong with a join; empty where nothing is."""
    node = _as_cat(node) if _is_joiner(node) else node
    dim = next((each.value for each in node.keywords if each.arg == "dim"), None)
    dim = node.args[1] if dim is None and len(node.args) > 1 else dim
    if dim is None or ast.unparse(dim) not in {"-1", "1"}:
        return "the aux states are put behind each other, as more tokens, not side by side"
    given = [states(f"state{number}") for number in range(len(ASKED))]
    own = {each.id for each in walk(node) if isinstance(each, ast.Name)}
    local: dict[str, Value] = {name: UNKNOWN for name in own if not module.defines(name)}

    def ask(machine: Machine) -> Value:
        machine.module = module
        names = {name: worth for name, worth in local.items() if name not in _BUILTINS}
        return machine.expression(node, {**names, AUX: list(given)})

    way = paths(subject.program, ask, stand_ins(Start()), 1)[0]
    wanted = f"[{', '.join(each.text for each in given)}]"
    if isinstance(way.value, Tensor) and way.value.text == wanted:
        return ""
    if isinstance(way.value, Tensor):
        return f"of the states {wanted} the drafter gets {way.value.text}"
    return "how the aux states are put together cannot be followed"


GATES = (
    Gate(
        name="handed-on",
        asks="the runner puts the states of the asked layers side by side for the drafter",
        group="start",
        topic="",
        upstream="",
        check=_handed_on,
    ),
)
