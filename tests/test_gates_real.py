"""The gates on the releases that this project is about, from the index."""

from __future__ import annotations

import ast
import dataclasses
import time
from pathlib import Path

import pytest

import gates_trees
from gates_trees import Trees
from vpatch.gates.check import Checked, check_tree
from vpatch.gates.modules import Module
from vpatch.patches.repo import pinned, pinned_tags
from vpatch.upstream.mirror import Mirror

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[1]
PINNED = pinned_tags(ROOT)

_CLASS = "after load"
_STORY = [
    ("target", "config", r"agle3 is only supported for ['llama'"),
    ("placeholder", _CLASS, "'KimiK25Config' object has no attribute 'image_token_index'"),
    (
        "interface",
        _CLASS,
        "Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
    ),
]
_BARE = ("embeddings", _CLASS, "'DeepseekV2Model' object has no attribute 'model'")
STORIES = {
    "v0.15.1": [*_STORY[:2], _BARE, _STORY[2]],
    "v0.16.0": _STORY,
    "v0.17.1": _STORY,
}


@pytest.fixture(scope="module")
def trees(release_cache: Path) -> Trees:
    """Trees by tag; patched where it is asked for."""
    return gates_trees.trees(release_cache)


def _found(checked: Checked, gate: str) -> tuple[str, str, str]:
    found = next(each.found for each in checked.verdicts if each.gate.name == gate)
    return found.word, found.when, f"{found.error} {found.note}"


@pytest.mark.parametrize("tag", STORIES)
def test_the_story_comes_in_order(trees: Trees, tag: str) -> None:
    story = check_tree(trees(tag)).story
    assert [(each.gate.name, each.found.when) for each in story] == [
        (gate, when) for gate, when, _ in STORIES[tag]
    ]
    for verdict, (_, _, text) in zip(story, STORIES[tag], strict=True):
        assert text in verdict.found.error
        line = verdict.found.evidence[0]
        data = trees(tag).read(line.file)
        assert data is not None
        assert line.text in data.split(b"\n")[line.line - 1].decode()


def test_the_dead_getter(trees: Trees) -> None:
    word, when, text = _found(check_tree(trees("v0.18.0")), "dead-methods")
    assert (word, when) == ("fail", "never")
    assert "get_eagle3_aux_hidden_state_layers" in text


@pytest.mark.parametrize("tag", ["v0.29.0", "v0.30.0", "v0.31.0", "v0.32.0", "v0.33.0"])
def test_nested_ids_are_ignored(trees: Trees, tag: str) -> None:
    checked = check_tree(trees(tag))
    assert checked.runner == "v2"
    assert not checked.story
    word, when, text = _found(checked, "ids-nested")
    assert (word, when) == ("fail", "never")
    assert "V2 runner, which is the default: (2, 4, 5) are taken" in text
    stages = _found(checked, "pipeline-parallel")
    if tag == "v0.29.0":
        assert stages[:2] == ("fail", "config")
    else:
        assert stages[:2] == ("fail", _CLASS)
        assert "KimiK25ForConditionalGeneration does not support eagle3 with" in stages[2]


def test_v1_reads_nested_ids(trees: Trees) -> None:
    checked = check_tree(trees("v0.26.0"))
    assert checked.runner == "v1"
    assert _found(checked, "ids-nested")[0] == "pass"


@pytest.mark.parametrize("tag", PINNED)
def test_a_series_leaves_no_gate_red(trees: Trees, tag: str) -> None:
    topics = pinned(ROOT, tag)[1].topics
    failed = check_tree(trees(tag, patched=True)).failed
    # What the tree has nothing of, and no topic of its series claims to give.
    claimed = [e for e in failed if not e.found.absent or e.gate.topic in topics]
    assert [each.as_dict() for each in claimed] == []


@pytest.mark.parametrize("tag", PINNED)
def test_a_series_mends_something(trees: Trees, tag: str) -> None:
    topics = {each.gate.topic for each in check_tree(trees(tag)).failed}
    assert "aux-layers" in topics


@pytest.mark.parametrize(
    ("tag", "options"),
    [
        ("v0.17.1", ["norm_before_residual"]),
        ("v0.26.0", ["fc_norm", "norm_output", "norm_before_residual"]),
        ("v0.33.0", ["fc_norm", "norm_output", "norm_before_residual"]),
    ],
)
def test_norms_in_eagle_config(trees: Trees, tag: str, options: list[str]) -> None:
    verdicts = check_tree(trees(tag)).verdicts
    (found,) = (each.found for each in verdicts if each.gate.name == "drafter-norms")
    assert (found.word, found.when) == ("fail", "never")
    assert found.note.startswith(f"{', '.join(options)} in eagle_config: not read; without ")
    places = [(line.file, line.text) for line in found.evidence]
    for option, (file, text) in zip(options, places[: len(options)], strict=True):
        assert file == "vllm/model_executor/models/llama_eagle3.py"
        assert f'"{option}"' in text
    patched = trees(tag, patched=True)
    assert _found(check_tree(patched), "drafter-norms")[0] == "pass"
    alone = gates_trees.changed(
        patched,
        "vllm/transformers_utils/eagle3.py",
        "def _get_flag(",
        "def _get_flag(config, name, default):\n    return bool(getattr(config, name, default))\n"
        "\n\ndef _of_both(",
    )
    assert _found(check_tree(alone), "drafter-norms")[0] == "fail"


@pytest.mark.parametrize(
    ("tag", "file", "field", "said"),
    [
        ("v0.17.1", "compilation", "enable_sp", "self.compilation_config.pass_config.enable_sp"),
        ("v0.33.0", "scheduler", "max_num_batched_tokens", "max_num_batched_tokens"),
        ("v0.33.0", "vllm", "compilation_config", "vllm_config.compilation_config"),
    ],
)
def test_a_field_of_the_config_that_is_gone(
    trees: Trees, tag: str, file: str, field: str, said: str
) -> None:
    whole = trees(tag, patched=True)
    assert _found(check_tree(whole), "config-fields")[0] == "pass"
    less = gates_trees.changed(whole, f"vllm/config/{file}.py", f"    {field}:", "    renamed:")
    checked = check_tree(less)
    word, when, text = _found(checked, "config-fields")
    assert (word, when) == ("fail", _CLASS)
    assert f"object has no attribute '{field}'" in text
    (found,) = (each.found for each in checked.verdicts if each.gate.name == "config-fields")
    assert any(said in line.text for line in found.evidence)


@pytest.mark.nightly
def test_every_field_that_a_release_reads_is_there(trees: Trees, release_cache: Path) -> None:
    imported = Mirror.open(release_cache).imported()
    assert imported
    for release in imported:
        checked = check_tree(trees(release.tag))
        assert _found(checked, "config-fields")[0] == "pass", release.tag


def test_a_check_takes_about_as_long_as_parsing_what_it_reads(trees: Trees) -> None:
    """A ratio, which no slow machine changes; ci/bench.py has the seconds."""
    tree = trees(PINNED[-1])
    modules: dict[str, Module | None] = {}
    begun = time.process_time()
    check_tree(tree, modules)
    checking = time.process_time() - begun
    texts = [tree.read(module.path) for module in modules.values() if module is not None]
    begun = time.process_time()
    for text in texts:
        ast.parse(text or b"")
    assert checking < 1.6 * (time.process_time() - begun)


# Of the patched v0.17.1: what the series adds, taken away again.
MUTANTS = [
    ("model_executor/models/kimi_k25.py", "def set_aux_hidden_state_layers", "def set_aux_layers"),
    ("model_executor/models/kimi_k25.py", "def get_eagle3_aux_hidden_state_layers", "def other"),
    ("model_executor/models/kimi_k25.py", "    SupportsEagle3,\n):", "):"),
    ("model_executor/models/deepseek_v2.py", "def _residual_stream", "def _stream"),
    ("model_executor/models/deepseek_v2.py", "aux_hidden_states.append(", "print("),
    ("model_executor/models/deepseek_v2.py", "return hidden_states, aux_hidden_states",
     "return hidden_states"),
    ("transformers_utils/eagle3.py", "def get_aux_layer_ids", "def get_layer_ids"),
    ("transformers_utils/eagle3.py", 'eagle_config.get("layer_ids")', "None"),
    ("transformers_utils/eagle3.py", "def _as_ids", "def _ids"),
    ("v1/spec_decode/eagle.py", "media_placeholder_token_id", "image_token_index"),
    ("v1/spec_decode/eagle.py", "(Eagle3LlamaForCausalLM, Eagle3DeepseekV2ForCausalLM)",
     "Eagle3LlamaForCausalLM"),
    ("model_executor/models/deepseek_eagle3.py", "            loaded.add(name)\n", ""),
    ("model_executor/models/deepseek_eagle3.py", "inner.append((name, weight))", "pass"),
    ("model_executor/models/registry.py", '"Eagle3DeepseekV3ForCausalLM": (', '"Other": ('),
    ("transformers_utils/config.py", '    kimi_k2="DeepseekV3Config",\n', ""),
    ("transformers_utils/model_arch_config_convertor.py", '"kimi_k2",', ""),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new"), MUTANTS)
def test_what_the_series_adds_is_missed(trees: Trees, file: str, old: str, new: str) -> None:
    tree = trees("v0.17.1", patched=True)
    path = f"vllm/{file}"
    data = tree.read(path)
    assert data is not None
    assert old.encode() in data
    changed = {**tree._contents, path: data.replace(old.encode(), new.encode())}
    assert check_tree(dataclasses.replace(tree, _contents=changed)).failed
