"""The sentence of a diagnosis names what a person has to look for."""

from __future__ import annotations

import pytest

from tuner.diagnosis.diagnose import diagnose

_FRAME = '  File "/x/sglang/srt/layers/moe/some.py", line 9, in f\n'


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            f"Traceback (most recent call last):\n{_FRAME}AssertionError: Experts are not split here\n",
            "A check inside the server failed: Experts are not split here.",
        ),
        (
            f"Traceback (most recent call last):\n{_FRAME}    assert rows.shape[0] == length\nAssertionError\n",
            "A check inside the server failed: assert rows.shape[0] == length.",
        ),
        (
            "launch_server.py: error: unrecognized arguments: --no-such-flag\n",
            "The server does not accept its arguments: unrecognized arguments: --no-such-flag.",
        ),
        (
            'Traceback (most recent call last):\n  File "/x/sglang/srt/models/a.py", line 3, in load_weights\n'
            "    param = params_dict[name]\nKeyError: 'model.norm.scale'\n",
            "This version cannot serve this model: no entry 'model.norm.scale'.",
        ),
        (
            "Exception: Capture cuda graph failed: some_norm failed with error code no kernel image is available "
            "for execution on the device\nPossible solutions:\n1. set --mem-fraction-static to a smaller value\n",
            "The installed kernels have no code for this GPU: some_norm failed with error code no kernel image is "
            "available for execution on the device.",
        ),
    ],
    ids=["assertion", "bare assertion", "flag", "key", "wrapped"],
)
def test_summary_names_the_particular(log: str, told: str) -> None:
    assert diagnose(log).summary == told


def test_summary_keeps_to_numbers_for_memory() -> None:
    summary = diagnose(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "80.00 GiB of which 0.50 GiB is free.\n"
    ).summary

    assert "asked for 2 GiB where 0.5 GiB were free" in summary
    assert "CUDA out of memory" not in summary


def test_a_long_text_is_cut() -> None:
    summary = diagnose("ValueError: this option " + "cannot be used with that one and " * 30 + "\n").summary

    assert len(summary) < 320
    assert summary.endswith("….")
