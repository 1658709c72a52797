"""What preflight says of drafters that were made to break v0.32.0, and what its engine did.

The results are those of its CPU build, patched, revision 6: before the mends of rows 33 to 42 of
docs/defects.md. What a tree with the mends does with the same drafters stands in MENDED; some were
run again with revision 8, which has them, and on the release as it is.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from preflight_lab import REVISION_9, write
from vpatch.preflight.case import Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.judge import judge
from vpatch.preflight.mends import ALL, NONE, Mends
from vpatch.preflight.releases import Runner, facts_of
from vpatch.preflight.target import read_target
from vpatch.preflight.verdict import Verdict

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import preflight_table  # noqa: E402

KEPT = REPO / "tests" / "fixtures" / "preflight-forms" / "v0.32.0-revision-6.json"
FORMS: Mapping[str, Any] = json.loads(KEPT.read_text())
DRAFTERS: Mapping[str, Any] = FORMS["drafters"]
SIZES = {"F32": 4, "I64": 8, "BOOL": 1}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
# Nothing in their configs or headers says how their ids are counted, or what their d2t holds.
UNTOLD = ("zero-unsaid-output", "last-unsaid-output", "d2t-absolute")
CONFIG, LOAD = "config", "load"
Said = tuple[str, str | None]
WORKS: Said = ("works", None)
NEVER: Said = ("wrong-result", "never")


def _file(path: Path, tensors: Sequence[Sequence[Any]] | None) -> None:
    """A safetensors file whose weights are a hole; None: a pointer in the place of one."""
    if tensors is None:
        path.write_bytes(POINTER)
        return
    entries, end = {}, 0
    for name, dtype, shape in tensors:
        start, end = end, end + math.prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


def verdict_on(
    name: str,
    folder: Path,
    *,
    release: str = "0.32.0",
    mends: Mends | None = NONE,
    runner: Runner = "v1",
    named: str = "drafter",
) -> Verdict:
    """What preflight says of one of them; mends None: the release as it is."""
    kept = DRAFTERS[name]
    target = write(folder / "target", FORMS["targets"][kept["kind"]])
    own = write(folder / named, kept["config"])
    for file, header in kept["files"].items():
        _file(own / file, None if header is None else FORMS["headers"][header])
    if "index" in kept:
        index = {"weight_map": {file: file for file in kept["index"]}}
        (own / "model.safetensors.index.json").write_text(json.dumps(index))
    case = Case(
        read_target(read_checkpoint(str(target), weights=False)),
        read_drafter(read_checkpoint(str(own), weights=True)),
        facts_of(Version(release), patched=mends is not None, runner=runner, mends=mends or NONE),
        Parallel(),
        kept.get("speculative", {}),
    )
    return judge(case)


def said(verdict: Verdict) -> Said:
    first = verdict.first
    return verdict.as_given, None if first is None else first.when


@pytest.mark.parametrize("name", [name for name, kept in DRAFTERS.items() if "came" in kept])
def test_engine_of_revision_6_did_what_preflight_says(name: str, tmp_path: Path) -> None:
    verdict = verdict_on(name, tmp_path)
    if name in UNTOLD:
        assert verdict.word == "works"
        return
    row = preflight_table.Row(name, "v0.32.0, patched", verdict, DRAFTERS[name]["came"])
    assert row.disagreement is None


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        (name, tree)
        for name in DRAFTERS
        for tree in ("mended", "as it is")
        if tree in DRAFTERS[name]
    ],
)
def test_engine_of_other_trees_did_what_preflight_says(
    name: str, tree: str, tmp_path: Path
) -> None:
    verdict = verdict_on(name, tmp_path, mends=REVISION_9 if tree == "mended" else None)
    row = preflight_table.Row(name, f"v0.32.0, {tree}", verdict, DRAFTERS[name][tree])
    assert row.disagreement is None


# Where they are not those of revision 6: with the mends, and without a series.
MENDED: Mapping[str, tuple[Said, str]] = {
    # 33: zeros are dropped; the head of a smaller vocabulary has another shape
    "full-with-d2t": (WORKS, ""),
    "no-draft-vocab": (("error", LOAD), "has a d2t of [384], but its draft_vocab_size is 512."),
    "draft-vocab-null": (("error", LOAD), "has a d2t of [384], but its draft_vocab_size is 512."),
    # 35
    "nested-nbr": (WORKS, ""),
    "mla-nested-norm-output": (WORKS, ""),
    "mla-nested-fc-norm": (WORKS, ""),
    "use-aux-text-false": (
        ("error", CONFIG),
        "use_aux_hidden_state in the drafter's config has to be true or false, not",
    ),
    # 36
    "stale-file": (WORKS, ""),
    "lfs-file-unused": (WORKS, ""),
    # 37
    "dflash-config": (("error", CONFIG), "names layers as dflash_config.target_layer_ids"),
    "dflash-config-five": (("error", CONFIG), "names layers as dflash_config.target_layer_ids"),
    # 39
    "spec-only-eagle-config": (WORKS, ""),
    "spec-outer-eagle-config-differs": (("error", CONFIG), "names two sets of aux layers"),
    "spec-outer-wins": (
        ("error", CONFIG),
        "The speculators config contradicts itself: eagle_aux_hidden_state_layer_ids is",
    ),
    # 40
    "spec-nested-nbfc": (("error", LOAD), "The EAGLE-3 drafter's checkpoint lacks"),
    "spec-draft-vocab-inside": (WORKS, ""),
    "mla-spec-inner-norms": (WORKS, ""),
    # 41
    "target-hidden-null-run": (WORKS, ""),
    "target-hidden-wrong-run": (("error", CONFIG), "hidden states of 64 values"),
    "narrow": (("error", CONFIG), "hidden states of 64 values"),
    # 42
    "method-omitted": (WORKS, ""),
}
AS_IT_IS: Mapping[str, tuple[Said, str]] = {
    "both-differ": (WORKS, ""),
    "stale-file": (WORKS, ""),
    "lfs-file-unused": (WORKS, ""),
    "spec-nested-nbfc": (NEVER, ""),
    "fc-norm-text-flag": (NEVER, ""),
    "no-aux-but-nested-true": (WORKS, ""),
    "mla-nested-fc-norm": (("error", LOAD), "There is no module or parameter named 'fc_norm'"),
    "mla-spec-inner-norms": (("error", CONFIG), "Unsupported model_type kimi_k2"),
    # The engine leaves the bias out; the drafter that its guesses were compared with had none.
    "fc-bias": (NEVER, ""),
    "dflash-config": (NEVER, ""),
    "use-aux-text-false": (WORKS, ""),
}
# What the mends do not touch, or what is the same in every release.
SAME = (
    *("full-with-d2t", "no-draft-vocab", "draft-vocab-null", "d2t-short", "spec-outer-wins"),
    *("spec-only-eagle-config", "spec-outer-eagle-config-differs", "spec-draft-vocab-inside"),
    *("nested-nbr", "mla-nested-norm-output", "dflash-config", "dflash-config-five"),
    *("target-hidden-null-run", "target-hidden-wrong-run", "narrow", "method-omitted"),
)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_tree_with_the_mends(name: str, tmp_path: Path) -> None:
    verdict = verdict_on(name, tmp_path, mends=ALL)
    wanted, text = MENDED.get(name, (said(verdict_on(name, tmp_path)), ""))
    assert said(verdict) == wanted, verdict.problems
    assert verdict.first is None or text in verdict.first.said


@pytest.mark.parametrize("name", AS_IT_IS)
def test_the_release_as_it_is(name: str, tmp_path: Path) -> None:
    wanted, text = AS_IT_IS[name]
    verdict = verdict_on(name, tmp_path, mends=None)
    assert said(verdict) == wanted, verdict.problems
    assert verdict.first is None or text in verdict.first.said


@pytest.mark.parametrize("name", SAME)
def test_revision_6_did_what_the_release_does(name: str, tmp_path: Path) -> None:
    verdict = verdict_on(name, tmp_path, mends=None)
    row = preflight_table.Row(name, "v0.32.0, as it is", verdict, DRAFTERS[name]["came"])
    assert row.disagreement is None


@pytest.mark.parametrize(
    ("name", "mends", "shown"),
    [
        ("both-differ", None, "top-level [2, 4, 5] and eagle_config [1, 3, 7]"),
        ("override-two-names", None, "eagle_config [2, 3, 4] and eagle_config.layer_ids [1, 4, 5]"),
        ("spec-outer-wins", None, "[1, 3, 7] and transformer_layer_config."),
        ("spec-outer-wins", NONE, "[1, 3, 7] and transformer_layer_config."),
    ],
)
def test_what_differs_and_is_not_refused_is_said(
    name: str, mends: Mends | None, shown: str, tmp_path: Path
) -> None:
    notes = verdict_on(name, tmp_path, mends=mends).notes
    assert any("contradicts itself" in note and shown in note for note in notes)
