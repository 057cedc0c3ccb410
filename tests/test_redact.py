"""Secrets do not get through; everything else does, unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.redact import REDACTED, is_secret, redact_argv, redact_environment, redact_text


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "hf_token", "GITHUB_TOKEN", "HF_TOKEN_2", "TOKEN"),
        *("OPENAI_API_KEY", "APIKEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "SSH_PRIVATE_KEY"),
        *("DB_PASSWORD", "PGPASSWD", "KEY_PASSPHRASE", "GOOGLE_CREDENTIALS", "AUTHORIZATION"),
        *("--api-key", "--admin-api-key", "--ssl-keyfile-password", "SECRET_TOKENS"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("--max-total-tokens", "--tokenizer-path", "--tokenizer-worker-num", "--skip-tokenizer-init"),
        *("--max-prefill-tokens", "--speculative-num-draft-tokens", "--speculative-token-map"),
        *("--bucket-time-to-first-token", "--bucket-inter-token-latency", "--prompt-tokens-buckets"),
        *("--prefill-delayer-token-usage-low-watermark", "--kt-max-deferred-experts-per-token"),
        *("--tbo-token-distribution-threshold", "--disable-tokenizer-batch-decode", "--ssl-keyfile"),
        *("TOKENIZERS_PARALLELISM", "HF_TOKEN_PATH", "CREDENTIALS_DIR", "NCCL_ALGO", "PATH", "--model-path"),
    ],
)
def test_names_that_only_sound_like_secrets(name: str) -> None:
    assert not is_secret(name)


def test_the_environment_keeps_its_names() -> None:
    assert redact_environment(
        {"HF_TOKEN": "hf_x", "NCCL_ALGO": "Ring", "https_proxy": "http://me:pw@proxy:3128"}
    ) == {
        "HF_TOKEN": REDACTED,
        "NCCL_ALGO": "Ring",
        "https_proxy": f"http://{REDACTED}@proxy:3128",
    }


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--api-key", "x", "--port", "1"], ["--api-key", REDACTED, "--port", "1"]),
        (["--api-key=x", "--port", "1"], [f"--api-key={REDACTED}", "--port", "1"]),
        (["--api-key", "-x"], ["--api-key", REDACTED]),
        (["--api-key", "--port", "1"], ["--api-key", "--port", "1"]),
        (["--port", "1", "--api-key"], ["--port", "1", "--api-key"]),
        (["--max-total-tokens", "2048"], ["--max-total-tokens", "2048"]),
        (["--model-path", "https://me:pw@host/m"], ["--model-path", f"https://{REDACTED}@host/m"]),
        (["--url=https://me:pw@host/m"], [f"--url=https://{REDACTED}@host/m"]),
    ],
)
def test_the_command_line(argv: list[str], shown: list[str]) -> None:
    assert redact_argv(argv) == shown


@pytest.mark.parametrize("text", ["http://host:80/x", "mail@host", "a: b@c", "http://host/path@2", ""])
def test_text_without_a_login_stays(text: str) -> None:
    assert redact_text(text) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from(["--api-key", "--api-key=hush", "hush", "--port", "1", "--model-path", "m"])))
def test_the_value_of_a_secret_flag_never_gets_through(words: list[str]) -> None:
    # wherever the secret follows its flag
    argv = [word for word in words if word != "hush"]
    for place in reversed([index for index, word in enumerate(argv) if word == "--api-key"]):
        argv.insert(place + 1, "hush")
    shown = redact_argv(argv)
    assert not any("hush" in word for word in shown)
    assert len(shown) == len(argv)
