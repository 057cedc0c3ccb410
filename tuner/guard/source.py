"""Answers of a running SGLang server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tuner.clock import Clock
from tuner.guard.answers import Answer, Choice
from tuner.guard.prompts import Prompt
from tuner.sglang.endpoints import EndpointError, ServerClient

CHOICES = 5
"""How many likeliest tokens are asked for at each place."""

_THREADS_MOST = 512
_NOT_FOUND = 404


class ServerAnswers:
    """Implements `AnswerSource` with `/generate` of one server.

    Each call of `answer` is over after `limit_s`: what has not come then is an error. With `logprobs` the
    server is asked for log-probabilities too; where it refuses that, it is asked without from then on.
    Leave them off for configurations with speculation, which the older versions do not combine.
    """

    def __init__(
        self, client: ServerClient, clock: Clock, *, limit_s: float = 300.0, logprobs: bool = True
    ) -> None:
        self._client = client
        self._clock = clock
        self._limit_s = limit_s
        self._logprobs = logprobs

    def answer(self, prompts: Sequence[Prompt], *, at_once: int) -> list[Answer]:
        """See `AnswerSource`. Safe to be called while other requests run on the same server."""
        if not prompts:
            return []
        deadline_s = self._clock.monotonic_s() + self._limit_s
        pool = ThreadPoolExecutor(min(at_once, len(prompts), _THREADS_MOST))
        try:
            return list(pool.map(lambda prompt: self._ask(prompt, deadline_s), prompts))
        finally:
            # Interrupted, it must not wait for the answers: whoever called ends the server, and they with it.
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, prompt: Prompt, deadline_s: float) -> Answer:
        try:
            if self._logprobs:
                try:
                    return self._generate(prompt, deadline_s, logprobs=True)
                except EndpointError as error:
                    if error.status is None or error.status == _NOT_FOUND:
                        raise  # not refused: it is gone, too slow, or no such server
                answer = self._generate(prompt, deadline_s, logprobs=False)
                self._logprobs = False
                return answer
            return self._generate(prompt, deadline_s, logprobs=False)
        except EndpointError as error:
            return Answer(prompt.name, asked=prompt.output_tokens, error=error.message)

    def _generate(self, prompt: Prompt, deadline_s: float, *, logprobs: bool) -> Answer:
        left_s = deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise EndpointError(f"no answer within {self._limit_s:g} s")
        body: dict[str, Any] = {
            "text": prompt.text,
            "sampling_params": {"temperature": 0.0, "max_new_tokens": prompt.output_tokens},
        }
        if logprobs:
            body |= {"return_logprob": True, "top_logprobs_num": CHOICES}
        return read_answer(prompt, self._client.generate(body, left_s))


def read_answer(prompt: Prompt, reply: Mapping[str, Any]) -> Answer:
    """The answer in a reply of `/generate`. Raises `EndpointError` where it is none.

    Token ids are at `output_ids` (not in older versions) and beside the log-probabilities, which are
    `[log-probability, token id, text]`.
    """
    about = reply.get("meta_info")
    text = reply.get("text")
    if not isinstance(about, Mapping) or not isinstance(text, str):
        raise EndpointError("/generate answered without text and meta_info")
    try:
        places = [_choice(entry) for entry in about.get("output_token_logprobs") or ()]
        choices = tuple(
            tuple(_choice(entry) for entry in place or ()) for place in about.get("output_top_logprobs") or ()
        )
        ids = tuple(int(token) for token in reply.get("output_ids") or ())
    except (TypeError, ValueError, IndexError) as error:
        raise EndpointError(f"/generate answered with tokens that cannot be read: {error}") from error
    finish = about.get("finish_reason")
    return Answer(
        prompt=prompt.name,
        text=text,
        token_ids=ids or tuple(token for token, _ in places),
        logprobs=tuple(value for _, value in places),
        choices=choices,
        tokens=int(about.get("completion_tokens") or 0),
        asked=prompt.output_tokens,
        finish=str(finish.get("type", "")) if isinstance(finish, Mapping) else str(finish or ""),
        verify_steps=int(about.get("spec_verify_ct") or 0),
    )


def _choice(entry: Sequence[Any]) -> Choice:
    value = entry[0]
    return int(entry[1]), float("nan") if value is None else float(value)
