"""A small vLLM, written here: as much of one as the gates ask about."""

from __future__ import annotations

from pathlib import Path

from vpatch.gates.check import Checked, check_tree
from vpatch.gates.tree import of_folder

SMALL = {
    "__init__.py": "",
    "config/__init__.py": "",
    "config/parallel.py": """
class ParallelConfig:
    pipeline_parallel_size: int = 1
""",
    "config/model.py": """
class ModelConfig:
    hf_text_config: object = None

    def get_total_num_hidden_layers(self):
        return self.model_arch_config.total_num_hidden_layers
""",
    "config/vllm.py": """
from vllm.config.parallel import ParallelConfig


class VllmConfig:
    model_config: object = None
    parallel_config: ParallelConfig | None = None
    speculative_config: object = None
""",
    "config/speculative.py": """
from pydantic import model_validator

from vllm.config.parallel import ParallelConfig


class SpeculativeConfig:
    method: str | None = None
    target_model_config: object = None
    target_parallel_config: object = None

    @staticmethod
    def create_draft_parallel_config(target_parallel_config, tp):
        return ParallelConfig(pipeline_parallel_size=1, tensor_parallel_size=tp)

    @model_validator(mode="after")
    def _verify_args(self):
        taken = ["llama", "kimi"]
        model_type = self.target_model_config.hf_text_config.model_type
        if self.method == "eagle3" and not any(name in model_type for name in taken):
            raise ValueError(f"{self.method} is only supported for {taken}. Got {model_type=}")
        if self.target_parallel_config.pipeline_parallel_size > 1:
            raise ValueError("EAGLE-3 does not work with pipeline stages")
        return self
""",
    "model_executor/__init__.py": "",
    "model_executor/models/__init__.py": """
from .interfaces import supports_multimodal
""",
    "model_executor/models/interfaces.py": """
from typing import Protocol, runtime_checkable


class EagleModelMixin:
    aux_hidden_state_layers: tuple[int, ...] = ()


@runtime_checkable
class SupportsEagle3(Protocol):
    supports_eagle3 = True

    def set_aux_hidden_state_layers(self, layers):
        ...

    def get_default_layers(self):
        ...


def supports_eagle3(model):
    return isinstance(model, SupportsEagle3)


class SupportsMultiModal(Protocol):
    supports_multimodal = True

    def get_language_model(self):
        ...


def supports_multimodal(model):
    return getattr(model, "supports_multimodal", False)
""",
    "model_executor/models/registry.py": """
_MODELS = {
    "KimiK25ForConditionalGeneration": ("kimi_k25", "KimiK25ForConditionalGeneration"),
    "DeepseekV2ForCausalLM": ("deepseek_v2", "DeepseekV2ForCausalLM"),
    "LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),
}
""",
    "model_executor/models/kimi_k25.py": """
from torch import nn

from vllm.transformers_utils.configs import KimiK25Config

from .interfaces import SupportsEagle3, SupportsMultiModal
from .utils import init_vllm_registered_model


class KimiK25ForConditionalGeneration(nn.Module, SupportsMultiModal, SupportsEagle3):
    def __init__(self, vllm_config, prefix=""):
        super().__init__()
        config: KimiK25Config = vllm_config.model_config.hf_config
        self.config = config
        self.language_model = init_vllm_registered_model(
            vllm_config=vllm_config,
            hf_config=config.text_config,
            architectures=["DeepseekV2ForCausalLM"],
        )

    def embed_input_ids(self, input_ids):
        return self.language_model.embed_input_ids(input_ids)

    def set_aux_hidden_state_layers(self, layers):
        self.language_model.set_aux_hidden_state_layers(layers)

    def get_default_layers(self):
        return self.language_model.get_default_layers()

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):
        return self.language_model(input_ids, positions, intermediate_tensors, inputs_embeds)
""",
    "model_executor/models/deepseek_v2.py": """
from torch import nn

from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from .interfaces import EagleModelMixin, SupportsEagle3
from .utils import make_layers


class DeepseekV2Model(nn.Module, EagleModelMixin):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        self.start_layer, self.end_layer, self.layers = make_layers(
            config.num_hidden_layers, lambda prefix: None, prefix=prefix
        )
        self.norm = RMSNorm(config.hidden_size)

    def embed_input_ids(self, input_ids):
        return self.embed_tokens(input_ids)

    def forward(self, input_ids, positions, intermediate_tensors, inputs_embeds=None):
        hidden_states = self.embed_input_ids(input_ids)
        residual = None
        aux_hidden_states = []
        for idx, layer in enumerate(self.layers[self.start_layer : self.end_layer]):
            if idx in self.aux_hidden_state_layers:
                aux_hidden_states.append(
                    hidden_states.clone() if residual is None else hidden_states + residual
                )
            hidden_states, residual = layer(positions, hidden_states, residual)
        if len(self.layers) in self.aux_hidden_state_layers:
            aux_hidden_states.append(hidden_states + residual)
        hidden_states, _ = self.norm(hidden_states, residual)
        if self.aux_hidden_state_layers:
            return hidden_states, aux_hidden_states
        return hidden_states


class DeepseekV2ForCausalLM(nn.Module, SupportsEagle3):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        self.model = DeepseekV2Model(vllm_config=vllm_config, prefix=prefix)
        self.lm_head = nn.Linear(1, 1)

    def embed_input_ids(self, input_ids):
        return self.model.embed_input_ids(input_ids)

    def set_aux_hidden_state_layers(self, layers):
        self.model.aux_hidden_state_layers = tuple(layers)

    def get_default_layers(self):
        count = len(self.model.layers)
        return (2, count // 2, count - 3)

    def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)
""",
    "model_executor/models/utils.py": """
def init_vllm_registered_model(vllm_config, *, hf_config=None, architectures=None):
    ...


def make_layers(count, make, prefix):
    ...
""",
    "model_executor/models/llama_eagle3.py": """
from torch import nn

from vllm.model_executor.layers.linear import ReplicatedLinear

IDS = "eagle_aux_hidden_state_layer_ids"


class LlamaModel(nn.Module):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        config = vllm_config.speculative_config.draft_model_config.hf_config
        ids = getattr(config, IDS, None) or config.eagle_config.get(IDS)
        count = len(ids) if ids else 3
        self.fc = ReplicatedLinear(input_size=config.hidden_size * count)

    def embed_input_ids(self, input_ids):
        return input_ids

    def forward(self, input_ids, positions, hidden_states):
        return hidden_states, hidden_states.clone()


class Eagle3LlamaForCausalLM(nn.Module):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        self.model = LlamaModel(vllm_config=vllm_config, prefix=prefix)

    def embed_input_ids(self, input_ids):
        return self.model.embed_input_ids(input_ids)

    def combine_hidden_states(self, hidden_states):
        return self.model.fc(hidden_states)
""",
    "transformers_utils/__init__.py": "",
    "transformers_utils/model_arch_config_convertor.py": """
class ModelArchConfigConvertorBase:
    def is_deepseek_mla(self):
        return False
""",
    "transformers_utils/configs/__init__.py": """
class KimiK25Config:
    def __init__(self, media_placeholder_token_id=0):
        self.media_placeholder_token_id = media_placeholder_token_id
""",
    "v1/__init__.py": "",
    "v1/spec_decode/__init__.py": "",
    "v1/spec_decode/eagle.py": """
from vllm.model_executor.models import supports_multimodal
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM


class EagleProposer:
    def __init__(self, vllm_config):
        self.method = vllm_config.speculative_config.method
        self.model = None

    def propose(self, target_hidden_states):
        if self.method == "eagle3":
            assert isinstance(self.model, Eagle3LlamaForCausalLM)
            target_hidden_states = self.model.combine_hidden_states(target_hidden_states)
        return target_hidden_states

    def placeholder(self):
        return self.model.config.image_token_index

    def load_model(self, target_model):
        if supports_multimodal(target_model):
            self.model.config.image_token_index = target_model.config.media_placeholder_token_id
            target = target_model.get_language_model()
        else:
            target = target_model
        self.model.model.embed_tokens = target.model.embed_tokens
        self.model.lm_head = target.lm_head
""",
    "v1/worker/__init__.py": "",
    "v1/worker/gpu_model_runner.py": """
import torch

from vllm.logger import init_logger
from vllm.model_executor.models.interfaces import supports_eagle3

logger = init_logger(__name__)


class GPUModelRunner:
    def __init__(self, vllm_config):
        self.speculative_config = vllm_config.speculative_config
        self.use_aux_hidden_state_outputs = True
        self.model = None

    def load_model(self):
        if self.use_aux_hidden_state_outputs:
            self._set_aux_layers()

    def execute_model(self, count):
        model_output = self.model()
        hidden_states, aux_hidden_states = model_output
        return torch.cat([each[:count] for each in aux_hidden_states], dim=-1)

    def _set_aux_layers(self):
        if not supports_eagle3(self.model):
            raise RuntimeError("Model does not support EAGLE3 interface")
        layers = self._aux_layers_from_config()
        if not layers:
            layers = self.model.get_default_layers()
            logger.warning("The drafter gets the default layers %s", layers)
        self.model.set_aux_hidden_state_layers(layers)

    def _aux_layers_from_config(self):
        config = self.speculative_config.draft_model_config.hf_config
        ids = getattr(config, "eagle_aux_hidden_state_layer_ids", None)
        if not ids:
            eagle_config = getattr(config, "eagle_config", None) or {}
            ids = eagle_config.get("eagle_aux_hidden_state_layer_ids")
        return tuple(ids) if ids else None
""",
}


def write(folder: Path, changes: dict[str, tuple[str, str]] | None = None) -> Path:
    """The small vLLM in a folder, with one text of some files replaced."""
    for name, text in SMALL.items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if changes and name in changes:
            old, new = changes[name]
            assert text.count(old) >= 1, f"{name} does not hold {old!r}"
            text = text.replace(old, new)  # noqa: PLW2901
        path.write_text(text)
    return folder


def check(folder: Path, changes: dict[str, tuple[str, str]] | None = None) -> Checked:
    """What the gates say of it."""
    return check_tree(of_folder(write(folder, changes)))
