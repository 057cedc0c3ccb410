"""What a wrong output becomes: a failure of the trial, and the two answers to each prompt as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.diagnosis.failure import Cause, Evidence, Failure, Kind
from tuner.guard.answers import Answer, AnswerSet, Reference
from tuner.guard.compare import closest
from tuner.guard.judge import ALONE, UNDER_LOAD, OutputVerdict
from tuner.guard.prompts import Prompt
from tuner.sglang.phases import Phase

ANSWERS_FILE = "answers.json"


def failure_of_output(reasons: Sequence[str]) -> Failure:
    """The failure of a configuration whose output is wrong, whoever found that out."""
    return Failure(
        Kind.WRONG_OUTPUT,
        Cause.CONFIG,
        Phase.SERVING,
        f"fast or not, the output is wrong: {reasons[0]}",
        evidence=tuple(Evidence(0, reason) for reason in reasons),
        certainty=0.9,
    )


def write_answers(
    folder: Path,
    prompts: Sequence[Prompt],
    reference: Reference,
    answers: AnswerSet,
    verdict: OutputVerdict,
) -> Path:
    """Write `answers.json`: the verdict, and for each prompt the default's closest answer beside this one."""
    texts = {prompt.name: prompt.text for prompt in prompts}
    data = {
        "verdict": verdict.to_json(),
        "answers": [
            _side_by_side(round_name, texts.get(answer.prompt, ""), reference, answer)
            for round_name, found in ((ALONE, answers.alone), (UNDER_LOAD, answers.under_load))
            for answer in found
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ANSWERS_FILE
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _side_by_side(round_name: str, text: str, reference: Reference, answer: Answer) -> dict[str, Any]:
    found = closest(reference, answer)
    default, comparison = found if found is not None else (None, None)
    gap = comparison.gap if comparison is not None else None
    return {
        "round": round_name,
        "prompt": answer.prompt,
        "text": text,
        "default": default.text if default is not None else None,
        "answer": answer.text,
        "error": answer.error,
        "finish": answer.finish,
        "tokens": answer.tokens,
        "same_tokens": comparison.same if comparison is not None else 0,
        "gap_nats": "not among the likeliest" if gap == float("inf") else gap,
    }
