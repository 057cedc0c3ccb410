"""The real SGLang's own check of arguments, asked without a launch."""

from __future__ import annotations

import os

import pytest

from tests.real_server.conftest import RealSGLang
from tuner.launch.environment import clean_environment
from tuner.preflight.validator import Accepted, Question, Refused, Validator


@pytest.mark.real_server
@pytest.mark.timeout(300)
def test_sglangs_own_check_without_a_launch(real_sglang: RealSGLang) -> None:
    validator = Validator(real_sglang.python, {**clean_environment(os.environ), **real_sglang.environment})
    fixed = (
        "--model-path", str(real_sglang.model), "--device", "cpu", "--attention-backend", "torch_native",
        "--load-format", "dummy", "--host", "127.0.0.1",
    )  # fmt: skip

    def asked(*words: str) -> Question:
        return Question((*fixed, *words))

    try:
        good, bad, flag, again = validator.ask(
            [
                asked("--page-size", "64", "--max-running-requests", "7"),
                asked("--page-size", "64", "--chunked-prefill-size", "96"),
                asked("--no-such-flag", "1"),
                asked(),
            ]
        )
        assert not validator.absent
    finally:
        validator.end()
    assert isinstance(good, Accepted)
    assert (good.resolved["page_size"], good.resolved["max_running_requests"]) == (64, 7)
    assert bad == Refused("AssertionError", "chunked_prefill_size must be divisible by page_size")
    assert isinstance(flag, Refused) and "--no-such-flag" in flag.text
    # What was given nowhere is resolved by SGLang, and one candidate leaves nothing to the next.
    assert isinstance(again, Accepted)
    assert (again.resolved["page_size"], again.resolved["chunked_prefill_size"]) == (1, 4096)
