"""SGLang's own check and the tuner's rules on the configurations of a study, without a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.search.scripted import definition
from tests.sglang.help_texts import installed, new
from tuner.evaluate.fitting import fit_to_installation
from tuner.evaluate.vetting import Preflight
from tuner.preflight.rules import read_rules
from tuner.preflight.validator import Accepted, Answer, ArgumentCheck, Question, Refused, Unknown
from tuner.space.configuration import Configuration

SPACE = """
parameters:
  mem_fraction_static: {type: float, low: 0.5, high: 0.9, auto: true}
  speculative: {type: composite, choices: [off, eagle3]}
  all_reduce: {type: composite, choices: [custom, nccl, torch-symm-mem, pcie-ipc, flashinfer-fusion]}
  enable_tf32_matmul: {type: boolean}
"""
STUDY = """
search_space: given
server:
  command: [python, -m, sglang.launch_server]
  model: m
  label: a box
  flags: {tp_size: 6}
workload: {input_tokens: 8, output_tokens: 8, concurrency: 1}
"""


class ScriptedValidator:
    """Answers by the words of a question, and keeps the questions."""

    def __init__(self, **by_word: Answer) -> None:
        self.absent = ""
        self.by_word = by_word
        self.questions: list[Question] = []

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [
            next((self.by_word[word] for word in question.words if word in self.by_word), Accepted({}))
            for question in questions
        ]

    def end(self) -> bool:
        return False


def preflight(folder: Path, validator: ArgumentCheck | None, **facts: object) -> Preflight:
    installation = installed(new(), "0.5.23")
    made = definition(folder, STUDY, SPACE)
    found = replace(installation, command=made.server.argv)
    return Preflight(fit_to_installation(made, found), rules=read_rules(), facts=facts, validator=validator)


def reasons(checked: Preflight, *configurations: dict[str, object]) -> list[str | None]:
    wanted = [Configuration(values) for values in configurations]  # type: ignore[arg-type]
    return [None if refusal is None else refusal.by for refusal in checked.vet(wanted, lambda _: None)]


def test_sglang_is_asked_with_the_words_that_a_launch_would_have(tmp_path: Path) -> None:
    validator = ScriptedValidator(**{"0.7": Refused("ValueError", "too much")})
    checked = preflight(tmp_path, validator)
    good, bad = checked.vet(
        [Configuration({"mem_fraction_static": 0.6}), Configuration({"mem_fraction_static": 0.7})],
        lambda _: None,
    )
    assert good is None
    assert bad is not None and (bad.reason, bad.by, bad.sure) == ("too much", "SGLang", True)
    baseline, first = validator.questions[:2]
    assert first.words == (
        "--model-path", "m", "--tp-size", "6",
        "--mem-fraction-static", "0.6", "--host", "127.0.0.1",
    )  # fmt: skip
    assert "--mem-fraction-static" not in baseline.words
    checked.vet([Configuration()], lambda _: None)
    assert len(validator.questions) == 4, "the baseline is asked of once"


def test_variables_of_a_configuration_are_part_of_the_question(tmp_path: Path) -> None:
    validator = ScriptedValidator()
    preflight(tmp_path, validator).vet([Configuration({"all_reduce": "pcie-ipc"})], lambda _: None)
    assert dict(validator.questions[-1].variables) == {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}


def test_what_the_baseline_is_refused_for_is_held_against_nobody_and_told_once(tmp_path: Path) -> None:
    no_gpu = Refused("RuntimeError", "no accelerator")
    other = Refused("ValueError", "too much")
    checked, told = preflight(tmp_path, ScriptedValidator(**{"0.7": other, "m": no_gpu})), list[str]()
    # The model's name comes before the fraction, so every question meets the first answer.
    assert checked.vet([Configuration({"mem_fraction_static": 0.7})], told.append) == [None]
    checked.vet([Configuration({"mem_fraction_static": 0.6})], told.append)
    assert told == ["SGLang refuses the baseline too, so this is held against nobody: no accelerator"]


def test_what_nobody_can_tell_is_launched(tmp_path: Path) -> None:
    assert reasons(preflight(tmp_path, ScriptedValidator(m=Unknown("it died"))), {}) == [None]


def test_without_a_validator_the_rules_are_left(tmp_path: Path) -> None:
    checked = preflight(tmp_path, None, sm=120, attention_heads=64, draft_layers=0)
    assert reasons(checked, {}) == ["heads-by-tp"]
    assert not checked.end()


def test_the_rules_see_what_the_choices_of_composites_set(tmp_path: Path) -> None:
    checked = preflight(tmp_path, ScriptedValidator(), sm=120, draft_layers=0)
    assert reasons(
        checked,
        {"all_reduce": "torch-symm-mem"},
        {"all_reduce": "pcie-ipc"},
        {"all_reduce": "flashinfer-fusion"},
        {"speculative": "eagle3"},
        {"all_reduce": "nccl", "enable_tf32_matmul": False},
    ) == ["torch-symm-mem", "pcie-ipc", "flashinfer-fusion", "eagle3-without-draft", None]


def test_the_engines_own_refusal_counts_before_a_rule(tmp_path: Path) -> None:
    validator = ScriptedValidator(**{"0.7": Refused("ValueError", "too much")})
    checked = preflight(tmp_path, validator, attention_heads=64)
    assert reasons(checked, {"mem_fraction_static": 0.7}, {}) == ["SGLang", "heads-by-tp"]


def test_an_installation_that_cannot_be_asked_is_told_once(tmp_path: Path) -> None:
    validator = ScriptedValidator(m=Unknown("why"))
    validator.absent = "its Python has no sglang"
    checked, told = preflight(tmp_path, validator), list[str]()
    for _ in range(2):
        assert checked.vet([Configuration()], told.append) == [None]
    assert told == ["SGLang cannot be asked before a launch: its Python has no sglang"]
