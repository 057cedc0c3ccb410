"""Student's t distribution, for any positive number of degrees of freedom."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_TERMS = 300


def t_cdf(t: float, freedom: float) -> float:
    """The probability that Student's t with `freedom` degrees of freedom is at most `t`.

    By the incomplete beta function: P(|T| > t) = I(ν / (ν + t²); ν/2, 1/2). Correct to about 1e-12.
    Raises `ValueError` where `freedom` is not above 0.
    """
    if not freedom > 0:
        raise ValueError(f"degrees of freedom must be above 0, not {freedom}")
    outside = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1.0 - outside / 2 if t > 0 else outside / 2


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """The `t` that Student's t stays below with this probability, to about 1e-9 of itself.

    Raises `ValueError` for a probability outside (0, 1), and where `freedom` is not above 0.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a probability lies between 0 and 1, not at {probability}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, freedom)
    low, high = 0.0, 2.0
    while t_cdf(high, freedom) < probability:
        low, high = high, high * 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if t_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I(x; a, b), by its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    numerator, denominator, product = 1.0, 0.0, 1.0
    for term in range(_TERMS):
        half = term // 2
        if term == 0:
            step = 1.0
        elif term % 2 == 0:
            step = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            step = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        denominator = 1.0 / _not_zero(1.0 + step * denominator)
        numerator = _not_zero(1.0 + step / numerator)
        product *= numerator * denominator
        if abs(1.0 - numerator * denominator) < 1e-14:
            break
    return math.exp(front) * (product - 1.0) / a


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
