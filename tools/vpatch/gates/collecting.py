"""What the gate `collection` puts in: the collection's own modules, a config, a target's layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from vpatch.gates.classes import Class, class_of
from vpatch.gates.engine import WIDTH, Scene
from vpatch.gates.gate import Evidence, Subject, When
from vpatch.gates.machine import Machine
from vpatch.gates.modules import Function, Module, Program
from vpatch.gates.registry import MissingPart, class_at
from vpatch.gates.values import UNKNOWN, Code, Native, Obj, Tensor, Thrown, Value
from vpatch.gates.walk import walk

OPTION = "hidden_states_collection"
BUFFER = "vllm.model_executor.layers.hidden_states_buffer"
CONFIG = "vllm.config.hidden_states_collection"
PROTOCOL = "vllm.v1.hidden_states.protocol"
SCHEDULER = "vllm.v1.hidden_states.scheduler"
COLLECTOR = "vllm.v1.hidden_states.collector"
METRICS = "vllm.v1.hidden_states.metrics"
OWN = (BUFFER, CONFIG, PROTOCOL, SCHEDULER, COLLECTOR, METRICS)
LAYERS = (1, 4, 8)  # of a target of eight layers: the last is the last one's output
ROWS = 5  # of the one request
REQUEST = "r"
MAKE = "make_collector"


class Broken(Exception):  # noqa: N818
    """A link of the way that does not hold.

    Attributes:
        link: Its name; what a user gets is worded elsewhere.
        detail: What was found instead.
        thrown: What the tree's own code raises; ``when`` says when it does.
    """

    def __init__(
        self,
        link: str,
        evidence: Evidence,
        detail: str = "",
        thrown: Thrown | None = None,
        when: When = "never",
    ) -> None:
        super().__init__(link)
        self.link, self.evidence, self.detail = link, evidence, detail
        self.thrown, self.when = thrown, when


def line(of: Class | Module, node: ast.AST | None, text: str = "") -> Evidence:
    """A node as evidence; the first line of the class or the module where there is none."""
    module = of.module if isinstance(of, Class) else of
    number = getattr(node, "lineno", of.node.lineno if isinstance(of, Class) else 1)
    said = text or (ast.unparse(node).split("\n", 1)[0][:100] if node is not None else of_name(of))
    return Evidence(module.path, number, said)


def says(node: ast.AST, text: str) -> bool:
    """Whether a node is a text."""
    return isinstance(node, ast.Constant) and node.value == text


def of_name(of: Class | Module) -> str:
    """What it is called."""
    return f"class {of.name}" if isinstance(of, Class) else of.dotted


def read_ahead(subject: Subject, modules: tuple[str, ...]) -> None:
    """Reads files of modules at once."""
    subject.program.tree.read_ahead([f"{each.replace('.', '/')}.py" for each in modules])


def module_at(program: Program, dotted: str) -> Module:
    """A module.

    Raises:
        MissingPart: There is none.
    """
    found = program.module(dotted)
    if found is None:
        raise MissingPart(dotted)
    return found


def method_of(of: Class, name: str) -> Function:
    """A method.

    Raises:
        MissingPart: The class has none.
    """
    found = of.method(name)
    if found is None:
        raise MissingPart(f"{of.name}.{name}")
    return found[1]


def check_methods(of: Class, names: tuple[str, ...]) -> None:
    """A class has what others call on it.

    Raises:
        Broken: It has not.
    """
    for name in names:
        if not of.has(name):
            detail = f"'{of.name}' object has no attribute '{name}'"
            raise Broken("attribute", line(of, None), detail)


def attrs_of(value: Value) -> Mapping[str, Value]:
    """What is known of an instance."""
    return value.attrs if isinstance(value, Obj) else {}


def held_by(of: Class) -> str:
    """The runner's attribute that its collector is in."""
    for node in walk(of.node):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if getattr(node.value.func, "id", "") == MAKE and isinstance(target, ast.Attribute):
                return target.attr
    return ""


def check_imports(program: Program, users: tuple[str, ...]) -> None:
    """Every name that is taken of the collection's own modules is there.

    Raises:
        Broken: One is not.
    """
    for dotted in (*OWN, *users):
        module = module_at(program, dotted)
        for imported in module.imports.values():
            if imported.module not in OWN:
                continue
            source = module_at(program, imported.module)
            if imported.name is not None and not source.defines(imported.name):
                text = f"cannot import name '{imported.name}' from '{imported.module}'"
                evidence = Evidence(module.path, _line_of(module, imported.name), text)
                raise Broken("import", evidence, text)


def _line_of(module: Module, name: str) -> int:
    return next(
        (
            node.lineno
            for node in module.statements
            if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}
        ),
        1,
    )


def own_names(run: Machine) -> dict[str, Value]:
    """What the collection's own modules define, followed as it is."""
    found: dict[str, Value] = {}
    for dotted in (PROTOCOL, SCHEDULER, BUFFER, COLLECTOR):
        module = module_at(run.program, dotted)
        found.update({name: Code(module, node) for name, node in module.functions.items()})
        for name in module.classes:
            of = class_of(run.program, module, name)
            if of is not None:
                found[name] = _maker(of)
        for name, value in module.assigned.items():
            if isinstance(value, ast.Constant):
                found[name] = value.value
    return {
        **found,
        "torch.zeros": Native("zeros", _zeros),
        "get_tensor_model_parallel_rank": Native("rank", lambda _run: 0),
        "secrets.token_hex": Native("token_hex", lambda _run, _count: "00"),
    }


def _zeros(_run: Machine, *shape: Value, **_how: Value) -> Value:
    return Tensor("buffer", shape)


def _maker(of: Class) -> Native:
    records = any("dataclass" in ast.unparse(each) for each in of.node.decorator_list)
    return Native(
        of.name, lambda run, *args, **how: (_record if records else make)(run, of, *args, **how)
    )


def make(run: Machine, of: Class, *args: Value, **how: Value) -> Obj:
    """An instance, by its own constructor."""
    made = Obj(of, of.name)
    found = of.method("__init__")
    if found is not None:
        run.call(Code(found[0].module, found[1], found[0]), [made, *args], how)
    return made


def _record(run: Machine, of: Class, *args: Value, **how: Value) -> Obj:
    """An instance of a dataclass."""
    names = list(of.values)
    given = {**dict(zip(names, args, strict=False)), **how}
    if len(args) > len(names) or given.keys() - set(names):
        extra = next(iter(given.keys() - set(names)), "")
        text = f"{of.name}.__init__() got an unexpected keyword argument '{extra}'"
        raise run.throw("TypeError", text)
    for name, value in of.values.items():
        if name in given:
            continue
        if value is None:
            text = f"{of.name}.__init__() missing 1 required positional argument: '{name}'"
            raise run.throw("TypeError", text)
        given[name] = _default(run, of, value)
    return Obj(of, of.name, given)


def _default(run: Machine, of: Class, value: ast.expr) -> Value:
    if isinstance(value, ast.Call):
        kinds = {"list": list, "dict": dict}
        factories = (ast.unparse(e.value) for e in value.keywords if e.arg == "default_factory")
        kind = kinds.get(next(factories, ""))
        return kind() if kind else UNKNOWN
    return run.in_module(of.module, value)


def collected(made: Scene, layers: tuple[int, ...] = LAYERS) -> Obj:
    """The engine's config, with the option."""
    of = class_at(made.program, CONFIG, "HiddenStatesCollectionConfig")
    option = {"dir": "/states", "layers": list(layers), "requests": "asked", "write": True}
    model = made.config.attrs["model_config"]
    widths = {"get_hidden_size": Native("get_hidden_size", lambda _run: WIDTH)}
    parallel = made.config.attrs["parallel_config"]
    ranks = {"use_sequence_parallel_moe": False, "data_parallel_index": 0}
    attrs: Mapping[str, Value] = {
        **made.config.attrs,
        OPTION: Obj(of, of.name, option),
        "model_config": Obj(
            model.of, model.name, {**model.attrs, **widths, "runner_type": "generate"}
        ),
        "parallel_config": Obj(parallel.of, parallel.name, {**parallel.attrs, **ranks}),
        "scheduler_config": Obj(
            None, "SchedulerConfig", {"max_num_batched_tokens": 64, "max_num_seqs": 4}
        ),
        "compilation_config": Obj(
            None,
            "CompilationConfig",
            {"pass_config": Obj(None, "PassConfig", {"enable_sp": False})},
        ),
        "num_speculative_tokens": 3,
    }
    return Obj(made.config.of, made.config.name, dict(attrs))


def calls_of_attribute(node: ast.AST, owner: str, name: str) -> Iterator[ast.Call]:
    """The calls ``...OWNER.NAME(...)`` or ``OWNER.NAME(...)`` below a node, in their order."""
    found = [
        each
        for each in walk(node)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == name
        and owner in {getattr(each.func.value, "attr", ""), getattr(each.func.value, "id", "")}
    ]
    yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))
