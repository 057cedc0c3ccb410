from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learn.learning import configured, died, ran, space
from tuner.learn.observation import Death, Observation
from tuner.learn.ruled_out import Edge, ruled_out

FULL = Death("oom-graph-capture", "graph-capture")
NO_POOL = Death("mem-fraction-too-low", "kv-cache")
ASSERTION = Death("assertion", "weight-load", "A check inside the server failed.")
AT: dict[str, Any] = {"mem_fraction_static": 0.90, "cuda_graph_max_bs": 256}


def edge(*observations: Observation) -> Edge:
    (found,) = ruled_out(space(), observations)
    assert isinstance(found, Edge)
    return found


def test_a_death_in_capture_rules_out_every_higher_pair_and_names_its_witness() -> None:
    found = edge(died(5, FULL, **AT))

    assert found.witnesses == (5,)
    assert found.shown == (
        "mem_fraction_static >= 0.9 with cuda_graph_max_bs >= 256 (ep_size=1, page_size=1) is off the list: "
        "trial 5 died of it (oom-graph-capture)"
    )


@given(fraction=st.sampled_from([0.8, 0.88, 0.9, 0.91, 0.96]), batch=st.sampled_from([8, 128, 256, 300, 512]))
def test_only_higher_pairs_are_ruled_out(fraction: float, batch: int) -> None:
    found = edge(died(5, FULL, **AT))

    forbidden = found.forbids(configured(mem_fraction_static=fraction, cuda_graph_max_bs=batch))

    assert forbidden == (fraction >= 0.9 and batch >= 256)


@pytest.mark.parametrize(
    ("more", "forbidden"),
    [
        ({"speculative": "eagle3", "speculative_num_steps": 2}, True),  # drafts only add to it
        ({"attention_backend": "flashinfer"}, False),  # its workspace may be smaller
        ({"page_size": 64}, False),
        ({"cuda_graph_max_bs": "auto"}, False),  # nobody knows what the engine makes of it
    ],
)
def test_only_in_company_that_cannot_relieve_it(more: dict[str, Any], forbidden: bool) -> None:
    found = edge(died(5, FULL, **AT))

    assert found.forbids(configured(**{**AT, **more})) is forbidden


def test_a_pool_without_room_rules_out_smaller_fractions_whatever_the_graphs() -> None:
    found = edge(died(5, NO_POOL, mem_fraction_static=0.74, cuda_graph_max_bs=256, speculative="eagle3"))

    assert found.forbids(configured(mem_fraction_static=0.72, cuda_graph_max_bs=8, speculative="eagle3"))
    assert not found.forbids(configured(mem_fraction_static=0.75, speculative="eagle3"))
    assert not found.forbids(configured(mem_fraction_static=0.72))


def test_what_ran_is_never_ruled_out() -> None:
    """The same death twice, once beyond a pair that ran: luck (memory in pieces), and no edge."""
    found = ruled_out(space(), [died(5, FULL, **AT), ran(6, mem_fraction_static=0.92, cuda_graph_max_bs=256)])

    assert found == ()


def test_a_death_beyond_a_known_edge_is_told_once() -> None:
    higher = died(6, FULL, mem_fraction_static=0.92, cuda_graph_max_bs=512)

    assert edge(died(5, FULL, **AT), higher).witnesses == (5,)


def test_a_fraction_that_the_engine_chose_says_nothing_of_others() -> None:
    assert ruled_out(space(), [died(5, FULL, cuda_graph_max_bs=256)]) == ()


def test_a_choice_that_killed_in_different_company_is_off_the_list() -> None:
    deaths = [
        died(3, ASSERTION, ep_size=8, attention_backend="triton"),
        died(7, ASSERTION, ep_size=8, page_size=64),
    ]
    (blame,) = ruled_out(space(), [ran(0), *deaths])

    assert blame.shown == "ep_size=8 is off the list: trials 3 and 7 died of it (assertion)"
    assert blame.forbids(configured(ep_size=8)) and not blame.forbids(configured(ep_size=1))
    assert ruled_out(space(), [ran(0), *deaths, ran(8, ep_size=8)]) == ()
