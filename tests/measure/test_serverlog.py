from __future__ import annotations

import pytest

from tuner.measure.serverlog import DecodeReading, LogReading, PrefillMark, RetractionMark, series_of


def decode(running: int, tok_s: float, rank: int = 0, accept: float | None = None) -> DecodeReading:
    return DecodeReading(running, 0, tok_s, accept, rank=rank)


@pytest.mark.parametrize(
    ("readings", "usable"),
    [
        ([], ()),
        ([decode(8, 100)], ()),  # what came before it is unknown
        ([decode(8, 100), decode(8, 110), decode(8, 120)], (110, 120)),
        ([PrefillMark(), decode(8, 50), decode(8, 110)], (110,)),
        ([decode(8, 1), PrefillMark(), decode(8, 50), decode(8, 110)], (110,)),
        ([decode(8, 1), RetractionMark(), decode(8, 50), decode(8, 110)], (110,)),
        ([decode(4, 40), decode(4, 45), decode(8, 100), decode(8, 110), decode(6, 90)], (110,)),
    ],
)
def test_only_steady_lines_at_full_load_count(readings: list[LogReading], usable: tuple[float, ...]) -> None:
    assert series_of(readings).gen_tok_s == usable


def test_ranks_are_told_apart_and_added() -> None:
    readings: list[LogReading] = [
        decode(4, 1, rank=0),
        PrefillMark(rank=1),
        decode(4, 1, rank=1),
        decode(4, 100, rank=0),
        decode(4, 110, rank=1),
    ]
    assert series_of(readings).gen_tok_s == (210,)


def test_accept_lengths_eager_lines_and_retractions() -> None:
    readings: list[LogReading] = [
        decode(8, 100, accept=1.0),
        decode(8, 100, accept=2.5),
        DecodeReading(8, 0, 100.0, cuda_graph=False),
        RetractionMark(),
    ]
    series = series_of(readings)
    assert series.accept_lengths == (2.5,)
    assert (series.eager_decode_lines, series.retraction_lines) == (1, 1)
