"""Small moves that mislead: a file, a patch on it, and what upstream made of the file.

The numbers are of the list of known traps that the tests follow (test_rebase_absorb.py,
test_guard_place.py): each was seen with git's or quilt's exit code 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Case:
    """A move, and what may come out of it without a word.

    Attributes:
        what: What misleads.
        before, after: Files before and after the patch.
        upstream: The new release.
        wanted: The files with the patch on the new release; None where a person has to look.
        leaves: The patch has nothing left to do, or only a part: that has to be said.
    """

    name: str
    what: str
    before: Files
    after: Files
    upstream: Files
    wanted: Files | None
    leaves: bool = False


def _function(name: str, *body: str) -> str:
    return f"def {name}(items):\n" + "".join(f"    {line}\n" for line in body) + "\n\n"


_START = ("seen = []", "count = 0", "total = 0", "for item in items:")
_END = ("    seen.append(item)", "    count += 1", "log(seen, count)", "return total")
_PLAIN = (*_START, "    total += item", *_END)
_TWICE = (*_START, "    total += 2 * item", *_END)
_HEAD = "import os\n\n\n"

_SHAPES = '''\
import math


class Circle:
    """Round."""

    def area(self):
        return math.pi * self.radius**2

    def scaled(self, factor):
        return Circle(self.radius * factor)


class Square:
    """Not round."""

    def area(self):
        return self.side**2

    def scaled(self, factor):
        return Square(self.side * factor)
'''
_CHECK = """\
        if factor <= 0:
            raise ValueError(factor)
        kind = type(self).__name__
        print(kind, factor)
"""
_STOP = "    def stop(self):\n        self.running = False\n        self.join()\n\n"
_WORKER = (
    "class Worker:\n    def start(self):\n        self.running = True\n\n"
    "    def step(self):\n        self.count += 1\n\n"
    "    def report(self):\n        return self.count\n\n"
    "    def name(self):\n        return 'worker'\n\n"
    "    def kind(self):\n        return 'plain'\n"
)
_BASE = "class Base:\n    def layers(self):\n        raise NotImplementedError\n"
_MODEL = (
    "from a.base import Base\n\n\nclass Model(Base):\n    def forward(self, x):\n        return x\n"
)
_LAYERS = "\n    def layers(self):\n        return (2, 4)\n"
_HELP = "def scale(x):\n    return 2 * x\n\n\n"
_USE = "def first(x):\n    return x\n\n\ndef second(x):\n    return x + 1\n"


def _checked(text: str, name: str) -> str:
    line = f"        return {name}("
    return text.replace(line, _CHECK + line)


def _case(
    name: str, what: str, before: str, after: str, upstream: str, wanted: str | None, **more: bool
) -> Case:
    def files(text: str) -> Files:
        return {"a/a.py": text.encode()}

    kept = files(wanted) if wanted is not None else None
    return Case(name, what, files(before), files(after), files(upstream), kept, **more)


_CIRCLE = _checked(_SHAPES, "Circle")
_IMPORT = "import math\nimport sys\n\nLIMIT = sys.maxsize\n"
_BOTH = _CIRCLE.replace("import math\n", _IMPORT)
_LOOP = ("for item in items:", "    use(item)")

CASES: tuple[Case, ...] = (
    _case(
        "23",
        "an append to a repetitive file, which upstream has",
        "entry\n" * 8,
        "entry\n" * 9,
        "entry\n" * 9,
        "entry\n" * 9,
        leaves=True,
    ),
    _case(
        "24",
        "upstream deletes f1, and f2 is like it",
        _HEAD + _function("f1", *_PLAIN) + _function("f2", *_PLAIN),
        _HEAD + _function("f1", *_TWICE) + _function("f2", *_PLAIN),
        _HEAD + _function("f2", *_PLAIN),
        None,
    ),
    _case(
        "26",
        "upstream has the same lines in another class",
        _SHAPES,
        _CIRCLE,
        _checked(_SHAPES, "Square"),
        _checked(_CIRCLE, "Square"),
    ),
    _case(
        "27",
        "upstream has the line at another indent",
        _function("f", *_LOOP, "return items"),
        _function("f", *_LOOP, "done(items)", "return items"),
        _function("f", *_LOOP, "    done(items)", "return items"),
        None,
    ),
    _case("29", "upstream has one of two hunks", _SHAPES, _BOTH, _CIRCLE, _BOTH, leaves=True),
    _case(
        "29b",
        "upstream has all of it",
        _SHAPES,
        _CIRCLE,
        _CIRCLE.replace("Round.", "Round as a ball."),
        _CIRCLE.replace("Round.", "Round as a ball."),
        leaves=True,
    ),
    _case(
        "twice",
        "upstream adds the same method elsewhere in the class",
        _WORKER,
        _WORKER + "\n" + _STOP.rstrip("\n") + "\n",
        _WORKER.replace("    def start", _STOP + "    def start"),
        None,
    ),
    Case(
        "override",
        "upstream renames the method that the patch overrides",
        {"a/base.py": _BASE.encode(), "a/model.py": _MODEL.encode()},
        {"a/base.py": _BASE.encode(), "a/model.py": (_MODEL + _LAYERS).encode()},
        {
            "a/base.py": _BASE.replace("layers", "aux_layers").encode(),
            "a/model.py": _MODEL.encode(),
        },
        None,
    ),
    _case(
        "name",
        "upstream removes the function that the patch calls",
        _HELP + _USE,
        _HELP + _USE.replace("return x + 1", "return scale(x) + 1"),
        _USE,
        None,
    ),
    Case(
        "moved",
        "upstream moves the file",
        {"a/a.py": _SHAPES.encode(), "a/b.py": b"b\n"},
        {"a/a.py": _CIRCLE.encode(), "a/b.py": b"b\n"},
        {"a/shapes.py": _SHAPES.encode(), "a/b.py": b"b\n"},
        {"a/shapes.py": _CIRCLE.encode(), "a/b.py": b"b\n"},
    ),
    _case(
        "plain",
        "nothing misleads: upstream changes another place",
        _SHAPES,
        _CIRCLE,
        "# Shapes.\n" + _SHAPES,
        "# Shapes.\n" + _CIRCLE,
    ),
)
