"""The checkpoints that models.py writes: what is in them, what reads them, what cannot be made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.children import plain
from engine.environment import Site
from vpatch.smoke import cases

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

IDS = [1, 3, 7]
FORMS = ("nested", "top-level", "layer-ids", "speculators")
CUDA = {
    "hidden": 512,
    "heads": 16,
    "q_rank": 512,
    "kv_rank": 512,
    "nope": 128,
    "rope": 64,
    "value": 128,
    "dense": 1024,
    "expert": 256,
    "draft_heads": 8,
    "dtype": "bfloat16",
}


def drafter(name: str, kind: str, form: str, vocabulary: str, **more: object) -> dict[str, Any]:
    ids = None if form == "none" else IDS
    own = {"name": name, "kind": kind, "form": form, "vocabulary": vocabulary, "ids": ids}
    return {"target": "kimi", **own, **more}


TARGETS: list[dict[str, Any]] = [
    {"name": "kimi"},
    {"name": "int4", "kind": "int4"},
    {"name": "new", "schema": "new"},
    {"name": "short", "layers": 2, "dense": 2},
    {"name": "half", "dtype": "float16"},
]
DRAFTERS = [
    *(drafter(f"llama-{form}", "llama", form, "reduced") for form in FORMS),
    drafter("llama-full", "llama", "none", "full"),
    drafter("mla", "mla", "nested", "reduced"),
    drafter("llama-random", "llama-random", "nested", "reduced"),
    drafter("speculators-random", "llama-random", "speculators", "reduced"),
    drafter("mla-random", "mla-random", "nested", "reduced"),
    drafter("mla-full", "mla", "top-level", "full"),
    drafter("mla31", "mla31", "layer-ids", "full", changes={"norm_output": False}),
    drafter("mlanorm", "mlanorm", "none", "full"),
    drafter("llama-half", "llama", "nested", "reduced", target="half", lacks=["fc.weight"]),
]
HAND_MADE = ("llama-nested", "mla")
RANDOM = ("llama-random", "speculators-random", "mla-random")
BASE: dict[str, Any] = {"shape": {}, "targets": TARGETS, "drafters": DRAFTERS}
ONE: dict[str, Any] = {"shape": {}, "targets": TARGETS[:1], "drafters": []}


@dataclass(frozen=True)
class Made:
    """A SPEC's folder, and what models.py printed."""

    folder: Path
    printed: dict[str, Any]

    def config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.folder / name / "config.json").read_text())
        return config

    def tensors(self, name: str) -> dict[str, Any]:
        """The safetensors header: dtype and shape of each."""
        content = (self.folder / name / "model.safetensors").read_bytes()
        header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return {key: value for key, value in header.items() if key != "__metadata__"}

    def digests(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


def make(python: Path, library: Path, scratch: Path, spec: Mapping[str, Any]) -> Made:
    folder = scratch / "models"
    path = scratch / "spec.json"
    path.write_text(json.dumps({"folder": str(folder), **spec}))
    printed = plain(python, library, "vpatch.smoke.engine.models", path)
    return Made(folder, json.loads(printed))


@pytest.fixture(scope="module")
def made(engine_python: Path, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(engine_python, library, tmp_path_factory.mktemp("made"), BASE)


@pytest.fixture(scope="module")
def large(engine_python: Path, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The shape that GPU kernels take, where heads are larger than their slice of a latent."""
    drafters = [drafter("mla", "mla", "nested", "full")]
    spec = ONE | {"shape": CUDA, "drafters": drafters}
    return make(engine_python, library, tmp_path_factory.mktemp("large"), spec)


@pytest.fixture(scope="module")
def facts(
    engine_python: Path,
    library: Path,
    made: Made,
    large: Made,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What engine.model_facts found out."""
    job = {
        "int4": [str(made.folder / "int4"), str(made.folder / "kimi")],
        "roundings": ["cpu", "cuda"],
        "guesses": [str(large.folder / "kimi"), str(large.folder / "mla"), IDS],
        "echoes": [str(made.folder / "kimi"), [str(made.folder / n) for n in HAND_MADE], IDS],
        "depends": [str(made.folder / "kimi"), [str(made.folder / n) for n in RANDOM], IDS],
    }
    path = tmp_path_factory.mktemp("facts") / "job.json"
    path.write_text(json.dumps(job))
    found: dict[str, Any] = json.loads(plain(engine_python, library, "engine.model_facts", path))
    return found


def test_a_spec_makes_the_same_bytes_each_time(
    engine_python: Path, library: Path, made: Made, tmp_path: Path
) -> None:
    again = make(engine_python, library, tmp_path, BASE)
    assert again.digests() == made.digests()


def test_what_is_printed_names_all_that_was_asked_for(made: Made) -> None:
    assert list(made.printed["targets"]) == [target["name"] for target in TARGETS]
    assert list(made.printed["drafters"]) == [entry["name"] for entry in DRAFTERS]
    kimi = made.printed["targets"]["kimi"]
    assert kimi["layers_apart"] > 0.15
    assert kimi["router_margin"] > 0.01
    assert made.printed["targets"]["short"]["router_margin"] is None
    # The same weights, read from either schema.
    assert made.printed["targets"]["new"] | {"folder": ""} == kimi | {"folder": ""}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_keeps_the_ids_where_it_says(made: Made, form: str) -> None:
    config = made.config(f"llama-{form}")
    kept = {
        "nested": lambda: config["eagle_config"]["eagle_aux_hidden_state_layer_ids"],
        "top-level": lambda: config["eagle_aux_hidden_state_layer_ids"],
        "layer-ids": lambda: config["eagle_config"]["layer_ids"],
        "speculators": lambda: config["eagle_aux_hidden_state_layer_ids"],
    }
    assert kept[form]() == IDS
    assert ("transformer_layer_config" in config) == (form == "speculators")


def test_a_release_reads_each_form(
    engine_python: Path, library: Path, patched: Site, made: Made
) -> None:
    both = Path(os.pathsep.join(map(str, [patched.folder, library])))
    printed = plain(engine_python, both, "engine.read_configs", made.folder)
    read = json.loads(printed.splitlines()[-1])  # vLLM logs before it
    for entry in DRAFTERS:
        found = read[entry["name"]]
        assert found["ids"] == entry["ids"], entry["name"]
        assert found["hidden_size"] == 128
    assert read["llama-speculators"]["architectures"] == ["Eagle3LlamaForCausalLM"]
    assert read["llama-speculators"]["draft_vocab_size"] == 384
    assert read["llama-full"]["draft_vocab_size"] == 512


def test_vocabularies(made: Made) -> None:
    reduced, full = made.tensors("llama-nested"), made.tensors("llama-full")
    assert reduced["lm_head.weight"]["shape"] == [384, 128]
    assert reduced["d2t"]["shape"] == [384]
    assert reduced["t2d"]["shape"] == [512]
    assert "embed_tokens.weight" not in reduced
    assert full["lm_head.weight"]["shape"] == full["embed_tokens.weight"]["shape"] == [512, 128]
    assert not {"d2t", "t2d"} & set(full)


def test_changes_lie_over_the_config(made: Made) -> None:
    assert made.config("mla31")["norm_output"] is False
    assert made.config("mla31")["fc_norm"] is True


def test_a_default_takes_three_states(made: Made) -> None:
    assert made.tensors("llama-full")["fc.weight"]["shape"] == [128, 3 * 128]
    assert "eagle_config" not in made.config("llama-full")


def test_the_new_schema_has_the_new_names_only(made: Made) -> None:
    old, new = made.config("kimi"), made.config("new")
    assert new["image_token_id"] == old["media_placeholder_token_id"] == 500
    assert "media_placeholder_token_id" not in new
    assert new["vision_config"]["pos_emb_height"] == old["vision_config"]["init_pos_emb_height"]
    assert not [key for key in new["vision_config"] if key.startswith("init_")]
    assert new["text_config"]["rope_parameters"]["factor"] == 4.0
    assert "rope_scaling" not in new["text_config"]
    assert made.tensors("new") == made.tensors("kimi")


def test_weights_are_saved_in_the_shapes_dtype(large: Made) -> None:
    dtypes = {name: entry["dtype"] for name, entry in large.tensors("kimi").items()}
    biases = [name for name in dtypes if name.endswith("e_score_correction_bias")]
    assert len(biases) == 7
    assert {dtypes.pop(name) for name in biases} == {"F32"}  # routers keep it in every release
    assert set(dtypes.values()) == {"BF16"}


def test_a_target_and_its_drafters_can_have_a_dtype_of_their_own(made: Made) -> None:
    for name in ("half", "llama-half"):
        dtypes = {
            entry["dtype"]
            for tensor, entry in made.tensors(name).items()
            if not tensor.endswith(("e_score_correction_bias", "d2t", "t2d"))
        }
        assert dtypes == {"F16"}
    assert made.config("half")["text_config"]["torch_dtype"] == "float16"
    assert made.config("llama-half")["torch_dtype"] == "float16"
    # What float16 alone divides by.
    assert made.config("half")["text_config"]["routed_scaling_factor"] > 2


def test_a_checkpoint_can_lack_weights(made: Made) -> None:
    lacking = set(made.tensors("llama-nested")) - set(made.tensors("llama-half"))
    assert lacking == {"fc.weight"}


def test_int4_is_packed_as_the_format_says(facts: dict[str, Any]) -> None:
    found = facts["int4"]
    assert found["experts"] == 7 * 8 * 3  # layers, experts, projections
    assert found["whole_experts"] == 0
    assert found["round_trip"]
    assert found["bits"]  # read bit by bit
    assert found["packs_alike"]  # as compressed-tensors packs
    assert found["theirs"]  # and unpacks
    assert found["steps_off"] < 0.52  # half a step, and the scale's own rounding
    assert found["dtypes"] == ["torch.bfloat16", "torch.int32"]
    assert found["ignored"][0] == "lm_head"


def test_nothing_but_routed_experts_is_packed(made: Made) -> None:
    plain_names, packed_names = set(made.tensors("kimi")), set(made.tensors("int4"))
    assert all(".mlp.experts." in name for name in plain_names ^ packed_names)
    assert "quantization_config" not in made.config("kimi")["text_config"]


@pytest.mark.parametrize("preset", ["cpu", "cuda"])
def test_the_bound_is_between_rounding_and_the_next_layer(
    facts: dict[str, Any], preset: str
) -> None:
    found = facts["roundings"][preset]
    assert 1.5 * max(found["by_layer"]) < found["bound"] < found["apart"] / 5
    # Layer by layer too; a state before all layers is an embedding as it is.
    off, bounds = found["by_layer"][1:], found["bounds"][1:]
    assert all(is_off < allowed for is_off, allowed in zip(off, bounds, strict=True))
    assert found["by_layer"][0] == found["bounds"][0] == 0


@pytest.mark.parametrize("preset", ["cpu", "cuda"])
def test_rounding_does_not_choose_experts(facts: dict[str, Any], preset: str) -> None:
    found = facts["roundings"][preset]
    assert found["same_experts"]
    assert found["margin"] > 2 * found["scores_off"]


def test_an_mla_drafter_guesses_where_heads_are_larger_than_slices(facts: dict[str, Any]) -> None:
    found = facts["guesses"]  # of 99
    assert found["own"] > 66  # its attention hands on the token that it looks at
    assert found["right"] >= 3  # chance is 1 of 512


def test_a_token_follows_itself_and_hand_made_drafters_guess_it(facts: dict[str, Any]) -> None:
    found = facts["echoes"]
    assert found.pop("token") == cases.ECHO
    assert found.pop("margin") > 0.5  # ties are within 0.05 in bfloat16
    assert found == {"right": [10, 10], **{name: [10] * 3 for name in HAND_MADE}}


def test_random_drafters_guess_by_states_rows_and_positions(facts: dict[str, Any]) -> None:
    for name in RANDOM:
        stay = facts["depends"][name]  # of 60
        assert stay["states"] < 6, name
        assert stay["rows"] < 30, name
        assert stay["positions"] < 40, name


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mla-without-a-latent-as-wide-as-the-state": (
        {"shape": {"kv_rank": 64}, "drafters": [DRAFTERS[5]]},
        r"hidden, q_rank and kv_rank have to be equal: they are 128, 128 and 64",
    ),
    "mla-with-heads-smaller-than-slices": (
        {"shape": {"nope": 16}, "drafters": [DRAFTERS[5]]},
        r"not 128 / 4 beside 16 and 32",
    ),
    "int4-without-whole-groups": (
        {"shape": {"expert": 40}, "targets": [{"name": "kimi", "kind": "int4"}]},
        r"groups of 32 columns, not 40",
    ),
    "a-size-that-no-shape-has": ({"shape": {"depth": 3}}, r"a shape has no depth"),
    "more-chosen-than-experts": ({"shape": {"chosen": 8}}, r"chosen < experts"),
    "a-dtype-that-is-none": (
        {"shape": {"dtype": "int8"}},
        r"dtype is one of float32, bfloat16, float16",
    ),
    "ids-without-a-place": (
        {"drafters": [DRAFTERS[0] | {"form": "none"}]},
        r"form none goes with ids null",
    ),
    "a-kind-that-is-none": ({"drafters": [DRAFTERS[0] | {"kind": "medusa"}]}, r"kind is medusa"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_made_is_refused(
    engine_python: Path, library: Path, tmp_path: Path, name: str
) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(AssertionError, match=message):
        make(engine_python, library, tmp_path, ONE | changes)
