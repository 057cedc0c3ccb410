"""When a server is warm: the later half of its warm-up is no faster than the one before."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.measure.rounds import Round, relative_error

_AGREE = 0.02
_MOST_OF_A_HALF = 2


def halves_agree(rounds: Sequence[Round]) -> bool:
    """Whether the last rounds and as many before them are equally fast: within 2 %, or within their noise.

    A half is at most two rounds, so that a slow beginning is forgotten. One round has no halves.
    """
    half = min(len(rounds) // 2, _MOST_OF_A_HALF)
    if not half:
        return False
    earlier = _mean_speed(rounds[-2 * half : -half])
    later = _mean_speed(rounds[-half:])
    noise = relative_error(rounds[-2 * half :]) * math.sqrt(2 / half)
    return abs(later / earlier - 1.0) <= max(_AGREE, 3 * noise)


def _mean_speed(rounds: Sequence[Round]) -> float:
    return sum(one.window.tok_s for one in rounds) / len(rounds)
