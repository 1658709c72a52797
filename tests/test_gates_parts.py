"""What makes a check worthless if nobody says it: parts that are not there, code that is not read.

A tree that cannot start has to be red, even where no gate can follow it to the error.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gates_lab
from vpatch.cli import main
from vpatch.gates.check import Checked, check_tree
from vpatch.gates.tree import of_folder

KIMI = "model_executor/models/kimi_k25.py"
TEXT = "model_executor/models/deepseek_v2.py"
REGISTRY = "model_executor/models/registry.py"
RUNNER = "v1/worker/gpu_model_runner.py"
CLASS = "KimiK25ForConditionalGeneration"
_INSPECTED = f"ValueError: Model architectures ['{CLASS}'] failed to be inspected"


def _said(checked: Checked, gate: str) -> tuple[str, str]:
    found = next(each.found for each in checked.verdicts if each.gate.name == gate)
    return found.word, f"{found.error} {found.note} {' '.join(map(str, found.evidence))}"


def _with(folder: Path, file: str, text: str | None) -> Checked:
    """The small vLLM, with other text behind a file's own; None: without the file."""
    gates_lab.write(folder)
    path = folder / "vllm" / file
    if text is None:
        path.unlink()
    else:
        path.write_text(path.read_text() + text)
    return check_tree(of_folder(folder))


def test_the_small_vllm_has_all_parts(tmp_path: Path) -> None:
    checked = gates_lab.check(tmp_path)
    assert _said(checked, "parts")[0] == "pass"
    unread = {each.gate.name for each in checked.verdicts if each.found.unread}
    assert unread == {"drafter-weights", "cache-key", "collection"}  # it has no such code
    assert unread <= {each.gate.name for each in checked.failed}


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (KIMI, None, _INSPECTED),
        (KIMI, "\ndef broken(:\n", _INSPECTED),
        (RUNNER, None, "ModuleNotFoundError: No module named 'vllm.v1.worker.gpu_model_runner'"),
        ("config/speculative.py", None, "No module named 'vllm.config.speculative'"),
        ("config/vllm.py", None, "ModuleNotFoundError: No module named 'vllm.config.vllm'"),
        ("v1/spec_decode/eagle.py", None, "No module named 'vllm.v1.spec_decode.eagle'"),
        (KIMI, '\nraise ImportError("no")\n', "kimi_k25.py:"),
        (TEXT, "\nassert False\n", "deepseek_v2.py:"),
        (KIMI, f'\nsetattr({CLASS}, "forward", None)\n', f"{CLASS} is changed after it is made"),
        (KIMI, f"\ndel {CLASS}.forward\n", f"{CLASS} is changed after it is made"),
        (TEXT, "\nDeepseekV2Model.forward = None\n", "DeepseekV2Model is changed after it is made"),
        (KIMI, f"\n{CLASS} = object\n", f"{CLASS} is changed after it is made"),
        (KIMI, f"\nif nn:\n    class {CLASS}(nn.Module): ...\n", f"{CLASS} is defined twice"),
    ],
)
def test_a_part_that_is_not_there(tmp_path: Path, file: str, text: str | None, said: str) -> None:
    word, told = _said(_with(tmp_path, file, text), "parts")
    assert word == "fail"
    assert said in told


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (f'"{CLASS}": (', '"Other": (', f"['{CLASS}'] are not supported for now"),
        (f'"kimi_k25", "{CLASS}"', '"kimi_k25", "Nobody"', _INSPECTED),
        ('"kimi_k25",', '"kimi_k2500",', _INSPECTED),
    ],
)
def test_the_target_is_registered(tmp_path: Path, old: str, new: str, said: str) -> None:
    word, told = _said(gates_lab.check(tmp_path, {REGISTRY: (old, new)}), "parts")
    assert word == "fail"
    assert said in told


def test_another_class_than_the_gates_read(tmp_path: Path) -> None:
    changes = {REGISTRY: (f'"kimi_k25", "{CLASS}"', '"deepseek_v2", "DeepseekV2ForCausalLM"')}
    word, told = _said(gates_lab.check(tmp_path, changes), "parts")
    assert word == "fail"
    assert "DeepseekV2ForCausalLM" in told


@pytest.mark.parametrize(
    ("file", "text", "error"),
    [
        (RUNNER, "\nfrom vllm.v1.worker.nothing import gone\n",
         "ModuleNotFoundError: No module named 'vllm.v1.worker.nothing'"),
        (RUNNER, "\nimport vllm.v1.worker.nothing\n",
         "ModuleNotFoundError: No module named 'vllm.v1.worker.nothing'"),
        (RUNNER, "\n@nobody_has_this\nclass Other:\n    pass\n",
         "NameError: name 'nobody_has_this' is not defined"),
        (RUNNER, "\nclass Other(Nobody):\n    pass\n", "NameError: name 'Nobody' is not defined"),
        (RUNNER, "\ndef other(x=nobody):\n    pass\n", "NameError: name 'nobody' is not defined"),
    ],
)  # fmt: skip
def test_what_is_run_at_import(tmp_path: Path, file: str, text: str, error: str) -> None:
    word, told = _said(_with(tmp_path, file, text), "names")
    assert word == "fail"
    assert error in told


@pytest.mark.parametrize(
    "text",
    [
        "\ntry:\n    import vllm.v1.worker.nothing\nexcept ImportError:\n    pass\n",
        "\nclass Other:\n    @property\n    def x(self): ...\n\n    @x.setter\n"
        "    def x(self, to): ...\n",
        "\nif False:\n    raise RuntimeError\n",
        "\nclass Deep:\n    one = 1\n\n    def f(self, x=one): ...\n",
        "\nimport vllm.third_party.x\nfrom vllm._C import y\n",
    ],
)
def test_what_is_fine_at_import(tmp_path: Path, text: str) -> None:
    checked = _with(tmp_path, RUNNER, text)
    assert [_said(checked, gate)[0] for gate in ("names", "parts")] == ["pass", "pass"]


def test_a_hidden_crash_of_a_gate_is_none(tmp_path: Path) -> None:
    """A target that no gate can build: said, and not died of."""
    checked = _with(tmp_path, "model_executor/models/interfaces.py", None)
    assert checked.failed


def test_layers_that_nobody_can_follow_are_not_green(tmp_path: Path) -> None:
    old = "self.model.aux_hidden_state_layers = tuple(layers)"
    new = "self.model.aux_hidden_state_layers = nn.anything(layers)"
    checked = gates_lab.check(tmp_path, {TEXT: (old, new)})
    assert "cannot be followed" in _said(checked, "interface")[1]
    assert [each for each in checked.failed if each.gate.group == "start"]


def test_a_state_that_a_layer_overwrites(tmp_path: Path) -> None:
    old = "hidden_states.clone() if residual is None"
    checked = gates_lab.check(tmp_path, {TEXT: (old, "hidden_states if residual is None")})
    word, told = _said(checked, "states-at-ends")
    assert word == "fail"
    assert "which a layer overwrites" in told


_CAT = "torch.cat([each[:count] for each in aux_hidden_states], dim=-1)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_CAT, "torch.cat([each[:count] for each in aux_hidden_states[::-1]], dim=-1)"),
        (_CAT, "torch.cat([each[:count] for each in aux_hidden_states[:2]], dim=-1)"),
        (_CAT, "torch.cat([each[:count] for each in aux_hidden_states], dim=0)"),
        (_CAT, "torch.cat([each[:count] for each in aux_hidden_states])"),
        ("hidden_states, aux_hidden_states = model_output",
         "aux_hidden_states, hidden_states = model_output"),
    ],
)  # fmt: skip
def test_states_on_their_way_through_the_runner(tmp_path: Path, old: str, new: str) -> None:
    assert _said(gates_lab.check(tmp_path / "a"), "handed-on")[0] == "pass"
    checked = gates_lab.check(tmp_path / "b", {RUNNER: (old, new)})
    assert _said(checked, "handed-on")[0] == "fail"


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ("aux_hidden_states", "pass"),
        ("aux_hidden_states[::-1]", "fail"),
        ("aux_hidden_states[:2]", "fail"),
    ],
)
def test_states_that_are_columns_of_a_buffer(tmp_path: Path, given: str, verdict: str) -> None:
    new = f"side_by_side([each[:count] for each in {given}], buffer)"
    checked = gates_lab.check(tmp_path, {RUNNER: (_CAT, new)})
    assert _said(checked, "handed-on")[0] == verdict


def test_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = gates_lab.write(tmp_path)
    (folder / "vllm" / KIMI).write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["check", "--tree", str(folder), "--json"])
    assert ended.value.code == 1
    data = json.loads(capsys.readouterr().out)
    assert data["trees"][0]["failed"][0] == "parts"
