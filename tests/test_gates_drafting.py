"""What a drafter embeds and where it searches, on real releases: as they are, patched, and less."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gates_trees import Trees, trees
from vpatch.gates.check import check_tree
from vpatch.gates.engine import Runner
from vpatch.gates.tree import Tree
from vpatch.patches.repo import pinned_tags

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[1]
GATES = ("drafter-chunks", "drafter-images", "draft-vocabulary")
Words = tuple[str, ...]


@pytest.fixture(scope="module")
def tree(release_cache: Path) -> Trees:
    return trees(release_cache)


def words(of: Tree, runner: Runner | None = None) -> Words:
    told = {each.gate.name: each.found.word for each in check_tree(of, runner=runner).verdicts}
    return tuple(told[gate] for gate in GATES)


_OLD: Words = ("pass", "not-applicable", "fail")
_NEW: Words = ("fail", "fail", "fail")
BARE: dict[str, Words] = {
    # Its draft method is inside of `propose`; the series' own is found.
    "v0.16.0": ("pass", "not-applicable", "not-applicable"),
    "v0.17.1": _OLD,
    "v0.26.0": _NEW,
    "v0.32.0": _NEW,
    "v0.33.0": _NEW,
}


@pytest.mark.parametrize("tag", pinned_tags(ROOT))
def test_as_it_is_and_patched(tree: Trees, tag: str) -> None:
    assert words(tree(tag, patched=False)) == BARE[tag]
    after: Words = ("pass", BARE[tag][1].replace("fail", "pass"), "pass")
    assert words(tree(tag, patched=True)) == after


@pytest.mark.parametrize("tag", ["v0.26.0", "v0.32.0", "v0.33.0"])
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_both_runners(tree: Trees, tag: str, runner: Runner) -> None:
    assert words(tree(tag, patched=True), runner) == ("pass", "pass", "pass")


_PROPOSER = "v1/spec_decode/llm_base_proposer.py"
_MUTANTS = [
    ("v1", _PROPOSER, "token_idx = min(token_idx, seq_len)", "pass", "drafter-chunks"),
    ("v1", "v1/worker/gpu_model_runner.py",
     "                        scheduler_output.num_scheduled_tokens,\n                    )", ")",
     "drafter-chunks"),
    ("v1", _PROPOSER, "or self.argmax_in_draft_vocab", "", "draft-vocabulary"),
    ("v1", _PROPOSER, "and self.model.has_ordered_draft_vocab()", "and False", "draft-vocabulary"),
    ("v2", "v1/worker/gpu/spec_decode/speculator.py", "or self.argmax_in_draft_vocab", "",
     "draft-vocabulary"),
    ("v2", "v1/worker/gpu/spec_decode/speculator.py",
     "and self.model.has_ordered_draft_vocab()", "and False", "draft-vocabulary"),
    ("v2", "model_executor/models/llama_eagle3.py",
     "self.supports_multimodal_embeddings = uses_multimodal_embeddings(self.config)",
     "self.supports_multimodal_embeddings = False", "drafter-images"),
    ("v2", "model_executor/models/deepseek_eagle3.py",
     "        return _merge_multimodal_embeddings(\n            inputs_embeds, "
     "multimodal_embeddings, is_multimodal\n        )", "        return inputs_embeds",
     "drafter-images"),
]  # fmt: skip


@pytest.mark.parametrize(("runner", "file", "old", "new", "gate"), _MUTANTS)
def test_without_it(tree: Trees, runner: Runner, file: str, old: str, new: str, gate: str) -> None:
    whole = tree("v0.33.0", patched=True)
    path = f"vllm/{file}"
    data = whole.read(path)
    assert data is not None
    assert old.encode() in data
    changed = {**whole._contents, path: data.replace(old.encode(), new.encode())}
    told = dict(
        zip(GATES, words(dataclasses.replace(whole, _contents=changed), runner), strict=True)
    )
    assert [name for name in GATES if told[name] == "fail"] == [gate]
