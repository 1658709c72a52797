"""Scopes and pieces of files: what the guard sees of a file is what Python sees of it."""

from __future__ import annotations

import ast
import symtable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vpatch
from vpatch.rebase.guard.outline import outline
from vpatch.rebase.guard.pieces import Unreadable, pieces
from vpatch.rebase.guard.tables import bound

_PARTS = (
    "class A:\n    x = 1\n\n    def f(self):\n        return 1\n\n    def g(self): ...\n",
    "@made(\n    1,\n)\nclass B(\n    A,\n):\n    @property\n    def p(self): ...\n\n"
    "    @p.setter\n    def p(self, v): ...\n",
    'class C:\n    """Text\n    def no(self): ...\nclass No:\n    """\n\n    def f(self): ...\n',
    "def f(a, *, b=1):\n    def inner(): ...\n    class Deep:\n        def m(self): ...\n",
    "if 1:\n    y = 2\n    def f(): ...\nelse:\n    def f(): ...\n",
    "TEXT = '''\nclass Not:\n    def here(self): ...\n'''\n",
    "try:\n    import os.path\nexcept ImportError:\n    os = None\nfinally:\n    def last(): ...\n",
    "async def g(): ...\n# a comment\n\n\n",
    "with open('x') as h:\n    for i, (j, k) in []: z = (w := 1)\n",
)


def seen_by_python(text: str) -> list[tuple[int, int, str]]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found.append((first, node.end_lineno or 0, node.name))
    return sorted(found)


def seen_by_guard(text: bytes) -> list[tuple[int, int, str]]:
    names = (
        (each.start, each.end, each.key.rpartition(".")[2].partition("#")[0].partition("@")[0])
        for each in outline("a.py", text).scopes
    )
    return sorted((*place, name.split(".")[-1]) for *place, name in names)  # type: ignore[misc]


@given(st.lists(st.sampled_from(_PARTS), max_size=6))
def test_scopes_are_those_of_python(parts: list[str]) -> None:
    text = "\n".join(parts)
    wanted = [(a, b, "p" if name == "p" else name) for a, b, name in seen_by_python(text)]
    made = [(a, b, "p" if name in ("setter", "p") else name) for a, b, name in
            seen_by_guard(text.encode())]  # fmt: skip
    assert made == wanted
    assert outline("a.py", text.encode()).python


def test_scopes_of_this_package() -> None:
    for path in Path(vpatch.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if "@" not in "".join(each[2] for each in seen_by_guard(text.encode())):
            assert len(outline("a.py", text.encode()).scopes) == len(seen_by_python(text)), path


@given(st.lists(st.sampled_from(_PARTS), max_size=6))
def test_bound_names_are_those_of_python(parts: list[str]) -> None:
    text = "\n".join(parts)
    names = symtable.symtable(text, "a.py", "exec").get_symbols()
    wanted = {each.get_name() for each in names if each.is_assigned() or each.is_imported()}
    assert bound(text.encode()) == wanted


def test_like_names_are_told_apart() -> None:
    text = (
        "class A:\n    @property\n    def p(self): ...\n    @p.setter\n    def p(self, v): ...\n\n"
        "def f(): ...\ndef f():\n    def inner(): ...\n"
    )
    keys = [scope.key for scope in outline("a.py", text.encode()).scopes]
    assert keys == ["A", "A.p", "A.p@setter", "f", "f#2", "f#2.inner"]


def test_every_line_has_one_scope() -> None:
    text = b"import os\n\n\n@made\nclass A:\n    x = 1\n\n    def f(self):\n"
    text += b"        return 1\n\n\ny = 2\n"
    of = outline("a.py", text)
    assert of.inner == ["", "", "", "A", "A", "A", "A", "A.f", "A.f", "", "", ""]
    assert of.texts["A"] == [b"@made\n", b"class A:\n", b"    x = 1\n"]


@pytest.mark.parametrize(
    ("path", "text", "keys"),
    [
        ("a.c", "int f(int n)\n{\n\treturn n;\n}\nout:\nstatic int x;\n", ["int f(int n)"]),
        ("a.md", "# One\ntext\n## Two\n", ["# One", "## Two"]),
        ("a.txt", "def f():\n    pass\n", []),
        ("a.py", "def f(:\n", []),
    ],
)
def test_other_files(path: str, text: str, keys: list[str]) -> None:
    of = outline(path, text.encode())
    assert [scope.key for scope in of.scopes] == keys
    assert not of.python


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"x = 1\0", b"def f(:\n", b"(" * 500, b"x = '", b"if 1:\n" + b" " * 300],
)
def test_what_is_no_python_is_said(text: bytes) -> None:
    with pytest.raises(Unreadable):
        pieces(text)


def test_a_long_chain_is_read() -> None:
    text = b"if a: pass\n" + b"".join(b"elif a == %d: pass\n" % n for n in range(400))
    assert outline("a.py", text + b"def f(): ...\n").python


def test_encodings_and_line_ends() -> None:
    text = "def f():\r\n    return 'ä'\r\n\r\n\r\ndef g(): ...\r\n"
    assert [each.start for each in outline("a.py", text.encode()).scopes] == [1, 5]
    latin = b"# -*- coding: latin-1 -*-\n" + text.encode("latin-1")
    assert [each.start for each in outline("a.py", latin).scopes] == [2, 6]
