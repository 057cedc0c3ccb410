"""`python -m tuner.simulator --box NAME_OR_PATH [SGLang flags]`: start a simulated server.

Variables: TUNER_SIM_TIME_SCALE replaces the time scale of the box and TUNER_SIM_NOISE the scale of its
noise (0 switches it off), TUNER_SIM_SEED makes the noise of a launch repeatable, TUNER_SIM_JOURNAL names a
file for what was emitted when.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from tuner.errors import EXIT_INTERRUPTED, InputError, TunerError
from tuner.simulator.box import Box
from tuner.simulator.checks import ArgumentError
from tuner.simulator.config_file import ConfigFileError, merge_config_file
from tuner.simulator.cut_model import launched_box
from tuner.simulator.flags import build_parser
from tuner.simulator.profile import read_box, shipped_boxes
from tuner.simulator.resolve import resolve
from tuner.simulator.server import serve

SCALE_VARIABLE = "TUNER_SIM_TIME_SCALE"
NOISE_VARIABLE = "TUNER_SIM_NOISE"
_EXIT_EXCEPTION = 1


def main(words: Sequence[str]) -> int:
    """Run the launch that `words` describe; the exit code."""
    environment = dict(os.environ)
    try:
        box_name, rest = _take_box(list(words))
        box = _adjusted(read_box(box_name), environment)
    except TunerError as error:
        _print(f"error: {error}\n")
        return error.exit_code
    parser = build_parser(box.sglang_version)
    try:
        parsed = vars(parser.parse_args(merge_config_file(rest, parser)))
        _print(f"simulated box {box.name}\n")
        box = launched_box(box, parsed)
        settings = resolve(box, parsed)
    except ConfigFileError as error:
        _print(f"Traceback (most recent call last):\nValueError: {error}\n")
        return _EXIT_EXCEPTION
    except ArgumentError as failure:
        _print(f"Traceback (most recent call last):\n{failure}\n")
        return _EXIT_EXCEPTION
    return serve(box, settings, environment)


def _take_box(words: list[str]) -> tuple[str, list[str]]:
    """The value of `--box` and the words without it. Raises `InputError` where it is missing."""
    for place, word in enumerate(words):
        if word == "--box" and place + 1 < len(words):
            return words[place + 1], words[:place] + words[place + 2 :]
        if word.startswith("--box="):
            return word.removeprefix("--box="), words[:place] + words[place + 1 :]
    raise InputError(
        "no box is named", hint=f"give --box NAME_OR_PATH; shipped are {', '.join(shipped_boxes())}"
    )


def _adjusted(box: Box, environment: dict[str, str]) -> Box:
    """The box with the time scale and the scale of the noise that the environment asks for."""
    scale = _number(environment, SCALE_VARIABLE, least=1e-6, meaning="1 starts as slowly as a real box")
    if scale is not None:
        box = replace(box, time_scale=scale)
    noise = _number(environment, NOISE_VARIABLE, least=0.0, meaning="0 switches the noise off, 1 leaves it")
    if noise is not None:
        box = replace(box, noise=replace(box.noise, scale=noise))
    return box


def _number(environment: dict[str, str], name: str, *, least: float, meaning: str) -> float | None:
    text = environment.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise InputError(f"{name}={text} cannot be used", hint=f"give a number: {meaning}")
    return value


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
