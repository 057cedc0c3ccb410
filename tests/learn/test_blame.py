from __future__ import annotations

import pytest

from tests.learn.learning import configured, died, ran, space
from tuner.learn.blame import Culprits
from tuner.learn.expectations import risk_of
from tuner.learn.observation import Death

ASSERTION = Death("assertion", "weight-load", "A check inside the server failed.")
EXPERTS = Death("assertion", "weight-load", "AssertionError: Expert parallelism is not supported")
NO_KERNEL = Death("backend-unsupported", "graph-capture", "no kernel image", blamed=("attention_backend",))


def test_two_deaths_in_different_company_leave_what_they_share() -> None:
    culprits = Culprits(
        space(),
        [
            ran(0),
            died(1, ASSERTION, page_size=64, attention_backend="fa3"),
            died(2, ASSERTION, page_size=64, attention_backend="triton"),
        ],
    )

    (blame,) = culprits.blamed()
    assert (blame.parameter, blame.value, blame.witnesses) == ("page_size", 64, (1, 2))
    assert blame.shown == "page_size=64 is off the list: trials 1 and 2 died of it (assertion)"
    assert culprits.risk(configured(page_size=64)) > 0.9
    assert culprits.risk(configured(attention_backend="triton")) < 0.1


@pytest.mark.parametrize(
    "death",
    [Death("peer-lost", "serving", passing=True), Death("measurement-void", "serving")],
    ids=["bad luck", "a pool too small for the load"],
)
def test_deaths_that_no_choice_may_have_caused_take_nothing_off_the_list(death: Death) -> None:
    culprits = Culprits(
        space(),
        [ran(0), died(1, death, page_size=64), died(2, death, page_size=64, attention_backend="triton")],
    )

    assert culprits.blamed() == []


def test_one_death_makes_suspect_what_its_sentence_names_and_takes_nothing_off_the_list() -> None:
    culprits = Culprits(space(), [ran(0), died(4, EXPERTS, ep_size=8, page_size=64)])

    assert culprits.risk(configured(ep_size=8)) > 0.9
    assert culprits.risk(configured(page_size=64)) < 0.1
    assert culprits.blamed() == []


def test_one_death_makes_suspect_what_its_hint_names() -> None:
    culprits = Culprits(space(), [ran(0), died(4, NO_KERNEL, attention_backend="triton", page_size=64)])

    assert culprits.risk(configured(attention_backend="triton")) > 0.9
    assert culprits.risk(configured(page_size=64)) < 0.1


def test_a_choice_that_ran_is_never_suspected_again() -> None:
    culprits = Culprits(
        space(),
        [ran(0, page_size=64), died(1, ASSERTION, page_size=64, ep_size=8)],
    )

    assert culprits.risk(configured(page_size=64)) == 0.0
    assert culprits.risk(configured(ep_size=8)) > 0.9


def test_choices_that_each_ran_kill_as_a_pair() -> None:
    culprits = Culprits(
        space(),
        [
            ran(0, page_size=3),
            ran(1, attention_backend="triton"),
            died(2, ASSERTION, page_size=3, attention_backend="triton"),
        ],
    )

    assert culprits.risk(configured(page_size=3, attention_backend="triton")) > 0.9
    assert culprits.risk(configured(page_size=3)) == 0.0
    assert not culprits.blamed()


def test_a_death_by_memory_blames_no_choice() -> None:
    memory = Death("oom-graph-capture", "graph-capture", "CUDA out of memory", shortage_gib=1.0)
    culprits = Culprits(space(), [ran(0), died(1, memory, page_size=64)])

    assert not culprits.blamed()
    assert culprits.risk(configured(page_size=64)) == 0.0


def test_lost_peers_of_a_server_that_was_nearly_full_blame_no_choice() -> None:
    culprits = Culprits(
        space(), [ran(0), died(1, Death("nccl", "distributed-init"), {"available_gib": 1.8}, page_size=64)]
    )

    assert culprits.risk(configured(page_size=64)) == 0.0


def test_leaving_a_flag_out_has_no_risk() -> None:
    assert risk_of("attention_backend", "auto") == 0.0
    assert risk_of("attention_backend", "fa3") > risk_of("attention_backend", "flashinfer")
    assert 0 < risk_of("some_flag", "some value") < 0.1
