from __future__ import annotations

from tuner.sglang.plan import LaunchPlan

PLAN = LaunchPlan(
    ("python", "-m", "sglang.launch_server"),
    (("--model-path", ("/m x",)), ("--disable-radix-cache", ()), ("--api-key", ("hush",))),
    (("NCCL_PROTO", "LL"), ("HF_TOKEN", "hf_hush")),
)


def test_the_command_line_is_words_and_the_place_comes_last() -> None:
    placed = PLAN.at(port=31000, gpus=(2, 3))
    assert placed.argv == (
        *("python", "-m", "sglang.launch_server", "--model-path", "/m x", "--disable-radix-cache"),
        *("--api-key", "hush", "--host", "127.0.0.1", "--port", "31000"),
    )
    assert placed.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in PLAN.environment


def test_the_fingerprint_is_of_what_is_launched_and_not_of_where() -> None:
    assert PLAN.at(port=1, gpus=(0,)).fingerprint == PLAN.at(port=2, gpus=(7,)).fingerprint
    shuffled = LaunchPlan(PLAN.command, PLAN.flags[::-1], PLAN.variables[::-1])
    assert shuffled.fingerprint == PLAN.fingerprint
    other = LaunchPlan(PLAN.command, PLAN.flags, (("NCCL_PROTO", "LL128"),))
    assert other.fingerprint != PLAN.fingerprint


def test_no_secret_is_shown_or_recorded() -> None:
    assert "hush" not in PLAN.shown()
    assert "hush" not in str(PLAN.to_json())
    assert "'/m x'" in PLAN.shown()
