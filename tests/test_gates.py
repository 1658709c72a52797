"""The gates on a small vLLM: green as it is, each red for what it is there for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gates_lab
from vpatch.cli import main
from vpatch.errors import HostError, UsageError
from vpatch.gates import tree as trees
from vpatch.gates.check import Checked, check_tree

# What a small vLLM does not have, and the gates say so.
_LACKS = {
    "drafter-mla", "ids-layer-ids", "ids-numbering", "ids-refused", "states-float16",
    "decode-context-parallel", "drafter-weights", "cache-key", "collection"}  # fmt: skip

_RUNNER = "v1/worker/gpu_model_runner.py"
_PROPOSER = "v1/spec_decode/eagle.py"
_KIMI = "model_executor/models/kimi_k25.py"
_TEXT = "model_executor/models/deepseek_v2.py"
_PROTOCOL = "model_executor/models/interfaces.py"
_DRAFTER = "model_executor/models/llama_eagle3.py"
_CONFIG = "config/speculative.py"

# file, what stands there, what stands there then, the gate, when, part of the error or note
MUTANTS = [
    (_CONFIG, '"llama", "kimi"', '"llama"', "target", "config", "Got model_type='kimi_k2'"),
    ("model_executor/models/registry.py", "LlamaForCausalLMEagle3", "Other", "drafter", "config",
     "['LlamaForCausalLMEagle3'] are not supported"),
    (_PROPOSER, "isinstance(self.model, Eagle3LlamaForCausalLM)",
     "isinstance(self.model, EagleProposer)", "drafter", "first step", "AssertionError"),
    (_DRAFTER, "count = len(ids) if ids else 3", "count = 3", "drafter-fc", "after load",
     "fc takes 3 states where 5"),
    (_PROPOSER, "target_model.config.media_placeholder_token_id",
     "target_model.config.image_token_index", "placeholder", "after load",
     "'KimiK25Config' object has no attribute 'image_token_index'"),
    (_TEXT, "self.lm_head = nn.Linear(1, 1)", "pass", "embeddings", "after load",
     "'DeepseekV2ForCausalLM' object has no attribute 'lm_head'"),
    (_PROPOSER, "        self.model.lm_head = target.lm_head\n", "", "embeddings", "never",
     "keeps uninitialised weights"),
    (_KIMI, "SupportsMultiModal, SupportsEagle3)", "SupportsMultiModal)", "interface", "after load",
     "Model does not support EAGLE3 interface"),
    (_KIMI, "def set_aux_hidden_state_layers", "def set_aux_layers", "interface", "never",
     "do not arrive"),
    (_TEXT, "self.model.aux_hidden_state_layers = tuple(layers)", "pass", "interface", "never",
     "do not arrive"),
    (_RUNNER, "            self._set_aux_layers()", "            pass", "interface", "never",
     "never asks"),
    (_TEXT, "hidden_states.clone() if residual is None else hidden_states + residual",
     "hidden_states", "states", "never", "a0"),
    (_TEXT, "hidden_states.clone() if residual is None else hidden_states + residual",
     "hidden_states + residual", "states-at-ends", "first step",
     "unsupported operand type(s) for +: 'Tensor' and 'NoneType'"),
    (_TEXT, "if self.aux_hidden_state_layers:", "if aux_hidden_states:", "states-pair",
     "first step", "too many values to unpack"),
    (_RUNNER, 'eagle_config.get("eagle_aux_hidden_state_layer_ids")', "None", "ids-nested",
     "never", "(2, 4, 5) are taken"),
    (_RUNNER, 'logger.warning("The drafter', 'logger.info("The drafter', "ids-default", "never",
     "without a warning"),
    (_CONFIG, "EAGLE-3 does not work with pipeline stages", "Model lacks SupportsPP",
     "pipeline-parallel", "config", "another cause"),
    (_CONFIG, "pipeline_parallel_size > 1", "pipeline_parallel_size > 9", "pipeline-parallel",
     "never", "loses the states"),
    # Of a kind that nobody listed.
    (_KIMI, "def get_default_layers", "def get_old_aux_layers", "dead-methods", "never",
     "get_old_aux_layers"),
    (_PROTOCOL, "    def get_default_layers", "    def get_eagle_extra(self): ...\n\n"
     "    def get_default_layers", "protocol", "never", "get_eagle_extra"),
    (_RUNNER, "self.model.get_default_layers()", "self.model.get_aux_defaults()", "calls",
     "after load", "no attribute 'get_aux_defaults'"),
    (_RUNNER, "import supports_eagle3\n", "import supports_eagle_3\n", "names", "after load",
     "cannot import name 'supports_eagle_3'"),
    (_RUNNER, "supports_eagle3(self.model)", "supports_eagle(self.model)", "names", "after load",
     "name 'supports_eagle' is not defined"),
    (_RUNNER, "config = self.speculative_config", "config = self.spec_config", "attributes",
     "after load", "no attribute 'spec_config'"),
    (_RUNNER, "self._aux_layers_from_config()", "self._aux_layers_from_config(1)", "attributes",
     "after load", "takes 0 positional arguments but 1"),
    (_DRAFTER, "LlamaModel(vllm_config=vllm_config, prefix=prefix)", "LlamaModel(vllm_config)",
     "drafter", "after load", "takes 1 positional arguments but 2"),
    (_DRAFTER, "config.hidden_size * count", "config.hiden_size * count", "known-attributes",
     "after load", "no attribute 'hiden_size'"),
    (_PROPOSER, "config.image_token_index =", "config.image_tokn_index =", "known-attributes",
     "after load", "no attribute 'image_token_index'"),
    (_DRAFTER, "def combine_hidden_states", "def combine_hiden_states", "known-methods", "never",
     "Eagle3LlamaForCausalLM.combine_hiden_states: nothing of the tree calls it"),
    (_DRAFTER, "class LlamaModel(nn.Module)", "class LlamaModel(object)", "modules", "after load",
     "'LlamaModel' object is not callable"),
    (_DRAFTER, "        super().__init__()\n        config", "        config", "modules",
     "after load", "before Module.__init__()"),
]  # fmt: skip


def _of(checked: Checked, gate: str) -> dict[str, object]:
    return next(each.as_dict() for each in checked.verdicts if each.gate.name == gate)


def test_the_small_vllm_is_whole(tmp_path: Path) -> None:
    checked = gates_lab.check(tmp_path)
    assert {each.gate.name for each in checked.failed} <= _LACKS
    assert checked.runner == "v1"


@pytest.mark.parametrize(("file", "old", "new", "gate", "when", "text"), MUTANTS)
def test_a_gate_turns_red(
    tmp_path: Path, file: str, old: str, new: str, gate: str, when: str, text: str
) -> None:
    before = _of(gates_lab.check(tmp_path / "before"), gate)
    assert before["verdict"] == "pass", before
    after = _of(gates_lab.check(tmp_path / "after", {file: (old, new)}), gate)
    assert after["verdict"] == "fail", after
    assert after["when"] == when
    assert text in f"{after['error']} {after['note']} {after['evidence']}"


def test_a_file_that_cannot_be_parsed_is_a_finding(tmp_path: Path) -> None:
    checked = gates_lab.check(tmp_path, {_RUNNER: ("def load_model(self):", "def load_model(")})
    assert checked.failed
    assert "SyntaxError" in str(_of(checked, "names")["error"]) or _of(checked, "interface")


def test_nothing_of_the_tree_is_run(tmp_path: Path) -> None:
    folder = gates_lab.write(tmp_path)
    trap = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    for path in folder.rglob("*.py"):
        path.write_text(trap + path.read_text())
    trees.of_folder(folder)
    check_tree(trees.of_folder(folder))
    assert not (tmp_path / "ran").exists()


def test_code_without_end_ends(tmp_path: Path) -> None:
    loop = "while True:\n            for each in range(9999):\n                layers = [each]"
    changes = {_RUNNER: ("layers = self._aux_layers_from_config()", loop)}
    said = _of(gates_lab.check(tmp_path, changes), "interface")
    assert said["verdict"] == "fail"  # nothing is known: that is no pass
    assert "cannot be followed" in str(said["note"])


def test_a_deep_expression_is_no_crash(tmp_path: Path) -> None:
    deep = "(" * 150 + "1" + ")" * 150 + " + 1" * 3000
    changes = {_RUNNER: ("layers = self._aux_layers_from_config()", f"layers = {deep}")}
    assert gates_lab.check(tmp_path, changes).verdicts


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = gates_lab.write(tmp_path / "tree")
    secret = tmp_path / "secret.py"
    secret.write_text("x = 1\n")
    (folder / "vllm" / "linked.py").symlink_to(secret)
    (folder / "vllm" / "outside").symlink_to(tmp_path)
    tree = trees.of_folder(folder)
    assert not any("linked" in path or "outside" in path for path in tree.paths)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    folder = gates_lab.write(tmp_path)
    (folder / "vllm" / "config" / "big.py").write_bytes(b"#" * (trees.MAX_FILE + 1))
    with pytest.raises(HostError, match="larger than 8 MiB"):
        trees.of_folder(folder)


def test_a_folder_without_vllm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no vllm/__init__\.py"):
        trees.of_folder(tmp_path)


def test_the_package_itself_can_be_named(tmp_path: Path) -> None:
    folder = gates_lab.write(tmp_path)
    assert trees.of_folder(folder / "vllm").paths == trees.of_folder(folder).paths


def test_an_installed_vllm_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = gates_lab.write(tmp_path)
    (folder / "vllm" / "__init__.py").write_text("raise SystemExit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert "vllm/config/speculative.py" in trees.of_installation(sys.executable).paths


def test_a_python_without_vllm() -> None:
    with pytest.raises(UsageError, match="has no vLLM"):
        trees.of_installation(sys.executable)


def test_a_python_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no Python"):
        trees.of_installation(str(tmp_path / "python"))


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, dict[str, object]]:
    with pytest.raises(SystemExit) as ended:
        main([*args, "--json"])
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gates_lab.write(tmp_path, {_CONFIG: ('"llama", "kimi"', '"llama"')})
    code, said = _json(capsys, "check", "--tree", str(tmp_path))
    assert (code, said["schema"], said["ok"]) == (1, "vpatch/check/1", False)
    trees_said = said["trees"]
    assert isinstance(trees_said, list)
    assert "target" in trees_said[0]["failed"]


def test_command_refuses_two_subjects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _json(capsys, "check", "v0.17.1", "--tree", str(tmp_path))
    assert code == 2
    assert "exclude each other" in str(said["error"])


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("vllm_config.parallel_config.pipeline_parallel_size", ""),
        ("vllm_config.parallel_config.stages", "'ParallelConfig' object has no attribute 'stages'"),
        ("vllm_config.lora_config", "'VllmConfig' object has no attribute 'lora_config'"),
        ("self.parallel_config.stages", "'ParallelConfig' object has no attribute 'stages'"),
        ("hasattr(vllm_config, 'lora_config') and vllm_config.lora_config", ""),
        ("vllm_config.model_config.anything", ""),  # no class says what it is
        ("other.parallel_config.stages", ""),
    ],
)
def test_fields_of_the_config_are_those_of_its_classes(
    tmp_path: Path, code: str, wrong: str
) -> None:
    line = "        self.model = None\n"
    file = "v1/worker/gpu_model_runner.py"
    checked = gates_lab.check(tmp_path, {file: (line, f"{line}        self.seen = {code}\n")})
    (found,) = (each.found for each in checked.verdicts if each.gate.name == "config-fields")
    assert found.word == ("fail" if wrong else "pass")
    assert found.error == (f"AttributeError: {wrong}" if wrong else "")
