"""What the rules need to know of the model and of the box. What is not known is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from tuner.errors import BrokenEnvironment
from tuner.launch.meter import GpuMeter

_LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")
"""Where models that also see or hear keep what concerns the language model."""
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")


def facts_of_model(model: str, environment: Mapping[str, str]) -> dict[str, object]:
    """`attention_heads`, `kv_heads`, `experts`, `draft_layers` from the model's `config.json`.

    `layers` are those of which the last may be cut off: unknown where a list in the file has one entry for
    each. `dense_layers` come first and have no experts. `language_part` names the part of the file in which
    all of that stands, where it is not the whole. The file is looked for in the model's folder, or in the
    Hugging Face cache that `environment` names.
    """
    try:
        config = json.loads(_config_file(model, environment).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    parts = {name: config[name] for name in _LANGUAGE_PARTS if isinstance(config.get(name), dict)}
    name, text = next(
        (item for item in {"": config, **parts}.items() if "num_attention_heads" in item[1]), ("", None)
    )
    if text is None:
        return {}
    layers = text.get("num_hidden_layers")
    by_layer = any(isinstance(value, list) and len(value) == layers for value in text.values())
    found: dict[str, object] = {
        "attention_heads": text.get("num_attention_heads"),
        # With latent attention (MLA) there are no key and value heads to be shared.
        "kv_heads": None if "kv_lora_rank" in text else text.get("num_key_value_heads"),
        "experts": next((text[name] for name in _EXPERTS if name in text), None),
        "draft_layers": text.get("num_nextn_predict_layers", 0),
        "layers": None if by_layer else layers,
        "dense_layers": text.get("first_k_dense_replace"),
    }
    counts = {what: value for what, value in found.items() if _is_count(value)}
    return {**counts, "language_part": name} if name else counts


def facts_of_box(meter: GpuMeter, gpus: tuple[int, ...]) -> dict[str, object]:
    """`gpus`, `sm` (the smallest compute capability, 120 for 12.0) and `nvlink` (between all pairs)."""
    if not gpus:
        return {}
    found: dict[str, object] = {"gpus": len(gpus)}
    try:
        kinds, links = meter.facts(gpus), meter.links(gpus)
    except BrokenEnvironment:
        return found
    capabilities = [kind.sm for kind in kinds if kind.sm is not None]
    if len(capabilities) == len(gpus):
        found["sm"] = min(capabilities)
    if len(gpus) > 1 and len(links) == len(list(combinations(gpus, 2))):
        found["nvlink"] = all(link.nvlink for link in links)
    return found


def _config_file(model: str, environment: Mapping[str, str]) -> Path:
    folder = Path(model)
    if folder.is_dir():
        return folder / "config.json"
    home = environment.get("HF_HOME") or Path(
        environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache",
        "huggingface",
    )
    hub = Path(environment.get("HF_HUB_CACHE") or Path(home, "hub"))
    cached = hub / f"models--{model.replace('/', '--')}"
    commit = (cached / "refs" / "main").read_text(encoding="utf-8").strip()
    return cached / "snapshots" / commit / "config.json"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
