from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from tests.learn.learning import SPACE, configured, died, ran, space
from tuner.learn.axes import Axes
from tuner.learn.headroom import Headroom
from tuner.learn.observation import Death, Observation
from tuner.space.configuration import Configuration

CHUNKS = """
parameters:
  mem_fraction_static: {type: float, low: 0.7, high: 0.96, step: 0.01, auto: true}
  chunked_prefill_size: {type: choice, choices: [2048, 8192, 16384], ordered: true}
"""


class Known:
    """What these launches say of the memory of others."""

    def __init__(
        self, *observations: Observation, past: Sequence[Observation] = (), text: str = SPACE
    ) -> None:
        self._axes = Axes(space(text), observations)
        self._headroom = Headroom(self._axes, observations, [past] if past else [])

    def free_gib(self, configuration: Configuration) -> tuple[float, float] | None:
        return self._headroom.predicted_gib(configuration)

    def risks(self, *configurations: Configuration) -> list[float]:
        return [float(risk) for risk in self._headroom.risk(self._axes.rows(configurations))]


def logged(fraction: float, graphs_gib: float = 1.5, card_gib: float = 94.0) -> dict[str, float]:
    """A log of a model of 72 GiB."""
    pool_gib = fraction * card_gib - 72.0
    free_gib = card_gib - 72.0 - pool_gib - graphs_gib - 1.5
    return {
        "weights_gib": 72.0,
        "kv_cache_gib": pool_gib,
        "graphs_gib": graphs_gib,
        "available_gib": free_gib,
    }


def test_two_logs_tell_where_the_card_is_full() -> None:
    model = Known(
        ran(0, memory=logged(0.81, graphs_gib=2.5), mem_fraction_static=0.81),
        ran(1, memory=logged(0.86, graphs_gib=2.5), mem_fraction_static=0.86),
    )

    predicted = model.free_gib(configured(mem_fraction_static=0.90))
    assert predicted is not None
    assert abs(predicted[0] - logged(0.90, graphs_gib=2.5)["available_gib"]) < 0.5
    low, edge, full = model.risks(*(configured(mem_fraction_static=at) for at in (0.85, 0.90, 0.96)))
    assert low < 0.05 and edge < 0.2 and full > 0.8


def test_a_fraction_that_leaves_no_pool_is_avoided() -> None:
    model = Known(ran(0, memory=logged(0.81), mem_fraction_static=0.81))

    assert model.risks(configured(mem_fraction_static=0.72))[0] > 0.8


def test_a_fraction_that_the_engine_chose_and_does_not_say_is_read_off_the_logs() -> None:
    silent = Observation(0, configured(), log_scores=(0.0,), memory=logged(0.81), resolved={})
    numbered = Observation(
        1, configured(mem_fraction_static=0.79), log_scores=(0.0,), memory=logged(0.79), resolved={}
    )
    model = Known(silent, numbered)

    low, same, unsaid = model.risks(
        configured(mem_fraction_static=0.72), configured(mem_fraction_static=0.80), configured()
    )
    assert low > 0.8 and same < 0.05 and unsaid < 0.05


def test_a_launch_of_which_no_fraction_is_known_teaches_nothing_of_memory() -> None:
    mute = Observation(0, configured(), log_scores=(0.0,))
    numbered = Observation(
        1, configured(mem_fraction_static=0.81), log_scores=(0.0,), memory=logged(0.81), resolved={}
    )
    model = Known(mute, numbered)

    assert model.risks(configured(mem_fraction_static=0.72))[0] > 0.8
    assert model.risks(configured())[0] < 0.2
    assert model.free_gib(configured()) is None


def test_a_death_in_capture_rules_out_what_asks_for_more() -> None:
    death = Death("oom-graph-capture", "graph-capture", shortage_gib=1.0)
    model = Known(
        ran(0, memory=logged(0.81), mem_fraction_static=0.81, cuda_graph_max_bs=64),
        died(1, death, mem_fraction_static=0.90, cuda_graph_max_bs=256),
    )

    higher = [
        configured(mem_fraction_static=0.90, cuda_graph_max_bs=256),
        configured(mem_fraction_static=0.92, cuda_graph_max_bs=512),
        configured(mem_fraction_static=0.81, cuda_graph_max_bs=64),
    ]
    same, more, less = model.risks(*higher)
    assert same > 0.8 and more > 0.8 and less < 0.05


def test_without_any_figures_deaths_still_teach() -> None:
    death = Death("oom-graph-capture", "graph-capture")
    model = Known(
        Observation(0, configured(mem_fraction_static=0.80), log_scores=(0.0,)),
        Observation(1, configured(mem_fraction_static=0.95), death=death),
    )

    safe, deadly = model.risks(*(configured(mem_fraction_static=at) for at in (0.80, 0.95)))
    assert safe < 0.2 and deadly > 0.7


def chunked(chunk: int, fraction: float) -> Configuration:
    return Configuration({"chunked_prefill_size": chunk, "mem_fraction_static": fraction})


def under_load(trial: int, chunk: int, fraction: float, missing_gib: float | None = None) -> Observation:
    """A launch that served; with `missing_gib` one that stood and then ran out of memory."""
    death = Death("oom-serving", "serving", shortage_gib=missing_gib) if missing_gib is not None else None
    scores = () if death is not None else (0.0,)
    return Observation(trial, chunked(chunk, fraction), scores, death, memory=logged(fraction))


def test_who_died_reading_prompts_tells_how_much_room_they_take() -> None:
    """At 0.90 are 6.4 GiB free, and 1 GiB was missing: 7.4 GiB for 8192 tokens at once."""
    model = Known(under_load(0, 2048, 0.81), under_load(1, 8192, 0.90, missing_gib=1.0), text=CHUNKS)

    same, with_room, small, large = model.risks(
        chunked(8192, 0.90), chunked(8192, 0.86), chunked(2048, 0.90), chunked(16384, 0.84)
    )

    assert same > 0.9 and with_room < 0.2 and small < 0.1 and large > 0.7


def test_a_launch_that_served_with_less_disproves_it() -> None:
    died = under_load(1, 8192, 0.90, missing_gib=1.0)
    alone = Known(under_load(0, 2048, 0.81), died, text=CHUNKS)
    disproved = Known(under_load(0, 2048, 0.81), died, under_load(2, 8192, 0.91), text=CHUNKS)

    assert alone.risks(chunked(8192, 0.91))[0] > 0.9
    assert disproved.risks(chunked(8192, 0.91))[0] < 0.3


def before(graphs_gib: float, card_gib: float = 94.0) -> list[Observation]:
    """An earlier study, on a release that left half a GiB less and in which large graphs took `graphs_gib`."""
    return [
        ran(
            trial,
            memory=logged(
                fraction, graphs_gib=0.5 + (graphs_gib if batch == 512 else 1.0), card_gib=card_gib
            ),
            mem_fraction_static=fraction,
            cuda_graph_max_bs=batch,
        )
        for trial, (fraction, batch) in enumerate(product((0.80, 0.84, 0.88), (64, 512)))
    ]


def test_what_an_earlier_study_found_to_take_much_is_avoided_before_it_is_tried() -> None:
    here = ran(0, memory=logged(0.81, graphs_gib=1.0), mem_fraction_static=0.81, cuda_graph_max_bs=64)
    large = configured(mem_fraction_static=0.93, cuda_graph_max_bs=512)

    (unknown,) = Known(here).risks(large)
    (warned,) = Known(here, past=before(graphs_gib=5.0)).risks(large)
    (calmed,) = Known(here, past=before(graphs_gib=2.0)).risks(large)

    assert warned > 0.3 and unknown < 0.1
    assert calmed < unknown


def test_that_prompts_took_more_elsewhere_is_a_suspicion_and_no_more() -> None:
    here = under_load(0, 2048, 0.81)
    past = [under_load(0, 2048, 0.81), under_load(1, 8192, 0.90, missing_gib=1.0)]

    (suspected,) = Known(here, past=past, text=CHUNKS).risks(chunked(8192, 0.90))
    served = under_load(1, 8192, 0.91)
    (disproved,) = Known(here, served, past=past, text=CHUNKS).risks(chunked(8192, 0.90))

    assert 0.3 < suspected < 0.7
    assert disproved < 0.2


def test_an_earlier_study_says_nothing_by_itself_nor_without_figures() -> None:
    past = before(graphs_gib=7.0)
    here = ran(0, memory=logged(0.81, graphs_gib=1.0), mem_fraction_static=0.81, cuda_graph_max_bs=64)
    large = configured(mem_fraction_static=0.90, cuda_graph_max_bs=512)

    assert Known(past=past).free_gib(large) is None
    assert Known(here, past=[replace(one, memory={}) for one in past]).risks(large) == Known(here).risks(
        large
    )


def test_an_earlier_study_that_contradicts_this_one_is_believed_little() -> None:
    """Here large graphs take 2 GiB, and nothing that was seen there holds."""
    here = [
        ran(0, memory=logged(0.81, graphs_gib=1.0), mem_fraction_static=0.81, cuda_graph_max_bs=64),
        ran(1, memory=logged(0.85, graphs_gib=2.0), mem_fraction_static=0.85, cuda_graph_max_bs=512),
        ran(2, memory=logged(0.88, graphs_gib=2.0), mem_fraction_static=0.88, cuda_graph_max_bs=512),
    ]
    edge = configured(mem_fraction_static=0.90, cuda_graph_max_bs=512)

    assert Known(*here, past=before(graphs_gib=9.0)).risks(edge)[0] < 0.1


def test_nothing_is_said_before_anything_is_known() -> None:
    assert Known().free_gib(configured()) is None


def test_a_box_that_never_speaks_of_memory_is_feared_little() -> None:
    mute = [Observation(at, configured(page_size=size), log_scores=(0.0,)) for at, size in enumerate((1, 3))]
    numbered = configured(mem_fraction_static=0.85, speculative="eagle3")
    told = Observation(2, configured(), log_scores=(0.0,), memory={"available_gib": 3.0})

    assert Known(*mute).risks(numbered)[0] < 0.6 * Known(*mute, told).risks(numbered)[0]
