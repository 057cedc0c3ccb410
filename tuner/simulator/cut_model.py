"""What a launch without the real weights, or with fewer layers than the model has, makes of a box.

`--json-model-override-args '{"num_hidden_layers": N}'` leaves the first N layers: weights, cache, graphs and
steps shrink with them, what a step does once (embedding, head, sampling, the host's part) does not. So a cut
model is never the whole one in small. Its shares are guesses (G); nobody has published such launches.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tuner.simulator.box import Box, Table
from tuner.simulator.checks import ArgumentError

# What does not shrink with the layers, as a share of the whole model's figure: all G, but for the weights.
_ONCE_A_STEP = 0.10
"""Of a step's fixed time: 0.3 GB of head on each card, sampling, and what the host does between two steps."""
_ONCE_A_ROW = 0.20
_BESIDE_LAYERS = 0.02
"""Of the weights: embedding and head (D: 0.6 GB for each card on the Kimi boxes would be 0.01)."""
_ONCE_A_CAPTURE = 0.20
_ONCE_A_LOAD = 0.15
_DUMMY_POOL = 2.0
"""G: random weights spread the tokens over more experts than a trained router does."""


def launched_box(box: Box, parsed: dict[str, Any]) -> Box:
    """The box as a launch with these parsed flags finds it. Raises `ArgumentError` as SGLang does."""
    if parsed["load_format"] == "dummy" and box.experts is not None:
        box = replace(box, experts=replace(box.experts, pool=box.experts.pool * _DUMMY_POOL))
    layers = _layers(parsed["json_model_override_args"])
    if layers is None or not box.model.layers:
        return box
    return _with_layers(box, layers / box.model.layers, layers)


def _layers(text: str) -> int | None:
    """The number of layers that the override asks for, in the model or in its language part."""
    try:
        override = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"json.decoder.JSONDecodeError: {error}") from None
    if not isinstance(override, dict):
        raise ArgumentError(f"AttributeError: '{type(override).__name__}' object has no attribute 'items'")
    parts = [override, *(part for part in override.values() if isinstance(part, dict))]
    layers = next((part["num_hidden_layers"] for part in parts if "num_hidden_layers" in part), None)
    if layers is not None and (not isinstance(layers, int) or layers < 1):
        raise ArgumentError(f"ValueError: a model of {layers} layers cannot be built")
    return layers


def _with_layers(box: Box, share: float, layers: int) -> Box:
    def part(beside: float) -> float:
        return beside + (1.0 - beside) * share

    model, step, attention = box.model, box.step, box.attention
    memory, startup, prefill = box.memory, box.startup, box.prefill
    return replace(
        box,
        model=replace(
            model,
            layers=layers,
            weights_gib=model.weights_gib * part(_BESIDE_LAYERS),
            kv_bytes_per_token=model.kv_bytes_per_token * share,
        ),
        step=replace(
            step,
            fixed_ms=step.fixed_ms * part(_ONCE_A_STEP),
            row_ms=step.row_ms * part(_ONCE_A_ROW),
            large_graph_ms=step.large_graph_ms * share,
            eager_ms=step.eager_ms * share,
        ),
        experts=replace(box.experts, slot_gb=box.experts.slot_gb * share) if box.experts else None,
        all_reduce=replace(box.all_reduce, per_step=max(1, round(box.all_reduce.per_step * share)))
        if box.all_reduce
        else None,
        attention=replace(
            attention,
            fp8_extra_ms=attention.fp8_extra_ms * share,
            split_ms=attention.split_ms * share,
        ),
        prefill=replace(prefill, tokens_per_s=_faster(prefill.tokens_per_s, 1.0 / part(_ONCE_A_STEP))),
        memory=replace(
            memory,
            graph_each_gib=memory.graph_each_gib * share,
            prefill_graph_gib=memory.prefill_graph_gib * share,
        ),
        startup=replace(
            startup,
            dummy_load_s=startup.dummy_load_s * part(_ONCE_A_LOAD),
            capture_each_s=startup.capture_each_s * part(_ONCE_A_CAPTURE),
            prefill_capture_s=startup.prefill_capture_s * part(_ONCE_A_CAPTURE),
        ),
    )


def _faster(table: Table, factor: float) -> Table:
    return tuple((tokens, speed * factor) for tokens, speed in table)
