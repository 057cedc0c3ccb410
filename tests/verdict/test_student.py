"""Student's t against published tables, and as its own inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.verdict.student import t_cdf, t_quantile

# Probability, degrees of freedom, quantile: from the usual tables.
TABLE = [
    (0.975, 1, 12.7062),
    (0.975, 2, 4.30265),
    (0.975, 5, 2.57058),
    (0.975, 30, 2.04227),
    (0.975, 1e6, 1.95997),
    (0.995, 4, 4.60409),
    (0.95, 10, 1.81246),
    (0.80, 5, 0.91954),
    (0.025, 5, -2.57058),
    (0.5, 3, 0.0),
]


@pytest.mark.parametrize(("probability", "freedom", "quantile"), TABLE)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: float, quantile: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(quantile, abs=2e-5)


def test_two_degrees_of_freedom_have_a_closed_form() -> None:
    for t in (-8.0, -1.5, 0.0, 0.3, 4.0):
        assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * (2 + t * t) ** 0.5), abs=1e-12)


@given(st.floats(0.001, 0.999), st.floats(0.6, 200))
def test_the_quantile_undoes_the_distribution(probability: float, freedom: float) -> None:
    assert t_cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-8)


@given(st.floats(0, 50), st.floats(0.6, 200))
def test_the_distribution_is_symmetric(t: float, freedom: float) -> None:
    assert t_cdf(t, freedom) + t_cdf(-t, freedom) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 3), (1.0, 3), (1.5, 3), (0.9, 0), (0.9, -1)])
def test_what_has_no_quantile_is_refused(probability: float, freedom: float) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|above 0"):
        t_quantile(probability, freedom)
