"""The tuner's load client as a process of its own: what the source's events cost it, and how late they are.

Prints one JSON object. With `--stamps` every event is kept as it came, and its time of receipt is compared
with the time that it carries; that costs memory and is not meant for measuring what the client can take.
"""

from __future__ import annotations

import argparse
import json
import re
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from benchmarks.client_source import STAMP_KEY
from tuner.measure.load import Schedule, run_round
from tuner.measure.prompts import Prompt
from tuner.measure.sse import EventReader
from tuner.measure.stream import TokenStream

_STAMP = re.compile(re.escape(STAMP_KEY) + rb"\s*([\d.]+)")


class KeepingStream(TokenStream):
    """Keeps what it reads, in order."""

    kept: list[list[bytes]] = []  # noqa: RUF012 - one list for all streams of this process

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._pieces: list[bytes] = []
        self.kept.append(self._pieces)

    def received(self, data: bytes, now_s: float) -> None:
        self._pieces.append(data)
        super().received(data, now_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--stamps", action="store_true")
    options = parser.parse_args()
    keeping = patch("tuner.measure.load.TokenStream", KeepingStream) if options.stamps else nullcontext()
    prompts = [Prompt(options.tokens, ids=(10 + number,) * 16) for number in range(options.streams)]
    with keeping:
        samples, effort = run_round(
            f"http://127.0.0.1:{options.port}",
            prompts,
            Schedule(options.streams),
            limit_s=300,
            alive=lambda: True,
        )
    late_s = []
    for sample, pieces in zip(samples, KeepingStream.kept, strict=False):
        reader = EventReader()
        sent_s = [
            float(found[1])
            for piece in pieces
            for event in reader.feed(piece)
            if (found := _STAMP.search(event))
        ]
        late_s += [at - sent for at, sent in zip(sample.arrivals_s, sent_s, strict=True)]
    print(
        json.dumps(
            {
                "errors": sorted({sample.error for sample in samples} - {""}),
                "events": sum(len(sample.arrivals_s) for sample in samples),
                "late_s": sorted(late_s),
                "cpu_share": effort.cpu_share,
                "lag_p99_ms": effort.lag_p99_ms,
                "late_share": effort.late_share,
            }
        )
    )


if __name__ == "__main__":
    main()
