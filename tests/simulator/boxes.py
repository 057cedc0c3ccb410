"""Boxes and settings for the tests of this room."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tuner.simulator.box import Box
from tuner.simulator.flags import build_parser
from tuner.simulator.memory import MemoryPlan, plan_memory
from tuner.simulator.physics import StepModel, links_of
from tuner.simulator.profile import PROFILES, read_box
from tuner.simulator.resolve import resolve
from tuner.simulator.script import Script
from tuner.simulator.settings import Settings
from tuner.simulator.startup import startup_script

KIMI_12 = "kimi-k2.5-8x-rtx-pro-6000-0.5.12"
KIMI_23 = "kimi-k2.5-8x-rtx-pro-6000-0.5.23"
DENSE = "dense-small"
KIMI = ("--model-path", "moonshotai/Kimi-K2.5", "--tp", "8")
EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "some/kimi-k2.5-eagle3-mla")
QUIET = {**os.environ, "TUNER_SIM_NOISE": "0", "TUNER_SIM_TIME_SCALE": "3000"}


def box(name: str = KIMI_12) -> Box:
    """A shipped box."""
    return read_box(name)


def fast_box(folder: Path) -> tuple[str, ...]:
    """The words that start a box of few milliseconds per step, its profile written to `folder`."""
    text = (PROFILES / f"{DENSE}.yaml").read_text(encoding="utf-8")
    for old, new in (("fixed_ms: 24.0", "fixed_ms: 2.0"), ("batch_s: 0.03", "batch_s: 0.002")):
        assert old in text
        text = text.replace(old, new)
    path = folder / "fast.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path), "--model-path", "Qwen/Qwen3-32B-FP8"


def settings_of(where: Box, *words: str) -> Settings:
    """What exactly these flags come to."""
    return resolve(where, vars(build_parser(where.sglang_version).parse_args(words)))


def settings(where: Box, *words: str) -> Settings:
    """What these flags come to on a Kimi box."""
    return settings_of(where, *KIMI, *words)


def plan(where: Box, *words: str) -> MemoryPlan:
    """The memory of these flags on a Kimi box."""
    return plan_memory(where, settings(where, *words))


def model(where: Box, *words: str, **environment: str) -> StepModel:
    """The step times of these flags and variables on a Kimi box."""
    chosen = settings(where, *words)
    return StepModel(where, chosen, links_of(where, chosen, environment))


def script(where: Box, *words: str, **environment: str) -> Script:
    """The start of these flags and variables on a Kimi box."""
    chosen = settings(where, *words)
    links = links_of(where, chosen, environment)
    return startup_script(where, chosen, plan_memory(where, chosen), links, environment)


def fp8_cache(where: Box) -> Box:
    """`where` with the KV cache of the published matrices: half as many bytes."""
    return replace(where, model=replace(where.model, kv_bytes_per_token=35136))
