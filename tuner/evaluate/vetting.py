"""Whether a configuration of a fitted study can run, without launching it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner.evaluate.fitting import Fitted
from tuner.preflight.refusal import Refusal
from tuner.preflight.rules import OwnRule, refusal_by_rules
from tuner.preflight.validator import Answer, ArgumentCheck, Question, Refused
from tuner.sglang.flags import Takes
from tuner.sglang.plan import LaunchPlan
from tuner.space.configuration import Configuration


class Preflight:
    """SGLang's own check of the arguments, then the tuner's rules.

    `facts` are those of the model and the box. `validator` is None where the command starts no SGLang that
    could be asked; then only the rules are left.
    """

    def __init__(
        self,
        fitted: Fitted,
        *,
        rules: tuple[OwnRule, ...] = (),
        facts: Mapping[str, object] | None = None,
        validator: ArgumentCheck | None = None,
    ) -> None:
        self._fitted = fitted
        self._rules = rules
        self._facts = dict(facts or {})
        self._validator = validator
        self._baseline: Answer | None = None
        self._said: set[str] = set()

    def vet(
        self, configurations: Sequence[Configuration], tell: Callable[[str], None]
    ) -> list[Refusal | None]:
        """For each the refusal, or None. `tell` hears, once, what keeps SGLang from being asked."""
        plans = [self._fitted.plan(configuration) for configuration in configurations]
        answers = self._ask(plans, tell)
        return [
            self._refusal_by_sglang(answer)
            or refusal_by_rules(self._rules, self._values(plan, configuration))
            for answer, plan, configuration in zip(answers, plans, configurations, strict=True)
        ]

    def end(self) -> bool:
        """End what was started to ask SGLang, before a server is launched; whether there was anything."""
        return self._validator is not None and self._validator.end()

    # --- SGLang's own check -------------------------------------------------------------------------

    def _ask(self, plans: Sequence[LaunchPlan], tell: Callable[[str], None]) -> list[Answer | None]:
        if self._validator is None:
            return [None] * len(plans)
        if self._baseline is None:
            self._baseline = self._validator.ask([self._question(self._fitted.plan_baseline())])[0]
        answers = self._validator.ask([self._question(plan) for plan in plans])
        if self._validator.absent:
            self._say(tell, f"SGLang cannot be asked before a launch: {self._validator.absent}")
        elif isinstance(self._baseline, Refused):
            self._say(
                tell,
                f"SGLang refuses the baseline too, so this is held against nobody: {self._baseline.text}",
            )
        return list(answers)

    def _question(self, plan: LaunchPlan) -> Question:
        return Question(plan.argv[len(plan.command) :], dict(plan.variables))

    def _refusal_by_sglang(self, answer: Answer | None) -> Refusal | None:
        """What the baseline is refused for as well says something of the box alone."""
        if not isinstance(answer, Refused) or answer == self._baseline:
            return None
        return Refusal(answer.text or answer.type)

    def _say(self, tell: Callable[[str], None], text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            tell(text)

    # --- the tuner's rules --------------------------------------------------------------------------

    def _values(self, plan: LaunchPlan, configuration: Configuration) -> dict[str, object]:
        """Everything by name: facts, the flags and variables of the launch, and what was asked for.

        What was asked for counts last: the plan already replaces what SGLang would replace.
        """
        flags: dict[str, object] = {}
        for word, texts in plan.flags:
            flag = self._fitted.installation.flags.exact(word)
            if flag is not None:
                switch = flag.takes is Takes.NONE
                flags[flag.canonical] = True if switch else _value(" ".join(texts))
        variables = {name: _value(text) for name, text in plan.variables}
        return {**self._facts, **flags, **variables, **configuration}


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
