"""Writes random weights for the tiny Llama of `make_model.py`, large enough that its answers mean something.

usage: random_weights.py MODEL OUT SEED, run by a Python that has torch and safetensors

OUT gets MODEL's files and a `model.safetensors`. Weights that a server makes up itself (`--load-format dummy`)
are so small that all tokens are equally likely; these have a gain that makes the likeliest token clear.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

# Only the server's Python has these two; the tests' own does without.
torch: Any = importlib.import_module("torch")
safetensors: Any = importlib.import_module("safetensors.torch")

EMBEDDING_STD = 1.0
GAIN = 1.5
"""Of every matrix, relative to the scale that keeps the size of its input."""
HEAD_GAIN = 4.0
"""The standard deviation of the logits: the likeliest of a thousand tokens is then mostly nats ahead."""


def main(model: Path, out: Path, seed: int) -> None:
    config = json.loads((model / "config.json").read_text())
    shutil.copytree(model, out)
    random = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, std: float) -> Any:
        return (torch.randn(rows, columns, generator=random) * std).to(torch.bfloat16)

    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden, EMBEDDING_STD),
        "model.norm.weight": ones.clone(),
        "lm_head.weight": matrix(config["vocab_size"], hidden, HEAD_GAIN * hidden**-0.5),
    }
    shapes = {
        "self_attn.q_proj": (heads, hidden),
        "self_attn.k_proj": (kv_heads, hidden),
        "self_attn.v_proj": (kv_heads, hidden),
        "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(config["num_hidden_layers"]):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{norm}.weight"] = ones.clone()
        for name, (rows, columns) in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = matrix(rows, columns, GAIN * columns**-0.5)
    safetensors.save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
