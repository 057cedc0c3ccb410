"""Studies whose truth is known: a simulated box on which nothing matters but one value, by a set gain.

For checks of the tuner itself: how often it names a winner where there is none, and finds one where there is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.clock import ManualClock
from tuner.document import parse_document
from tuner.simulator.box import Box
from tuner.simulator.profile import read_box
from tuner.simulator.virtual import VirtualEvaluator
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.study.definition import StudyDefinition, parse_definition

_BOX = "kimi-k2.5-8x-rtx-pro-6000-0.5.12"

_SPACE = """
name: planted
parameters:
  cuda_graph_max_bs: {type: choice, choices: [128, 512], ordered: true, default: 512}
  schedule_policy: {type: choice, choices: [fcfs, lpm, random], default: fcfs}
  num_continuous_decode_steps: {type: integer, low: 1, high: 8, default: 1}
  schedule_conservativeness: {type: float, low: 0.5, high: 1.5, step: 0.1, default: 1.0}
"""

_STUDY = """
search_space: planted
server:
  command: ["{{python}}", -m, tuner.simulator, --box, {box}]
  label: a planted gain (simulated)
  model: moonshotai/Kimi-K2.5
  flags: {{tp_size: 8}}
workload: {{input_tokens: 512, output_tokens: 512, concurrency: 1}}
budget: {{launches: {launches}}}
seed: {seed}
"""


def planted(
    gain: float, folder: Path, *, launches: int = 22, launch_noise: float = 0.013, seed: int = 0
) -> tuple[VirtualEvaluator, StudyDefinition]:
    """A study at one stream in which `cuda_graph_max_bs` 128 is faster than the default by `gain` (0.09 is 9
    %).

    Everything else, and with gain 0 that as well, changes nothing. `launch_noise` is the sd of the logarithm
    of the speed between launches; within one it stays as it is on the box.
    """
    text = _STUDY.format(box=_BOX, launches=launches, seed=seed)
    space = parse_space(parse_document(_SPACE, "planted space"), "planted")
    definition = parse_definition(
        parse_document(text, "planted study"), name="planted", folder=folder, space=space
    )
    box = _with_gain(replace(read_box(_BOX), rules=()), definition, gain)
    box = replace(box, noise=replace(box.noise, launch=((1.0, launch_noise),)))
    return VirtualEvaluator(box, definition, ManualClock()), definition


def _with_gain(box: Box, definition: StudyDefinition, gain: float) -> Box:
    """The box on which large graphs, which the default captures, cost so much that small ones gain `gain`."""
    even = replace(box, step=replace(box.step, large_graph_ms=0.0))
    tok_s = VirtualEvaluator(even, definition, ManualClock()).truth(Configuration(), as_baseline=True)
    if tok_s is None:
        raise ValueError(f"the default does not run on {box.name}")
    return replace(even, step=replace(even.step, large_graph_ms=gain * 1000.0 / tok_s))
