"""Models of the built-in cases that have no preset: the published config.json, as far as shapes go."""

from __future__ import annotations

from typing import Any

from armillary.llm import Model

#: Facts of the published model cards.
CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral-8x22b": {
        "model_type": "mixtral", "torch_dtype": "bfloat16", "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56,
        "num_attention_heads": 48, "num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 65536, "num_local_experts": 8,
        "num_experts_per_tok": 2, "tie_word_embeddings": False,
    },
    "qwen2.5-72b": {
        "model_type": "qwen2", "torch_dtype": "bfloat16", "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
}  # fmt: skip


def find_model(name: str) -> Model:
    """Returns the model of a name of this arena or of the catalogue, or of a config.json."""
    return Model.from_config(CONFIGS[name], name=name) if name in CONFIGS else Model.find(name)
