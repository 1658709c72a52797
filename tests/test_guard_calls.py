"""Calls that still fit, and that say something else now: arguments that others take."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard_lab import PATCH, GuardLab
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.model import Question

PATH = "pkg/models/kimi.py"
MODULE = "pkg/utils.py"
BODY = "    first = one\n    second = two\n    third = three\n    fourth = four\n"
APART = "# ---\n" * 5


@pytest.fixture
def lab(tmp_path: Path) -> GuardLab:
    return GuardLab(tmp_path / "lab")


def asked(
    lab: GuardLab, texts: tuple[str, str, str], old: dict[str, str], new: dict[str, str]
) -> list[str]:
    """What the guard says of calls in git's merge of (before, after, upstream)."""
    before, after, upstream = (text.encode() for text in texts)
    result = lab.merged(before, after, upstream)
    assert result is not None
    change = lab.change(PATH, before, after, upstream, result)
    old_bytes = {path: text.encode() for path, text in old.items()}
    new_bytes = {path: text.encode() for path, text in new.items()}
    return texts_of(guarded(PATCH, [change], old=old_bytes.get, new=new_bytes.get))


def texts_of(questions: tuple[Question, ...]) -> list[str]:
    """Their sentences; all of them about one scope's calls."""
    assert {each.kind for each in questions} <= {"call-misfit"}
    return [each.text for each in questions]


def in_one_file(lab: GuardLab, old: str, new: str, call: str, lead: str = "") -> list[str]:
    """A patch adds a call to a function of its own file that upstream declares otherwise."""
    rest = f"\n\ndef use(x, y, z):\n{BODY}    return first\n"
    before, upstream = f"{lead}{old}{rest}", f"{lead}{new}{rest}"
    after = before.replace("    return first\n", f"    {call}\n    return first\n")
    return asked(lab, (before, after, upstream), {}, {})


@pytest.mark.parametrize(
    ("old", "new", "call", "said"),
    [
        ("a, b, c", "a, c, b", "g(x, y, z)", "`c` is given where `b` was: "),
        ("a, b, c", "b, a, c", "return g(x, y, z)", "`b` is given where `a` was: "),
        ("a, b, c", "a, c, b", "g(x, b=y, c=z)", ""),
        ("a, b, c", "a, c, b", "g(x, *y)", "`c` is given where `b` was: "),
        ("a, b, c", "a, b, c, d=1", "g(x, *y)", ""),
        ("a, b, c", "a, b, c, d=1", "g(x, y, z)", ""),
        ("a, b=1, c=2", "a, new=0, b=1, c=2", "g(x, y)", "`new` is given where `b` was: "),
        ("a, b=1, c=2", "a, c=2", "g(x, y)", "`c` is given where `b` was: "),
        ("a, b=1, c=2", "a, c=2", "g(x)", ""),
        ("a, b, *rest", "a, *rest", "g(x, y, z)", "`*rest` is given where `b` was: "),
        ("a, *rest", "a, b, *rest", "g(x, y, z)", "`b` is given where `*rest` was: "),
        ("a, b=1", "a, *, b=1", "g(x, y)", "g() takes 1 positional arguments but 2 were given"),
        ("a: int, b: int", "a: int, c: str", "g(x, y)", "`c` is given where `b` was: "),
        ("hidden, b", "hidden_states, b", "g(x, y)", ""),
        ("self, a, b", "self, b, a", "g(x, y, z)", "`b` is given where `a` was: "),
    ],
)
def test_a_function_that_takes_something_else(
    lab: GuardLab, old: str, new: str, call: str, said: str
) -> None:
    found = in_one_file(lab, f"def g({old}):\n    return 1", f"def g({new}):\n    return 1", call)
    assert len(found) == bool(said)
    assert all(said in text for text in found)


def test_the_sentence_has_both_declarations(lab: GuardLab) -> None:
    old, new = "def g(a, b, c=1):\n    return a", "def g(a, c=1, b=2):\n    return a"
    assert in_one_file(lab, old, new, "g(x, y)") == [
        "a call says something else now: `c` is given where `b` was: "
        "g(a, c=, b=), before g(a, b, c=)"
    ]


def test_a_parameter_that_has_another_name_and_is_the_same(lab: GuardLab) -> None:
    old = "def g(a, b):\n    log(a)\n    return a + b"
    same = "def g(a, other):\n    log(a)\n    return a + other"
    unlike = "def g(a, other):\n    log(a)\n    return a - 2 ** other"
    assert in_one_file(lab, old, same, "g(x, y)", lead="def log(x): ...\n\n") == []
    assert len(in_one_file(lab, old, unlike, "g(x, y)", lead="def log(x): ...\n\n")) == 1


OWNER = "class Base:\n    def run(self, a, b): ...\n"
SWAPPED = OWNER.replace("a, b", "b, a")


@pytest.mark.parametrize(
    ("call", "old", "new"),
    [
        ("self.run(x, y)", OWNER, SWAPPED),
        ("super().run(x, y)", OWNER, SWAPPED),
        ("Base.run(self, x, y)", OWNER, SWAPPED),
        ("utils.make(x, y)", "def make(a, b): ...\n", "def make(b, a): ...\n"),
        ("pkg.utils.make(x, y)", "def make(a, b): ...\n", "def make(b, a): ...\n"),
        ("utils.kernel[(1,)](x, y)", "@jit\ndef kernel(a, b): ...\n",
         "@jit\ndef kernel(b, a): ...\n"),
        ("utils.Made(x, y)", OWNER.replace("run", "__init__").replace("Base", "Made"),
         SWAPPED.replace("run", "__init__").replace("Base", "Made")),
        ("utils.Made(x, y)", "@dataclass\nclass Made:\n    a: int\n    b: int = 0\n",
         "@dataclass\nclass Made:\n    b: int\n    a: int = 0\n"),
        ("utils.Made(x, y)", "class Made(NamedTuple):\n    a: int\n    b: int = 0\n",
         "class Made(NamedTuple):\n    b: int\n    a: int = 0\n"),
    ],
)  # fmt: skip
def test_what_is_called_stands_elsewhere(lab: GuardLab, call: str, old: str, new: str) -> None:
    lead = "import pkg.utils\nfrom pkg import utils\nfrom pkg.utils import Base\n\n\n"
    before = (
        f"{lead}class Kimi(Base):\n    def forward(self, x, y):\n        a = 1\n        b = 2\n"
        "        c = 3\n        return c\n"
    )
    after = before.replace("        return c", f"        {call}\n        return c")
    texts = (before, after, before + "\n\n# more\n")
    base = "" if "class Base" in old else OWNER
    then, now = ({MODULE: base + text, "pkg/__init__.py": ""} for text in (old, new))
    assert asked(lab, texts, then, then) == []
    (found,) = asked(lab, texts, then, now)
    assert "`b` is given where `a` was" in found


INIT = "    def __init__(self, base: Base, other: 'Base | None' = None):\n"


@pytest.mark.parametrize(
    ("known", "call", "count"),
    [
        ("        self.base = Base()\n", "self.base.run(x, y)", 1),
        ("        self.base: Base = base\n", "self.base.run(x, y)", 1),
        ("        self.base = base\n", "self.base.run(x, y)", 1),
        ("        self.base = other\n", "self.base.run(x, y)", 1),
        ("        self.base = utils.Base()\n", "self.base.run(x, y)", 1),
        ("        self.base = Base()\n        self.base = unlike()\n", "self.base.run(x, y)", 0),
        ("        self.base = unlike()\n", "self.base.run(x, y)", 0),
        ("        self.base = Base()\n", "self.base.run(b=x, a=y)", 0),
        ("        pass\n", "made.run(x, y)", 1),
        ("        pass\n", "given.run(x, y)", 1),
        ("        pass\n", "x.run(x, y)", 0),
        ("        pass\n", "Base().run(x, y)", 1),
    ],
)
def test_a_method_of_an_object_whose_class_is_told(
    lab: GuardLab, known: str, call: str, count: int
) -> None:
    before = (
        f"from pkg import utils\nfrom pkg.utils import Base\n\n\nclass Kimi:\n{INIT}{known}\n"
        "    def forward(self, x, y, given: Base):\n        made = Base()\n        b = 2\n"
        "        c = 3\n        return c\n"
    )
    after = before.replace("        return c", f"        {call}\n        return c")
    texts = (before, after, before + "\n\n# more\n")
    old = {MODULE: f"{OWNER}\ndef unlike(): ...\n"}
    new = {MODULE: f"{SWAPPED}\ndef unlike(): ...\n"}
    assert asked(lab, texts, old, old) == []
    assert len(asked(lab, texts, old, new)) == count


def test_a_package_that_hands_a_function_on(lab: GuardLab) -> None:
    before = f"from pkg import make\n\n\ndef use(x, y):\n{BODY}    return x\n"
    after = before.replace("    return x", "    make(x, y)\n    return x")
    texts = (before, after, before + "\n\n# more\n")
    old = {"pkg/__init__.py": "from pkg.deep import make\n", "pkg/deep.py": "def make(a, b): ...\n"}
    new = {**old, "pkg/deep.py": "def make(b, a): ...\n"}
    assert len(asked(lab, texts, old, new)) == 1


def test_a_function_inside_the_function(lab: GuardLab) -> None:
    def outer(inner: str, call: str = "") -> str:
        nested = f"    def g({inner}):\n        return a\n\n"
        return f"def use(x, y):\n{nested}{BODY}{call}    return first\n"

    texts = outer("a, b"), outer("a, b", "    g(x, y)\n"), outer("b, a")
    assert len(asked(lab, texts, {}, {})) == 1


def test_an_argument_of_a_call_over_several_lines(lab: GuardLab) -> None:
    def file(parameters: str, *arguments: str) -> str:
        lines = "".join(f"        {each},\n" for each in arguments)
        return f"def g({parameters}): ...\n\n\n# -\n# -\ndef use(x, y, z):\n    g(\n{lines}    )\n"

    texts = file("a, b=1, c=2", "x"), file("a, b=1, c=2", "x", "y"), file("a, c=2, b=1", "x")
    assert len(asked(lab, texts, {}, {})) == 1


def test_a_call_that_a_person_wrote_anew(lab: GuardLab) -> None:
    before = f"def g(a, b): ...\n\n\ndef use(x, y):\n{BODY}    return x\n"
    after = before.replace("    return x", "    g(x, y)\n    return x")
    upstream = before.replace("a, b", "b, a")
    follows = upstream.replace("    return x", "    g(y, x)\n    return x")
    as_it_was = upstream.replace("    return x", "    g(x, y)\n    return x")
    for result, count in ((follows, 0), (as_it_was, 1)):
        texts = (text.encode() for text in (before, after, upstream, result))
        change = lab.change(PATH, *texts)
        assert len(guarded(PATCH, [change], by_hand=True)) == count


def test_upstream_calls_what_the_patch_declares_otherwise(lab: GuardLab) -> None:
    """The other way round: the patch's order, and a call that upstream has added since."""
    before = f"def g(a, b=1): ...\n\n\n{APART}def use(x, y):\n{BODY}    return x\n"
    after = before.replace("a, b=1", "a, ours=0, b=1")
    upstream = before.replace("    return x", "    g(x, y)\n    return x")
    (found,) = asked(lab, (before, after, upstream), {}, {})
    assert "upstream's call says something else now: `ours` is given where `b` was" in found
    assert asked(lab, (before, before.replace("b=1", "b=1, ours=0"), upstream), {}, {}) == []
