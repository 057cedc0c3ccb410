"""A request on its way through the simulated scheduler."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Sink(Protocol):
    """Where a request's tokens go."""

    def emit(self, request: Request) -> None:
        """The request has new tokens, or is finished (`finish_reason` is set)."""


class Nowhere:
    """A sink that drops everything."""

    def emit(self, request: Request) -> None:
        """See `Sink`."""


@dataclass(eq=False)
class Request:
    """One request; `emitted` tokens so far, of at most `wanted`.

    `prefilled` counts the tokens whose cache entries exist; `start` is where its answer begins in the
    corpus; `stop_after` is the length at which its text ends by itself, unless `ignore_eos`.
    """

    rid: str
    prompt: Sequence[Hashable]
    wanted: int
    stop_after: int | None
    start: int
    sink: Sink
    received_s: float
    emitted: int = 0
    prefilled: int = 0
    cached: int = 0
    verified: int = 0
    retractions: int = 0
    first_token_s: float | None = None
    finished_s: float | None = None
    finish_reason: str | None = None
    credit: float = 0.0
    scale: float = 1.0
    scale_until: int = 0
    cancelled: bool = field(default=False)

    @property
    def to_prefill(self) -> int:
        """Tokens whose cache entries have to be computed before it decodes: prompt and, after a retraction,
        what it wrote already."""
        return len(self.prompt) + self.emitted - self.prefilled

    @property
    def held(self) -> int:
        """Tokens it holds in the KV pool once prefilled."""
        return len(self.prompt) + self.emitted

    @property
    def end(self) -> int:
        """The number of tokens at which it finishes."""
        return self.wanted if self.stop_after is None else min(self.wanted, self.stop_after)
