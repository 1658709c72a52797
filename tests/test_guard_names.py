"""What the new release no longer has, though the patch's lines still merge: names and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from guard_lab import PATCH, GuardLab
from vpatch.patches.repository import scratch_repository
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.guard.library import wanted
from vpatch.rebase.model import Question
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror

PATH = "pkg/models/kimi.py"


@pytest.fixture
def lab(tmp_path: Path) -> GuardLab:
    return GuardLab(tmp_path / "lab")


def asked(
    lab: GuardLab,
    texts: tuple[str, str, str],
    old: Mapping[str, str] | None = None,
    new: Mapping[str, str] | None = None,
) -> tuple[Question, ...]:
    """What the guard says of git's merge of (before, after, upstream), beside other modules."""
    before, after, upstream = (text.encode() for text in texts)
    result = lab.merged(before, after, upstream)
    assert result is not None
    change = lab.change(PATH, before, after, upstream, result)
    then, now = dict(old or {}), dict(new or old or {})

    def read_old(path: str) -> bytes | None:
        return then[path].encode() if path in then else None

    def read_new(path: str) -> bytes | None:
        return now[path].encode() if path in now else None

    return guarded(PATCH, [change], old=read_old, new=read_new)


def spaced(*parts: str) -> str:
    """Parts of a file, with so many lines between them that git merges them apart."""
    return "\n\n".join(
        (*parts[:1], *(f"{'# -' * 9}\n# ...\n# ...\n\n{part}" for part in parts[1:]))
    )


HELPER = "def helper(x):\n    return x\n"
FORWARD = "def forward(self, x):\n    x = x + 1\n    y = x * 2\n    return y\n"


def test_a_function_that_upstream_renamed(lab: GuardLab) -> None:
    before = spaced(HELPER, FORWARD)
    after = spaced(HELPER, FORWARD.replace("x * 2", "helper(x)"))
    upstream = spaced(HELPER.replace("helper", "assist"), FORWARD)
    (question,) = asked(lab, (before, after, upstream))
    assert question.name == f"{PATCH}:name-gone:{PATH}:forward"
    assert question.text == "`helper` is used, and bound nowhere now"
    assert question.line == after.splitlines().index("    y = helper(x)") + 1
    assert asked(lab, (before, after, before + "# more\n")) == ()


def test_a_parameter_that_upstream_renamed(lab: GuardLab) -> None:
    body = "    a = 1\n    b = 2\n    c = 3\n    d = 4\n"
    before = f"def forward(hidden):\n{body}    return a\n"
    after = f"def forward(hidden):\n{body}    keep(hidden)\n    return a\n"
    upstream = f"def forward(states):\n{body}    return a\n"
    (question,) = asked(lab, ("def keep(x): ...\n" + t for t in (before, after, upstream)))  # type: ignore[arg-type]
    assert question.name == f"{PATCH}:name-gone:{PATH}:forward"
    assert question.text.startswith("`hidden`")


def test_an_import_that_the_patch_takes_away_and_upstream_uses(lab: GuardLab) -> None:
    before = spaced("import os\nimport sys", FORWARD)
    after = spaced("import sys", FORWARD)
    upstream = spaced("import os\nimport sys", FORWARD.replace("x * 2", "os.sep"))
    (question,) = asked(lab, (before, after, upstream))
    assert question.text == "`os` is used, and bound nowhere now"


def test_names_of_other_kinds_are_no_concern(lab: GuardLab) -> None:
    before = spaced(HELPER, "class A:\n    size = 1\n\n    def f(self):\n        return 1\n")
    added = (
        "    @staticmethod\n    def g(items):\n        global COUNT\n        COUNT = 1\n"
        "        total = [i for i in items if (n := i)]\n        def inner(): return total, n\n"
        "        try:\n            import json as j\n        except ImportError as error:\n"
        "            raise ValueError(__name__, error)\n"
        "        match items:\n            case [first, *rest]: return first, rest\n"
        "        return inner, j, lambda k: k, COUNT, __file__\n\n"
        "    h: int = size\n    doubled = [size for _ in range(2)]\n"
    )
    upstream = before.replace("return x", "return x or 1")
    assert asked(lab, (before, before + added, upstream)) == ()


def test_an_import_that_is_gone(lab: GuardLab) -> None:
    before = spaced("import os", FORWARD)
    after = spaced("import os\nfrom pkg.utils import (\n    first,\n    second,\n)", FORWARD)
    upstream = spaced("import os", FORWARD.replace("x + 1", "x + 2"))
    old = {"pkg/utils.py": "def first(): ...\nfrom pkg.deep import second\n", "pkg/deep.py": ""}
    assert asked(lab, (before, after, upstream), old) == ()
    new = {**old, "pkg/utils.py": "def first(): ...\n"}
    (question,) = asked(lab, (before, after, upstream), old, new)
    assert question.name == f"{PATCH}:name-gone:{PATH}:"
    assert question.text == "`pkg.utils.second` is imported, and is not there any more"
    (question,) = asked(lab, (before, after, upstream), old, {"pkg/deep.py": ""})
    assert question.text.endswith("(and more)")  # the whole module


@pytest.mark.parametrize("line", ["from ..utils import gone", "import pkg.utils.gone as gone"])
def test_modules_that_are_gone(lab: GuardLab, line: str) -> None:
    before = spaced("import os", FORWARD)
    after = spaced(f"import os\n{line}", FORWARD)
    upstream = spaced("import os", FORWARD.replace("x + 1", "x + 2"))
    old = {"pkg/utils/__init__.py": "", "pkg/utils/gone.py": ""}
    new = {"pkg/utils/__init__.py": ""}
    assert asked(lab, (before, after, upstream), old) == ()
    assert len(asked(lab, (before, after, upstream), old, new)) == 1


def test_what_no_tree_has_is_not_asked_for(lab: GuardLab) -> None:
    before = spaced("import os", FORWARD)
    after = spaced("import os\nimport torch.nn as nn\nfrom triton import jit", FORWARD)
    assert asked(lab, (before, after, before + "# more\n")) == ()


def model(base: str, init: str, method: str = "") -> str:
    return (
        f"from pkg.base import {base}\n\n\nclass Kimi({base}):\n    def __init__(self):\n"
        f"        {init}\n        self.b = 1\n        self.c = 2\n\n"
        f"    def forward(self, x):\n        y = x\n        z = y\n{method}        return z\n"
    )


def test_attributes_that_are_gone(lab: GuardLab) -> None:
    texts = (
        model("Base", "self.layers = 1"),
        model("Base", "self.layers = 1", "        z = self.layers\n"),
        model("Base", "self.blocks = 1"),
    )
    old = {"pkg/base.py": "class Base: ...\n"}
    (question,) = asked(lab, texts, old)
    assert question.name == f"{PATCH}:name-gone:{PATH}:Kimi.forward"
    assert question.text == "`self.layers` is used, and is not there any more"
    moved = {"pkg/base.py": "class Base:\n    layers = 1\n"}
    assert asked(lab, texts, old, moved) == ()
    unseen = {"pkg/base.py": "import torch\nclass Base(torch.Unknown): ...\n"}
    assert asked(lab, texts, old, unseen) == ()


def test_attributes_of_a_base_and_of_a_module(lab: GuardLab) -> None:
    before = model("Base", "from pkg import envs").replace("\n\n\n", "\nfrom pkg import envs\n\n\n")
    after = before.replace(
        "        return z", "        z = self.size\n        z = envs.FLAG\n        return z"
    )
    texts = (before, after, before.replace("self.b = 1", "self.b = 2"))
    old = {"pkg/base.py": "class Base:\n    size = 1\n", "pkg/envs.py": "FLAG = 1\n"}
    assert asked(lab, texts, old) == ()
    gone = {"pkg/base.py": "class Base:\n    large = 1\n", "pkg/envs.py": "FLAG = 1\n"}
    assert "`self.size`" in asked(lab, texts, old, gone)[0].text
    gone = {"pkg/base.py": old["pkg/base.py"], "pkg/envs.py": "SWITCH = 1\n"}
    assert "`envs.FLAG`" in asked(lab, texts, old, gone)[0].text


def test_calls_that_do_not_fit(lab: GuardLab) -> None:
    before = model("Base", "self.a = 1").replace("import Base", "import Base, make")
    after = before.replace(
        "        return z", "        z = make(1, b=2)\n        self.run(z)\n        return z"
    )
    texts = (before, after, before.replace("self.b = 1", "self.b = 2"))
    base = "class Base:\n    def run(self, x): ...\n\ndef make(a, b): ...\n"
    assert asked(lab, texts, {"pkg/base.py": base}) == ()
    for changed, why in (
        (base.replace("a, b", "a"), "make() got an unexpected keyword argument 'b'"),
        (base.replace("self, x", "self, x, y"), "run() missing 1 required argument: 'y'"),
    ):
        (question,) = asked(lab, texts, {"pkg/base.py": base}, {"pkg/base.py": changed})
        assert question.name == f"{PATCH}:call-misfit:{PATH}:Kimi.forward"
        assert question.text == f"a call does not fit any more: {why}"
    assert (
        asked(lab, texts, {"pkg/base.py": base}, {"pkg/base.py": base.replace("a, b", "*a, **k")})
        == ()
    )


GETTER = "    def get_layers(self):\n        return 1\n\n"
PROTOCOL = "class Base:\n    def get_layers(self): ...\n"


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        (PROTOCOL, ""),
        (PROTOCOL.replace("self", "self, count=3"), "has another signature"),
        (PROTOCOL.replace("    def", "    @property\n    def"), "has another signature"),
        (PROTOCOL.replace("get_layers", "get_default_layers"), "has get_default_layers instead"),
        (PROTOCOL.replace("get_layers", "unlike"), "no base of Kimi does now"),
        ("from pkg.deep import Deep\nclass Base(Deep): ...\n", ""),
        ("from elsewhere import Deep\nclass Base(Deep): ...\n", ""),
    ],
)
def test_an_override(lab: GuardLab, protocol: str, said: str) -> None:
    before = model("Base", "self.a = 1")
    after = before.replace("    def forward", f"{GETTER}    def forward")
    texts = (before, after, before.replace("return z", "return z, 1"))
    deep = {"pkg/deep.py": PROTOCOL.replace("Base", "Deep")}
    questions = asked(
        lab, texts, {"pkg/base.py": PROTOCOL, **deep}, {"pkg/base.py": protocol, **deep}
    )
    names = [question.name for question in questions]
    assert names == ([f"{PATCH}:override-gone:{PATH}:Kimi.get_layers"] if said else [])
    assert all(said in question.text for question in questions)


def test_a_patch_that_follows_the_new_signature(lab: GuardLab) -> None:
    """It fitted upstream's next release better than its own."""
    before = model("Base", "self.a = 1")
    after = before.replace("    def forward", f"{GETTER.replace('self', 'self, n')}    def forward")
    texts = (before, after, before.replace("return z", "return z, 1"))
    new = {"pkg/base.py": PROTOCOL.replace("self", "self, n")}
    assert asked(lab, texts, {"pkg/base.py": PROTOCOL}, new) == ()


@pytest.mark.network
def test_the_story_of_v0_18_0(lab: GuardLab, release_cache: Path) -> None:
    """The protocol renamed the method; the patch's one would have stayed behind as dead code."""
    mirror = Mirror.open(release_cache)
    index = Index.from_pip_config()
    trees = [mirror.fetch(tag, index=index).tree for tag in ("v0.17.1", "v0.18.0")]
    path = "vllm/model_executor/models/phi3.py"
    added = (
        "\n    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:\n"
        "        return (2, 4, 5)\n"
    )
    with scratch_repository(mirror.git.git_dir) as git:

        def read(tree: str, path: str) -> bytes | None:
            return git.read_blobs([f"{tree}:{path}"]).get(f"{tree}:{path}")

        before, upstream = (read(tree, path) for tree in trees)
        assert before
        assert upstream
        after = before.rstrip(b"\n") + b"\n" + added.encode()
        result = upstream.rstrip(b"\n") + b"\n" + added.encode()
        change = lab.change(path, before, after, upstream, result)
        old, new = (lambda p, t=tree: read(t, p) for tree in trees)
        (question,) = guarded(PATCH, [change], old=old, new=new)
    assert question.name == (
        f"{PATCH}:override-gone:{path}:Phi3ForCausalLM.get_eagle3_aux_hidden_state_layers"
    )
    assert "get_eagle3_default_aux_hidden_state_layers instead" in question.text


def test_files_that_will_be_asked_for() -> None:
    data = b"import os\nfrom pkg.utils import first\nfrom ..deep import x\nimport pkg.a as a\n"
    files = set(wanted("src/pkg/models/kimi.py", data))
    assert {"src/pkg/utils.py", "src/pkg/utils/first.py", "src/pkg/deep/__init__.py"} <= files
    assert "src/pkg/a.py" in files
    assert set(wanted("a.py", b"def f(:\n")) == set()
