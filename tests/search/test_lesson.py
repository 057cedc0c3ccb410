"""What the baseline is in the space, and that it is never taken for what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.search.scripted import STUDY, Run, definition, measured
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.search.lesson import point_of
from tuner.study.definition import Baseline

SPACE = """
parameters:
  bs: {type: choice, choices: [1, 16], ordered: true, default: 16}
  backend: {type: choice, choices: [triton, flashinfer]}
"""


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        (Baseline(), {"bs": 16, "backend": "triton"}),
        (Baseline(flags={"bs": 1}), {"bs": 1, "backend": "triton"}),
        (Baseline(flags={"max_total_tokens": 65536}), {"bs": 16, "backend": "triton"}),
        (Baseline(flags={"bs": 4}), None),  # no choice of the space
        (Baseline(command=("python", "-m", "sglang.launch_server")), None),
    ],
)
def test_which_point_of_the_space_the_baseline_is(
    baseline: Baseline, expected: dict[str, Any] | None
) -> None:
    point = point_of(baseline, definition(Path("nowhere"), space=SPACE).space)
    assert (None if point is None else dict(point)) == expected


def test_a_baseline_with_flags_of_its_own_is_not_taken_for_the_defaults(tmp_path: Path) -> None:
    """The default of the space is five times as fast as what is run today, and wins."""

    def box(request: Request) -> Outcome:
        return measured(600.0 if request.as_baseline or request.configuration["bs"] == 1 else 3200.0)

    end = Run(tmp_path, box, study=STUDY + "baseline: {flags: {bs: 1}}\n", space=SPACE).search.run()
    assert end.best is not None
    assert end.best.record.configuration["bs"] == 16 and end.best.score == pytest.approx(3200.0)
