"""Why the winner wins: what each of its values gives, and the smallest configuration that is as good."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from tuner.results.export import Choice, Verdict, choose
from tuner.results.record import COMPLETE, TrialRecord
from tuner.results.standings import Expected
from tuner.search.contributions import NOTHING, WIDTH, Contribution, Launches, shown_gain
from tuner.search.equivalence import canonical, equivalences_of
from tuner.search.importance import importances_of
from tuner.search.lesson import taught_by
from tuner.search.roles import BASELINE, EXPLAIN, LOOK
from tuner.space.configuration import Configuration
from tuner.space.space import SearchSpace
from tuner.study.definition import ENGINE_DEFAULTS, Baseline

_NINE_OF_TEN = NormalDist().inv_cdf(0.9)
"""What is exceeded in one of ten cases, in standard deviations."""
_UNNOTICED = 0.005


@dataclass(frozen=True)
class Smaller:
    """The winner without what does nothing.

    `loss` is how much slower than the winner it is expected to be (0.01 is 1 %), `low` to `high` a 95 %
    interval; `trial` is the one that launched exactly this, None where it is only predicted.
    """

    configuration: Configuration
    left_out: tuple[str, ...]
    loss: float = 0.0
    low: float = 0.0
    high: float = 0.0
    trial: int | None = None

    @property
    def shown(self) -> str:
        """In a sentence, with what it was made of."""
        if not self.left_out:
            return (
                "nothing can be left out of it: every value is needed, gains, or is not known to do nothing"
            )
        sure = f"measured in trial {self.trial}" if self.trial is not None else "predicted, not measured"
        told = shown_gain(-self.loss, -self.high, -self.low)
        return f"without {', '.join(self.left_out)}: {told} against it; {sure}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        told = {key: getattr(self, key) for key in ("loss", "low", "high", "trial")}
        return {
            "configuration": self.configuration.to_json(),
            "left_out": list(self.left_out),
            **told,
            "measured": self.trial is not None,
        }


@dataclass(frozen=True)
class Explanation:
    """The winner's parameters by their contributions, the largest first, and what that comes to.

    `why_none` says why there are none. `launches` were learnt from; `importances` are Optuna's shares.
    """

    choice: Choice
    space: SearchSpace
    contributions: tuple[Contribution, ...]
    smaller: Smaller
    launches: int
    importances: Mapping[str, float] = field(default_factory=dict)
    why_none: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        record = self.choice.record
        return {
            "study": record.study,
            "trial": record.trial,
            "score": self.choice.standing.score,
            "unit": record.unit,
            "launches": self.launches,
            "contributions": [one.to_json() for one in self.contributions],
            "minimal": self.smaller.to_json(),
            "importances": dict(self.importances),
            "why_none": self.why_none,
        }


def explain(
    records: Sequence[TrialRecord],
    space: SearchSpace,
    *,
    verdict: Verdict | None = None,
    expected: Expected | None = None,
    baseline: Baseline = ENGINE_DEFAULTS,
) -> Explanation:
    """What a study's records tell of its winner: the confirmed one, or else the best, as an export takes it.

    `baseline` is what the gains of the study are relative to. Raises `NothingRan` where nothing was measured.
    """
    return Explainer(records, space, verdict=verdict, expected=expected, baseline=baseline).explanation()


class Explainer:
    """Explains the winner of some records, and says which launch would explain it better."""

    def __init__(
        self,
        records: Sequence[TrialRecord],
        space: SearchSpace,
        *,
        verdict: Verdict | None = None,
        expected: Expected | None = None,
        baseline: Baseline = ENGINE_DEFAULTS,
    ) -> None:
        self._records, self._space = records, space
        self._choice = choose(records, verdict, expected)
        record = self._choice.record
        self._winner = Configuration(record.configuration)
        known = equivalences_of(records, space)
        # The launches that confirm are as good as any to learn from: the winner is chosen already.
        observations = taught_by(records, space, (record.direction,), baseline)
        self._measured = sum(bool(one.log_scores) for one in observations)
        self._launches: Launches | None = None
        if record.role != BASELINE and self._measured:
            self._launches = Launches(observations, space, lambda given: canonical(given, known))
        self._contributions = self._tell()

    def explanation(self) -> Explanation:
        """All of it."""
        return Explanation(
            choice=self._choice,
            space=self._space,
            contributions=self._contributions,
            smaller=self._smaller(),
            launches=self._measured,
            importances=importances_of(self._records, self._space),
            why_none=self._why_none(),
        )

    def wanted(self) -> Configuration | None:
        """The configuration whose launch would tell most of what is not known; None where nothing is open.

        First what is expected to give most and is not sure, by itself. Then the winner without all at once
        that is expected to do next to nothing: if that is as fast, one launch has cleared them all. Then the
        least sure parameter.
        """
        if self._launches is None:
            return None
        launched = {
            record.fingerprint
            for record in self._records
            if record.state == COMPLETE or (record.failure and record.role != LOOK)
        }
        bold = self._boldest(self._launches)
        doubtful = [one for one in self._contributions if one.is_open]  # what gives most comes first
        hoped = [one for one in doubtful if (one.gain or 0.0) >= NOTHING]
        least_sure = sorted(doubtful, key=lambda one: one.low - one.high)
        first, last = (
            [self._launches.without(self._winner, one.parameter) for one in some]
            for some in (hoped, least_sure)
        )
        found = [*first, *([bold] if bold is not None else []), *last]
        return next((one for one in found if one.fingerprint not in launched), None)

    def _tell(self) -> tuple[Contribution, ...]:
        if self._launches is None:
            return ()
        told = [self._launches.contribution(self._winner, name) for name in self._launches.said(self._winner)]
        return tuple(sorted(told, key=lambda one: -(one.gain if one.gain is not None else 0.0)))

    def _why_none(self) -> str:
        if self._choice.record.role == BASELINE:
            return "the best is the baseline itself, so there is nothing to explain"
        return "" if self._contributions else "the best says nothing that the defaults do not"

    def _smaller(self) -> Smaller:
        """One parameter less at a time, the least first, as long as the loss in all stays unnoticed.

        It begins at the smallest launch that explained the winner and was as good. Together the parameters
        are expected to cost less than half a per cent, and in nine of ten cases less than `NOTHING`.
        """
        launches = self._launches
        if launches is None:
            return Smaller(self._winner, ())
        smaller = min(
            (each for each in self._launched(launches) if self._is_as_good(launches, each)),
            key=lambda each: len(launches.said(each)),
            default=self._winner,
        )
        for one in reversed(self._contributions):
            fewer = self._fewer(launches, smaller, one)
            if fewer is not None and self._is_as_good(launches, fewer):
                smaller = fewer
        left_out = tuple(name for name in launches.said(self._winner) if name not in launches.said(smaller))
        loss, sd = launches.loss(self._winner, smaller)
        low, high = (1 - math.exp(-(loss + sign * WIDTH * sd)) for sign in (-1, 1))
        found = Smaller(smaller, left_out, 1 - math.exp(-loss), low, high)
        return replace(found, trial=self._trial_of(smaller)) if left_out else Smaller(self._winner, ())

    def _launched(self, launches: Launches) -> list[Configuration]:
        """What was launched to explain, and can take the winner's place."""
        found = [
            Configuration(record.configuration)
            for record in self._records
            if record.role == EXPLAIN and record.state == COMPLETE
        ]
        kept = {one.parameter for one in self._contributions if one.needed}
        return [
            each
            for each in found
            if not launches.why_not(self._winner, each)
            and all(each.get(name, self._winner[name]) == self._winner[name] for name in kept)
            and set(launches.said(each)) < set(launches.said(self._winner))
        ]

    def _is_as_good(self, launches: Launches, smaller: Configuration) -> bool:
        loss, sd = launches.loss(self._winner, smaller)
        return loss < _UNNOTICED and loss + _NINE_OF_TEN * sd < NOTHING

    def _boldest(self, launches: Launches) -> Configuration | None:
        """The winner without everything that is not known to gain, while the model expects no loss of it."""
        bold = self._winner
        for one in reversed(self._contributions):
            fewer = self._fewer(launches, bold, one) if one.effect != "gains" else None
            if fewer is not None and launches.loss(self._winner, fewer)[0] < NOTHING:
                bold = fewer
        return bold if bold != self._winner else None

    def _fewer(self, launches: Launches, from_here: Configuration, one: Contribution) -> Configuration | None:
        """The configuration with this parameter left out too; None where something is against that."""
        if one.needed or one.parameter not in from_here:
            return None
        fewer = launches.without(from_here, one.parameter)
        if self._space.broken_rule(fewer) is not None or launches.why_not(self._winner, fewer):
            return None
        return fewer

    def _trial_of(self, configuration: Configuration) -> int | None:
        return next(
            (
                record.trial
                for record in self._records
                if record.fingerprint == configuration.fingerprint
                and record.state == COMPLETE
                and record.role != BASELINE
            ),
            None,
        )
