"""Wrong merges that git makes without a word, and right ones: where a patch landed."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard_lab import PATCH, GuardLab, kinds
from series_lab import plain_git
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.guard.outline import FILE, outline


@pytest.fixture
def lab(tmp_path: Path) -> GuardLab:
    return GuardLab(tmp_path / "lab")


START = ("seen = []", "count = 0", "total = 0", "for item in items:")
END = ("    seen.append(item)", "    count += 1", "log(seen, count)", "return total")
PATCHED = (*START, "    total += 2 * item", *END)


def function(name: str, *lines: str) -> str:
    body = lines or (*START, "    total += item", *END)
    return f"def {name}(items):\n" + "".join(f"    {line}\n" for line in body) + "\n\n"


def test_24_the_hunk_lands_in_an_alike_function(lab: GuardLab) -> None:
    """Upstream deletes f1; `git apply` and `git am` put the hunk into f2, exit 0."""
    before = "import os\n\n\n" + function("f1") + function("f2")
    after = "import os\n\n\n" + function("f1", *PATCHED) + function("f2")
    upstream = "import os\n\n\n" + function("f2")
    made = lab.applied("a.py", before.encode(), after.encode(), upstream.encode())
    assert made is not None
    assert function("f2", *PATCHED).encode() in made
    questions = lab.asked("a.py", before, after, upstream, made)
    assert [(q.kind, q.name, q.line) for q in questions] == [
        ("scope-changed", f"{PATCH}:scope-changed:a.py:f1", 9)
    ]
    assert questions[0].text.startswith("the patch changed f1, and landed in f2: ")


def test_24_as_a_merge_makes_it(lab: GuardLab) -> None:
    """The same by a three-way merge: what is left of both is aligned with f1."""
    body = [f"step({n})" for n in range(12)]
    patched = [*body[:6], "extra()", *body[6:]]
    before = function("f1", *body) + function("f2", *body)
    after = function("f1", *patched) + function("f2", *body)
    upstream = function("f2", *body)
    made = lab.merged(before.encode(), after.encode(), upstream.encode())
    if made is None:
        made = lab.applied("a.py", before.encode(), after.encode(), upstream.encode())
    assert made is not None
    assert b"extra()" in made
    assert "scope-changed" in kinds(lab.asked("a.py", before, after, upstream, made))


def test_24_in_c(lab: GuardLab) -> None:
    def c(name: str, step: str = "i") -> str:
        return (
            f"int {name}(int n)\n{{\n\tint t = 0;\n\n\tfor (int i = 0; i < n; i++)\n"
            f"\t\tt += {step};\n\tlog(t);\n\tcheck(t);\n\treturn t;\n}}\n\n"
        )

    before = '#include "a.h"\n\n' + c("f1") + c("f2")
    after = '#include "a.h"\n\n' + c("f1", "2 * i") + c("f2")
    upstream = '#include "a.h"\n\n' + c("f2")
    made = lab.applied("a.c", before.encode(), after.encode(), upstream.encode())
    assert made is not None
    (question,) = lab.asked("a.c", before, after, upstream, made)
    assert question.name == f"{PATCH}:scope-changed:a.c:int f1(int n)"


def test_23_an_append_to_a_repetitive_file_comes_twice(lab: GuardLab, tmp_path: Path) -> None:
    """`git am -3` of what upstream has already: once more, exit 0."""
    before, after = "entry\n" * 6, "entry\n" * 7
    folder = tmp_path / "am"
    folder.mkdir()
    plain_git("init", "-q", folder=folder)
    (folder / "list.txt").write_text(before)
    plain_git("add", ".", folder=folder)
    plain_git("commit", "-qm", "base", folder=folder)
    (folder / "list.txt").write_text(after)
    plain_git("commit", "-qam", "append", folder=folder)
    mail = plain_git("format-patch", "--stdout", "-1", folder=folder)
    plain_git("am", "-3", folder=folder, stdin=mail)  # on top of what has it already
    made = (folder / "list.txt").read_bytes()
    assert made == b"entry\n" * 8
    questions = lab.asked("list.txt", before, after, after, made)
    assert [q.name for q in questions] == [f"{PATCH}:already-nearby:list.txt:"]


def test_26_what_is_upstream_stands_in_another_function(lab: GuardLab) -> None:
    """`git apply -R --check` says merged, at an offset, in another function."""
    before = function("f1") + function("f2")
    after = function("f1", *PATCHED) + function("f2")
    upstream = function("f2", *PATCHED)
    reverse = lab.diff("a.py", after.encode(), before.encode())
    with lab.git.temporary_index() as index:
        index.run("read-tree", lab.tree("a.py", upstream.encode()))
        assert index.run("apply", "--cached", "--check", "-", stdin=reverse).status == 0
    questions = lab.asked("a.py", before, after, upstream, upstream.encode())
    assert [q.name for q in questions] == [f"{PATCH}:scope-changed:a.py:f1"]
    assert "stands in f2" in questions[0].text


def test_27_upstream_has_the_line_at_another_indentation(lab: GuardLab, tmp_path: Path) -> None:
    """`git cherry` says that it is there already, and a rebase drops the patch."""
    before = function("f", "for item in items:", "    use(item)", "return items")
    after = function("f", "for item in items:", "    use(item)", "done(items)", "return items")
    upstream = function(
        "f", "for item in items:", "    use(item)", "    done(items)", "return items"
    )
    folder = tmp_path / "cherry"
    folder.mkdir()
    plain_git("init", "-q", folder=folder)
    for branch, text in (("base", before), ("upstream", upstream), ("ours", after)):
        start = () if branch == "base" else ("base",)
        plain_git("checkout", "-q", "-b", branch, *start, folder=folder)
        (folder / "a.py").write_text(text)
        plain_git("add", ".", folder=folder)
        plain_git("commit", "-qm", branch, folder=folder)
    plain_git("rebase", "-q", "upstream", folder=folder)
    made = (folder / "a.py").read_bytes()
    assert made == upstream.encode()
    questions = lab.asked("a.py", before, after, upstream, made)
    assert [q.name for q in questions] == [f"{PATCH}:already-nearby:a.py:f"]
    assert "at another indentation" in questions[0].text


def test_a_part_that_nobody_has(lab: GuardLab) -> None:
    before = function("f") + function("g")
    after = function("f", *PATCHED) + function("g", *PATCHED)
    half = function("f", *PATCHED) + function("g")
    (question,) = lab.asked("a.py", before, after, before, half.encode())
    assert question.name == f"{PATCH}:not-applied:a.py:g"


def test_what_upstream_has_alike_is_no_concern(lab: GuardLab) -> None:
    before = function("f") + function("g")
    after = function("f", *PATCHED) + function("g", *PATCHED)
    upstream = function("f", *PATCHED) + function("g")
    assert lab.asked("a.py", before, after, upstream) == ()
    assert lab.asked("a.py", before, after, after, after.encode()) == ()


def test_a_renamed_function_is_the_same_one(lab: GuardLab) -> None:
    body = [f"step({n})" for n in range(12)]
    before = "x = 1\n" + function("f1", *body)
    after = "x = 1\n" + function("f1", *body[:6], "extra()", *body[6:])
    upstream = "x = 1\n" + function("sum_up", *body)
    assert lab.asked("a.py", before, after, upstream) == ()


def classes(**methods: tuple[str, ...]) -> str:
    """Classes with a method `run`, or `NAME_METHOD`; lines of their own around it."""
    text = ""
    for name, body in methods.items():
        owner, _, method = name.partition("_")
        lines = "".join(f"        {line}\n" for line in body)
        run = f"    def {method or 'run'}(self):\n{lines}\n" if body else ""
        text += f"class {owner}:\n    name = '{owner}'\n\n{run}    size = len('{owner}')\n\n\n"
    return text


STEPS = tuple(f"self.step({n})" for n in range(12))
MORE = (*STEPS[:6], "self.extra()", *STEPS[6:])


def test_a_method_that_upstream_moved_to_another_class(lab: GuardLab) -> None:
    before, after = classes(A=STEPS, B=()), classes(A=MORE, B=())
    upstream = classes(A=(), B=STEPS)
    made = classes(A=(), B=MORE).encode()
    (question,) = lab.asked("a.py", before, after, upstream, made)
    assert question.name == f"{PATCH}:scope-changed:a.py:A.run"
    assert question.text == "upstream moved A.run out of A: it is B.run now"
    assert question.line == made.decode().splitlines().index("    def run(self):") + 1


def test_a_merge_follows_a_method_into_another_class(lab: GuardLab) -> None:
    """As git makes it: one class has become two, and the lines did not move."""
    before, after = classes(A=STEPS), classes(A=MORE)
    upstream = before.replace("    def run", "\nclass B:\n    def run")
    (question,) = lab.asked("a.py", before, after, upstream)
    assert question.name == f"{PATCH}:scope-changed:a.py:A.run"


@pytest.mark.parametrize("inner", ["", "def inner():\n            "])
def test_a_function_that_became_a_method(lab: GuardLab, inner: str) -> None:
    body = [f"step({n})" for n in range(12)]
    nested = [f"{inner}{line}" if n == 6 and inner else line for n, line in enumerate(body)]
    before = function("f1", *nested)
    after = before.replace("step(6)", "extra(6)")
    moved = "".join(f"    {line}".rstrip() + "\n" for line in before.splitlines())
    upstream = f"class Adder:\n{moved}"
    made = upstream.replace("step(6)", "extra(6)").encode()
    questions = lab.asked("a.py", before, after, upstream, made)
    (said,) = [q.text for q in questions if q.name == f"{PATCH}:scope-changed:a.py:f1"]
    assert said.startswith("upstream moved f1 out of the file's top level: it is Adder.f1 now")


def test_a_class_that_got_another_name_moves_nothing(lab: GuardLab) -> None:
    before, after = classes(A=STEPS, B=()), classes(A=MORE, B=())
    assert lab.asked("a.py", before, after, before.replace("class A", "class C")) == ()


def test_one_of_two_like_blocks_is_gone(lab: GuardLab) -> None:
    """In one function: the block that the patch changed went, and the other one took it."""
    block = ("open(items)", "read(items)", "check(items)", "close(items)")
    patched = ("open(items)", "read(items)", "check(items)", "sync(items)", "close(items)")
    before = function("f", *block, *block)
    after = function("f", *patched, *block)
    upstream = function("f", "start()", *block)
    made = lab.applied("a.py", before.encode(), after.encode(), upstream.encode())
    result = function("f", "start()", *patched).encode()
    assert made in (None, result)
    assert kinds(lab.asked("a.py", before, after, upstream, result)) == {"ambiguous"}


def test_the_other_of_two_like_blocks(lab: GuardLab) -> None:
    """Nothing changed in the function; the hunk stands in the wrong one of two like blocks."""
    block = ("open(items)", "read(items)", "check(items)", "close(items)")
    patched = ("open(items)", "read(items)", "check(items)", "sync(items)", "close(items)")
    before = function("f", *block, *block)
    after = function("f", *patched, *block)
    wrong = function("f", *block, *patched)
    assert kinds(lab.asked("a.py", before, after, before, wrong.encode())) == {"ambiguous"}
    moved = "import os\n\n\n" + before
    right = "import os\n\n\n" + after
    assert lab.asked("a.py", before, after, moved, right.encode()) == ()


def test_upstream_adds_the_same_line_elsewhere(lab: GuardLab) -> None:
    body = [f"step({n})" for n in range(9)]
    before = function("f", *body)
    after = function("f", *body[:7], "flush(items)", *body[7:])
    upstream = function("f", *body[:1], "flush(items)", *body[1:])
    (question,) = lab.asked("a.py", before, after, upstream)
    assert question.name == f"{PATCH}:already-nearby:a.py:f"
    assert question.text == "upstream has `flush(items)` in f too (its line 3)"
    assert question.line == 10


def test_upstream_defines_the_same_method_elsewhere(lab: GuardLab) -> None:
    def methods(*names: str) -> str:
        return "class A:\n" + "".join(
            f"    def {name}(self):\n        return '{name}', {n}\n\n"
            for n, name in enumerate(names)
        )

    before = methods("a", "b", "c", "d")
    after = before + "    def flush(self):\n        return 1\n\n"
    upstream = before.replace("    def b", "    def flush(self):\n        return 2\n\n    def b")
    (question,) = lab.asked("a.py", before, after, upstream)
    assert question.name == f"{PATCH}:already-nearby:a.py:A.flush"


def test_upstream_adds_the_same_entry_with_another_value(lab: GuardLab) -> None:
    def table(*entries: str) -> str:
        return "TABLE = {\n" + "".join(f"    {entry},\n" for entry in entries) + "}\n"

    entries = [f'"{name}": {n}' for n, name in enumerate("abcdefgh")]
    before = table(*entries)
    after = table(*entries, '"kimi": 7')
    upstream = table('"kimi": 8', *entries)
    (question,) = lab.asked("a.py", before, after, upstream)
    assert question.text == 'upstream has an entry `"kimi":` of its own in the file'


def test_a_merge_that_does_not_parse(lab: GuardLab) -> None:
    before = "x = (1,\n     2,\n     3,\n     4)\ny = 1\n"
    after = before.replace("     2,\n", "     2,\n     [5,\n      6],\n")
    broken = before.replace("     2,\n", "     2,\n     [5,\n      6,\n")
    (question,) = lab.asked("a.py", before, after, before + "\n", broken.encode() + b"\n")[:1]
    assert question.kind == "does-not-parse"
    assert question.path == "a.py"


@pytest.mark.parametrize(
    ("path", "text", "broken"),
    [("a.json", '{"a": 1}', '{"a": 1'), ("a.toml", "a = 1\n", "a = 1\na = 2\n")],
)
def test_other_files_that_do_not_parse(lab: GuardLab, path: str, text: str, broken: str) -> None:
    made = lab.change(path, text.encode(), text.encode(), b"", broken.encode())
    assert "does-not-parse" in kinds(guarded(PATCH, [made]))


def test_where_a_person_placed_it_is_their_choice(lab: GuardLab) -> None:
    before, after = function("f"), function("f", *PATCHED)
    upstream, result = function("g"), function("g", *PATCHED)
    texts = (text.encode() for text in (before, after, upstream, result))
    change = lab.change("a.py", *texts)
    assert guarded(PATCH, [change], by_hand=True) == ()


@pytest.mark.parametrize("path", ["a.md", "a.rst", "a.toml", "a.sh", "a.c"])
def test_a_file_without_sections_has_no_scopes(path: str) -> None:
    assert outline(path, b"text alone\nand more\n").at(1) == FILE
    assert outline(path, b"").at(1) == FILE
