"""What a start with a drafter goes through: modules, classes, and those functions that count."""

from __future__ import annotations

import ast
import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from vpatch.gates.classes import Class, class_of, make_class
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Subject
from vpatch.gates.modules import Function, Module
from vpatch.gates.registry import MODELS, MissingPart, class_at, registered_class
from vpatch.gates.steps import RUNNERS, proposer_class, runner_class
from vpatch.gates.values import Obj, Value
from vpatch.gates.walk import walk

DRAFTERS = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
ABOUT = ("eagle", "aux_", "draft")
_ASKING = ("vllm/v1/worker/", "vllm/v1/spec_decode/")
# Of a large module, and of what helps all models, only what has to do with drafters is read.
_LARGE = 60_000
_HELPERS = f"{MODELS}.utils"
# Whatever asks a drafter for something is found by what it asks; these hand it on.
_MORE = (
    "vllm.config.speculative",
    "vllm.config.vllm",
    "vllm.transformers_utils.eagle3",
    "vllm.transformers_utils.configs.speculators.algos",
    f"{MODELS}.interfaces",
    _HELPERS,
    "vllm.v1.worker.gpu.spec_decode",
    "vllm.v1.worker.gpu.spec_decode.speculator",
    "vllm.v1.worker.gpu.spec_decode.eagle.utils",
    *RUNNERS.values(),
)


def below(subject: Subject, folders: Iterable[str]) -> Iterator[str]:
    """The files below some folders, in order, read in one go."""
    tree = subject.program.tree
    paths = sorted(path for folder in folders for path in tree.below(folder))
    tree.read_ahead(paths)
    return iter(paths)


def target_classes(subject: Subject) -> list[Class]:
    """The classes of the target, outermost first, as its constructor makes them."""

    def ask(made: Scene) -> Value:
        found: list[Class] = []
        model: Value = made.target()
        for name in ("language_model", "model", ""):
            if isinstance(model, Obj) and model.of is not None and model.of not in found:
                found.append(model.of)
            model = model.attrs.get(name, model) if isinstance(model, Obj) and name else model
        if isinstance(model, Obj) and model.of is not None and model.of not in found:
            found.append(model.of)
        return found

    def make() -> list[Class]:
        value = subject.way(Start(), ask).value
        fallback = [
            class_at(subject.program, f"{MODELS}.kimi_k25", "KimiK25ForConditionalGeneration")
        ]
        return value or fallback

    classes: list[Class] = subject.keep("target classes", make)
    return classes


def asking_modules(subject: Subject) -> list[Module]:
    """The modules that ask a target or a drafter for something."""
    tree = subject.program.tree
    chosen = []
    for path in below(subject, _ASKING):
        data = tree.read(path) or b""
        if path.endswith("/eagle3_utils.py") or b"combine_hidden_states" in data:
            chosen.append(path)
    runner = RUNNERS[subject.runner].replace(".", "/") + ".py"
    modules = [subject.program.at(path) for path in dict.fromkeys([runner, *chosen])]
    return [each for each in modules if each is not None]


def modules(subject: Subject) -> list[Module]:
    """All modules on the way."""
    found: list[Module] = subject.keep("modules on the way", lambda: _find_modules(subject))
    return found


def _find_modules(subject: Subject) -> list[Module]:
    program = subject.program
    named = [
        *(program.module(name) for name in _MORE),
        *(of.module for of in classes(subject)),
        *asking_modules(subject),
    ]
    found = {each.dotted: each for each in named if each is not None}
    imported = {each.module for module in found.values() for each in module.imports.values()}
    paths = [each.replace(".", "/") for each in imported if each.startswith("vllm")]
    program.tree.read_ahead([f"{p}{end}" for p in paths for end in (".py", "/__init__.py")])
    return list(found.values())


def classes(subject: Subject) -> list[Class]:
    """The classes that a start makes, each as it is made: with what its bases bring."""
    found: list[Class] = subject.keep("classes on the way", lambda: _find_classes(subject))
    return found


def _find_classes(subject: Subject) -> list[Class]:
    program = subject.program
    found = [*target_classes(subject), *drafter_classes(subject)]
    with contextlib.suppress(MissingPart):
        found.append(proposer_class(program))
    with contextlib.suppress(MissingPart):
        found.append(runner_class(program, subject.runner))
    speculative = program.module("vllm.config.speculative")
    config = class_of(program, speculative, "SpeculativeConfig") if speculative else None
    return [*dict.fromkeys(found), *([config] if config else [])]


def drafter_classes(subject: Subject) -> list[Class]:
    """The drafters' classes, those of their layers among them."""
    program = subject.program
    found: list[Class] = []
    for name in DRAFTERS:
        drafter = registered_class(program, name)
        if drafter is not None:
            inside = drafter.module.classes.values()
            found += [drafter, *(make_class(program, drafter.module, each) for each in inside)]
    return [*dict.fromkeys(found)]


def functions(subject: Subject, module: Module) -> list[Function]:
    """The functions of a module that are read, those of classes too."""
    found: list[Function] = subject.keep(
        f"functions of {module.dotted}", lambda: _find_functions(subject, module)
    )
    return found


def _find_functions(subject: Subject, module: Module) -> list[Function]:
    every = [*module.functions.values()]
    for of in module.classes.values():
        every += [each for each in of.body if isinstance(each, Function)]
    data = subject.program.tree.read(module.path) or b""
    if len(data) < _LARGE and module.dotted != _HELPERS:
        return every
    words = [word.encode() for word in ABOUT]
    lines = [
        number
        for number, line in enumerate(data.split(b"\n"), 1)
        if any(word in line for word in words)
    ]
    return [
        each
        for each in every
        if bisect_left(lines, each.lineno) < bisect_right(lines, each.end_lineno or each.lineno)
    ]


def bound_names(subject: Subject, function: Function) -> set[str]:
    """The names that a function binds, those of what is inside it too."""
    found: set[str] = subject.keep(f"bound in {id(function)}", lambda: _bound_in(function))
    return found


def _bound_in(function: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.expr, ast.keyword)):
            continue
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found
