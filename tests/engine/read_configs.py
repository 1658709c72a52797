"""What a release reads of drafters' configs: ``python -m engine.read_configs FOLDER`` beside vLLM.

Prints by name of each folder in FOLDER: the ids that its config gives, the size of its vocabulary,
and the architecture.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vllm.transformers_utils.config import get_config


def read(checkpoint: Path) -> dict[str, Any]:
    config = get_config(checkpoint, trust_remote_code=False)
    nested = getattr(config, "eagle_config", None) or {}
    ids = "eagle_aux_hidden_state_layer_ids"
    return {
        "ids": getattr(config, ids, None) or nested.get(ids) or nested.get("layer_ids"),
        "draft_vocab_size": getattr(config, "draft_vocab_size", None),
        "architectures": config.architectures,
        "hidden_size": config.hidden_size,
    }


if __name__ == "__main__":
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/config.json"))
    print(json.dumps({folder.name: read(folder) for folder in folders}))
