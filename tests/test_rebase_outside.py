"""Calls that upstream wrote where no patch looks, of functions that a patch declares otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from project_lab import BASE
from rebase_lab import NEXT
from series_lab import TAG, Step, numbered
from session_lab import Sessions, said

LIB = "vllm/lib.py"
CALLER = "vllm/caller.py"
UPSTREAM = b"""\
def pick(layers, first):
    return layers[first]


class Model:
    def __init__(self, size):
        self.size = size

    def states(self, ids):
        return ids
"""


def asked(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    mine: bytes,
    caller: bytes,
    *,
    before: bytes | None = None,
) -> list[dict[str, Any]]:
    """What is asked where a patch makes `mine` of LIB, and the next release has a caller."""
    base = {**BASE, LIB: UPSTREAM, "vllm/__init__.py": b""}
    base |= {CALLER: before} if before is not None else {}
    steps = [
        Step("0001-lib.patch", {LIB: mine}),
        Step("0002-a.patch", {"vllm/a.py": b"first\n" + numbered(60)}),
    ]
    project = Sessions(folder, {**base, CALLER: caller}, steps, base)
    status = project.run(TAG, NEXT, "--dry-run", "--json")
    answer = said(capsys)
    found: list[dict[str, Any]] = answer["questions"]
    assert status == (1 if found else 0), answer
    return found


def test_a_new_caller_of_what_takes_more_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = UPSTREAM.replace(b"layers, first)", b"layers, first, numbering)")
    caller = b"from vllm.lib import pick\n\n\ndef go():\n    return pick([1], 0)\n"
    (one,) = asked(tmp_path, capsys, mine, caller)
    assert one["name"] == f"0001-lib.patch:call-misfit:{CALLER}:go"
    assert one["line"] == 5
    assert one["text"] == (
        "upstream's call in a file that no patch touches is wrong with the series: "
        "pick() missing 1 required argument: 'numbering'"
    )


@pytest.mark.parametrize(
    ("mine", "caller", "why"),
    [
        (
            UPSTREAM.replace(b"layers, first)", b"first, layers)"),
            b"import vllm.lib as lib\n\n\ndef go():\n    return lib.pick([1], 0)\n",
            "`first` is given where `layers` was",
        ),
        (
            UPSTREAM.replace(b"self, size)", b"self, size, dtype)"),
            b"from vllm.lib import Model\n\nMODEL = Model(\n    3\n)\n",
            "missing 1 required argument: 'dtype'",
        ),
        (
            UPSTREAM.replace(b"self, ids)", b"self, *, layers)"),
            b"from vllm.lib import Model\n\n\ndef go(of: Model):\n    return of.states([1])\n",
            "takes 0 positional arguments but 1 were given",
        ),
        (
            UPSTREAM.replace(b"self, ids)", b"self, ids, of)"),
            b"from vllm.lib import Model\n\n\nclass Sub(Model):\n    def go(self):\n"
            b"        return self.states([1])\n",
            "missing 1 required argument: 'of'",
        ),
    ],
)
def test_whatever_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mine: bytes, caller: bytes, why: str
) -> None:
    (one,) = asked(tmp_path, capsys, mine, caller)
    assert why in one["text"]


GO = b"from vllm.lib import pick\n\n\ndef go():\n    return pick([1], 0)\n"


@pytest.mark.parametrize(
    ("mine", "caller", "before"),
    [
        # It takes more, and need not be given it.
        (UPSTREAM.replace(b"layers, first)", b"layers, first, numbering=None)"), GO, None),
        (UPSTREAM.replace(b"layers, first)", b"layers, first, *, numbering=(1, 2))"), GO, None),
        # The call stood there before: the series was right with it.
        (UPSTREAM.replace(b"layers, first)", b"layers, first, n)"), b"# new\n" + GO, GO),
        # It does not fit upstream's own.
        (UPSTREAM.replace(b"layers, first)", b"layers, first, n)"), GO.replace(b", 0", b""), None),
        # Another function of that name.
        (
            UPSTREAM.replace(b"layers, first)", b"layers, first, n)"),
            b"def pick(one, two):\n    return one\n\n\nA = pick(1, 2)\n",
            None,
        ),
        # It does not parse.
        (UPSTREAM.replace(b"layers, first)", b"layers, first, n)"), b"pick(1, 2\n", None),
    ],
)
def test_what_is_not_asked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mine: bytes,
    caller: bytes,
    before: bytes | None,
) -> None:
    assert asked(tmp_path, capsys, mine, caller, before=before) == []
