"""Whether a configuration still says what the default says: the guard, on a running server."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.clock import Clock
from tuner.diagnosis.failure import Failure
from tuner.errors import TunerError
from tuner.guard.accuracy import AccuracyResult, accuracy_reason, run_accuracy
from tuner.guard.answers import Reference, take_answers
from tuner.guard.judge import judge
from tuner.guard.outcome import failure_of_output, write_answers
from tuner.guard.prompts import read_prompts
from tuner.guard.reading import GuardSpec
from tuner.guard.source import ServerAnswers
from tuner.launch.environment import clean_environment
from tuner.sglang.endpoints import ServerClient

REFERENCE_FILE = "guard-reference.json"
_TAKEN = 2
"""Times the reference server answers: its two answers to a prompt differ too, and that is the measure."""


@dataclass(frozen=True)
class OutputCheck:
    """What the guard found; `failure` is set where the output is wrong. `facts` are for the record."""

    facts: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


class OutputGuard:
    """Judges servers of one study. The first one that is seen becomes the reference, and is kept on disk.

    The study measures its reference configuration first, so that is the one.
    """

    def __init__(self, spec: GuardSpec, folder: Path, clock: Clock) -> None:
        self._spec = spec
        self._file = folder / REFERENCE_FILE
        self._clock = clock
        self._prompts = read_prompts(spec.prompts)
        self._accept_lengths: dict[str, float] = {}

    def check(self, client: ServerClient, folder: Path, *, concurrency: int, speculative: str) -> OutputCheck:
        """Compare a ready server with the reference, alone and under load; keep the answers where it differs.

        `speculative` names the algorithm, `off` without one. Raises `TunerError` where the server does not
        answer.
        """
        if not self._spec.enabled:
            return OutputCheck()
        source = ServerAnswers(client, self._clock, logprobs=speculative == "off")
        kept = self._read()
        if kept is None:
            sets = tuple(take_answers(source, self._prompts, concurrency=concurrency) for _ in range(_TAKEN))
            accuracy = [self._accuracy(client.url) for _ in range(_TAKEN)] if self._spec.accuracy else []
            self._write(Reference(sets), accuracy)
            return OutputCheck({"reference": True})
        reference, accuracy = kept
        answers = take_answers(source, self._prompts, concurrency=concurrency)
        expected = self._accept_lengths.get(speculative)
        verdict = judge(reference, answers, accept_length_expected=expected)
        if answers.accept_length is not None and verdict.ok:
            self._accept_lengths[speculative] = max(expected or 0.0, answers.accept_length)
        reasons = list(verdict.reasons)
        if self._spec.accuracy and not reasons:
            worse = accuracy_reason(accuracy, self._accuracy(client.url))
            reasons += [worse] if worse else []
        if not reasons:
            return OutputCheck(verdict.to_json())
        write_answers(folder, self._prompts, reference, answers, verdict)
        return OutputCheck({**verdict.to_json(), "ok": False, "reasons": reasons}, failure_of_output(reasons))

    def _accuracy(self, url: str) -> AccuracyResult:
        return run_accuracy(
            self._spec.accuracy,
            url,
            self._clock,
            environment=clean_environment(os.environ),
            limit_s=self._spec.accuracy_limit_s,
        )

    def _read(self) -> tuple[Reference, list[AccuracyResult]] | None:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise TunerError(
                f"{self._file}: the answers of the default server cannot be read: {error}",
                hint="move the file away: the next launch becomes the reference",
            ) from None
        return Reference.from_json(data["reference"]), [AccuracyResult(**item) for item in data["accuracy"]]

    def _write(self, reference: Reference, accuracy: Sequence[AccuracyResult]) -> None:
        data = {"reference": reference.to_json(), "accuracy": [vars(item) for item in accuracy]}
        scratch = self._file.with_name(f".{self._file.name}.new")
        scratch.write_text(json.dumps(data) + "\n", encoding="utf-8")
        scratch.replace(self._file)
