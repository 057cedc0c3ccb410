"""SGLang's own `sglang.bench_serving` as the load, for checking the tuner's client against another one.

What it prints as output throughput is all tokens over the whole time, ramp-up, prefill and tail included,
and cannot agree with a decode speed. Its per-request details can: from each request's time to the first
token and the gaps behind it the same steady window is computed as from our own samples.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from tuner.errors import InputError, TunerError
from tuner.measure.load import Schedule
from tuner.measure.measurement import ClientEffort, RequestSample
from tuner.measure.prompts import Prompt
from tuner.measure.seams import ServerUnderLoad
from tuner.programs import run_to_end

_TOLD_CHARACTERS = 600


@dataclass
class BenchServing:
    """Implements `tuner.measure.seams.RoundLoad` with a process of `sglang.bench_serving` for every round.

    `python` is the interpreter of the server's installation (which needs the packages `datasets` and
    `tabulate` for it), `model` where it finds the tokenizer, `environment` what the server was started with.
    It sends batches only, random token ids of one length, with a seed of its own for every round.
    """

    python: str
    model: str
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    _rounds: int = field(default=0, init=False)

    def send(
        self,
        server: ServerUnderLoad,
        prompts: Sequence[Prompt],
        schedule: Schedule,
        limit_s: float,
        silence_limit_s: float,
    ) -> tuple[tuple[RequestSample, ...], ClientEffort | None]:
        """As many requests at once as there are prompts, of their lengths; their contents are not used.

        The client's effort is not known, nor is silence: the program tells nothing before its end. Raises
        `InputError` for anything but such a batch, and `TunerError` where the program cannot be run at all.
        """
        del silence_limit_s
        lengths = {(len(prompt.ids), prompt.output_tokens) for prompt in prompts}
        if schedule.due_s or schedule.at_once < len(prompts) or len(lengths) != 1 or not prompts[0].ids:
            raise InputError(
                "sglang.bench_serving can stand in for batches of random prompts of one length only",
                hint="set kind: batch, dataset: random, and numbers as input_tokens and output_tokens",
            )
        ((input_tokens, output_tokens),) = lengths
        self._rounds += 1
        with tempfile.TemporaryDirectory(prefix="tuner-bench-serving-") as folder:
            result = Path(folder) / "result.jsonl"
            command = [
                self.python, "-m", "sglang.bench_serving", "--backend", "sglang", "--base-url", server.url,
                "--model", self.model, "--tokenizer", self.model, "--dataset-name", "random-ids",
                "--random-input-len", str(input_tokens), "--random-output-len", str(output_tokens),
                "--random-range-ratio", "1.0", "--num-prompts", str(len(prompts)), "--warmup-requests", "0",
                "--seed", str(self.seed + self._rounds), "--disable-tqdm",
                "--output-details", "--output-file", str(result),
            ]  # fmt: skip
            reason = self._run(command, server, limit_s)
            if reason:
                lost = RequestSample(0.0, (), (), error=reason, asked_tokens=output_tokens)
                return (lost,) * len(prompts), None
            return samples_of(result.read_text(encoding="utf-8"), output_tokens), None

    def _run(self, command: list[str], server: ServerUnderLoad, limit_s: float) -> str:
        """Why the program has no result, empty where it has one."""
        environment = {**os.environ, **self.environment}
        if server.api_key is not None:
            environment["OPENAI_API_KEY"] = server.api_key
        try:
            done = run_to_end(command, environment=environment, limit_s=limit_s, wanted=server.alive)
        except OSError as error:
            raise TunerError(f"{command[0]}: cannot be started: {error.strerror}") from None
        if done.exit_code == 0:
            return ""
        if done.exit_code is None:
            over = f"not finished within the limit of {limit_s:g} s"
            return over if server.alive() else "the server process ended during the request"
        told = f"{done.output.strip()}\n{done.errors.strip()}".strip()[-_TOLD_CHARACTERS:]
        if "ModuleNotFoundError" in told:
            raise TunerError(
                f"sglang.bench_serving cannot run in the server's installation: {told.splitlines()[-1]}",
                hint=f"{command[0]} -m pip install datasets tabulate",
            )
        return f"sglang.bench_serving ended with {done.exit_code}: {told}"


def samples_of(text: str, asked_tokens: int) -> tuple[RequestSample, ...]:
    """The requests of the last run in a `--output-file` that was written with `--output-details`.

    Times count from the send of each request: the file has no moments, but all requests of a batch are sent
    at once. A request's tokens behind the first chunk have one gap each (those of one chunk share its time
    evenly), so the first chunk held as many as there are more tokens than gaps. Raises `TunerError` for a
    file without details.
    """
    try:
        run = json.loads(text.strip().splitlines()[-1])
        columns = [run[name] for name in ("ttfts", "itls", "output_lens", "input_lens", "errors")]
        return tuple(_sample(row, asked_tokens) for row in zip(*columns, strict=True))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise TunerError(
            f"the result of sglang.bench_serving has no per-request details: {type(error).__name__} {error}",
            hint="check with this version of SGLang: python -m sglang.bench_serving --help",
        ) from None


def _sample(row: tuple[Any, ...], asked_tokens: int) -> RequestSample:
    ttft_s, itls_s, tokens, prompt_tokens, error = row
    if error or not tokens:
        return RequestSample(0.0, (), (), error=str(error or "no token came"), asked_tokens=asked_tokens)
    first = max(1, tokens - len(itls_s))
    return RequestSample(
        sent_s=0.0,
        arrivals_s=tuple(accumulate(itls_s, initial=ttft_s)),
        tokens=tuple(range(first, first + len(itls_s) + 1)),
        prompt_tokens=prompt_tokens,
        asked_tokens=asked_tokens,
    )
