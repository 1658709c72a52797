"""For whose shape a drafter's attention is scheduled: real releases, and changes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates_trees import Trees, changed, trees
from vpatch.gates.check import GATES
from vpatch.gates.gate import Found, Subject, judge, not_silent
from vpatch.gates.modules import Program
from vpatch.gates.tree import Tree
from vpatch.patches.repo import pinned_tags

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[1]
GATE = next(each for each in GATES if each.name == "drafter-attention")
_FLASH = "vllm/v1/attention/backends/flash_attn.py"
_CACHES = "vllm/v1/worker/gpu/attn_utils.py"
_UTILS = "vllm/v1/attention/backends/utils.py"


@pytest.fixture(scope="module")
def tree(release_cache: Path) -> Trees:
    return trees(release_cache)


def ask(of: Tree) -> Found:
    """What the gate says; what it cannot read is red, as in `vpatch check`."""
    return not_silent((judge(Subject(Program(of)), GATE),))[0].found


# MRV2 takes no plain drafter beside a target with MLA before v0.19.0; upstream's is v0.29.0.
BARE = {
    "v0.16.0": "not-applicable",
    "v0.17.1": "not-applicable",
    "v0.18.0": "not-applicable",
    "v0.19.0": "fail",
    "v0.26.0": "fail",
    "v0.28.0": "fail",
    "v0.29.0": "pass",
    "v0.30.0": "pass",
    "v0.31.0": "pass",
    "v0.32.0": "pass",
    "v0.33.0": "pass",
}


@pytest.mark.parametrize("tag", BARE)
def test_releases_as_they_are(tree: Trees, tag: str) -> None:
    release = tree(tag)
    found = ask(release)
    assert (found.word, found.when) == (BARE[tag], "never")
    assert not found.error  # a wrong result without a word
    assert bool(found.note) == (found.word != "pass")
    assert found.evidence
    for each in found.evidence:
        data = release.read(each.file)
        assert data is not None
        assert each.text in data.split(b"\n")[each.line - 1].decode()


def test_the_three_lines(tree: Trees) -> None:
    texts = [each.text for each in ask(tree("v0.28.0")).evidence]
    assert texts == [
        "self.num_heads_q = self.model_config.get_num_attention_heads(",
        "self.num_heads_kv = self.model_config.get_num_kv_heads(self.parallel_config)",
        "self.headdim = self.model_config.get_head_size()",
    ]


@pytest.mark.parametrize("tag", pinned_tags(ROOT))
def test_patched(tree: Trees, tag: str) -> None:
    found = ask(tree(tag, patched=True))
    assert found.word == BARE[tag].replace("fail", "pass")


MUTANTS = [
    ("v0.26.0", _FLASH, "self._get_num_heads_q(layer_names)",
     "self.model_config.get_num_attention_heads(self.parallel_config)"),
    ("v0.26.0", _FLASH, "self.num_heads_kv = kv_cache_spec.num_kv_heads",
     "self.num_heads_kv = self.model_config.get_num_kv_heads(self.parallel_config)"),
    ("v0.26.0", _FLASH, "self.headdim = kv_cache_spec.head_size",
     "self.headdim = self.model_config.get_head_size()"),
    ("v0.26.0", _FLASH, "self.headdim = kv_cache_spec.head_size", "pass"),
    ("v0.26.0", _FLASH, "kv_cache_spec.num_kv_heads", "kv_cache_spec.number_of_kv_heads"),
    ("v0.26.0", _FLASH, "def _get_num_heads_q(", "def _get_number_of_heads_q("),
    ("v0.26.0", _FLASH, "if len(nums_heads) == 1:", "if len(nums_heads) == 2:"),
    ("v0.26.0", _FLASH, "layer.num_heads for layer", "layer.num_kv_heads for layer"),
    ("v0.26.0", _FLASH, "(self.vllm_config, Attention, layer_names)",
     "(self.vllm_config, Attention)"),
    ("v0.26.0", _FLASH, "headdim=self.headdim,", "headdim=self.block_size,"),
    ("v0.26.0", _FLASH, "headdim=self.headdim,", ""),
    ("v0.26.0", _FLASH, "class FlashAttentionMetadataBuilder(", "class MetadataBuilder("),
    ("v0.33.0", _FLASH, "self.num_heads_q = get_num_attention_heads_from_layers(\n"
     "            vllm_config, layer_names\n        ) or ", "self.num_heads_q = "),
    ("v0.33.0", _FLASH, "self.num_heads_kv = kv_cache_spec.num_kv_heads",
     "self.num_heads_kv = self.num_heads_q"),
    ("v0.33.0", _FLASH, "num_heads_kv=self.num_heads_kv,", "num_heads_kv=self.num_heads_q,"),
    ("v0.33.0", _UTILS, "    return heads.pop()\n", "    return None\n"),
    ("v0.33.0", _UTILS, "def get_num_attention_heads_from_layers(", "def get_heads("),
]  # fmt: skip


@pytest.mark.parametrize(("tag", "file", "old", "new"), MUTANTS)
def test_what_breaks_it_is_red(tree: Trees, tag: str, file: str, old: str, new: str) -> None:
    assert ask(changed(tree(tag, patched=True), file, old, new)).word == "fail"


@pytest.mark.parametrize(
    ("tag", "old", "new"),
    [
        ("v0.26.0", "self.num_heads_kv", "self.own_kv_heads"),
        ("v0.26.0", "nums_heads", "counts"),
        ("v0.33.0", "self.headdim", "self.own_head_size"),
    ],
)
def test_another_name_is_no_fault(tree: Trees, tag: str, old: str, new: str) -> None:
    assert ask(changed(tree(tag, patched=True), _FLASH, old, new)).word == "pass"


def test_a_runner_that_takes_both_layouts_needs_it(tree: Trees) -> None:
    """v0.17.1 would have the defect if MRV2 took a Llama drafter beside Kimi-K2.5."""
    old = "assert isinstance(kv_cache_spec, AttentionSpec)"
    new = (
        "if isinstance(kv_cache_spec, UniformTypeKVCacheSpecs):\n"
        "            kv_cache_spec = kv_cache_spec.kv_cache_specs[layer_name]"
    )
    found = ask(changed(tree("v0.17.1"), _CACHES, old, new))
    assert found.word == "fail"
    assert len(found.evidence) == 3
