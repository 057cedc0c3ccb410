"""Reading a search space: every form that is taken, and the message for every one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.space.spaces import TEXT, space
from tuner.document import parse_document, write_document
from tuner.errors import EXIT_BAD_INPUT, InputError
from tuner.space.parameters import Boolean, Choice, Composite, Effect, Float, Integer
from tuner.space.reading import parse_space, read_space

BY_NAME = {parameter.name: parameter for parameter in space().parameters}


def test_every_kind_of_parameter_is_read() -> None:
    assert BY_NAME["cuda_graph_max_bs"] == Integer(
        name="cuda_graph_max_bs", low=8, high=512, log=True, auto=True, default=512, about="graphs"
    )
    assert BY_NAME["mem_fraction_static"] == Float(
        name="mem_fraction_static", low=0.8, high=0.94, step=0.01, auto=True
    )
    assert BY_NAME["ep_size"] == Choice(name="ep_size", choices=(1, 8), ordered=True)
    assert BY_NAME["all_reduce"] == Composite(
        name="all_reduce", choices=("nccl", "custom", "pcie-ipc"), effects={}, default="custom"
    )
    assert BY_NAME["numa"] == Composite(
        name="numa",
        choices=("off", "bind"),
        effects={
            "off": Effect(),
            "bind": Effect(flags=(("numa_node", (0, 1)),), variables=(("NUMA_STRICT", "1"),)),
        },
    )
    assert BY_NAME["enable_mixed_chunk"] == Boolean(name="enable_mixed_chunk")
    assert BY_NAME["speculative_num_steps"].when == "speculative != off"
    assert BY_NAME["NCCL_PROTO"].is_variable
    assert not BY_NAME["ep_size"].is_variable


def test_short_forms() -> None:
    short = space(
        """
        parameters:
          schedule_policy: [fcfs, lpm]
          all_reduce: [nccl, custom]
          enable_mixed_chunk: boolean
          enable_torch_compile: [true, false]
        """
    )
    assert short.parameters == (
        Choice(name="schedule_policy", choices=("fcfs", "lpm")),
        Composite(name="all_reduce", choices=("nccl", "custom"), effects={}),
        Boolean(name="enable_mixed_chunk"),
        Boolean(name="enable_torch_compile"),
    )


def test_a_built_in_composite_may_have_choices_of_the_users_own() -> None:
    mixed = space("parameters: {all_reduce: {type: composite, choices: {nccl: , mine: {env: {MY_AR: 1}}}}}")
    assert mixed.parameters == (
        Composite(
            name="all_reduce",
            choices=("nccl", "mine"),
            effects={"mine": Effect(variables=(("MY_AR", "1"),))},
        ),
    )


def test_known_good_configurations_are_completed() -> None:
    by_hand = space().known_good[0]
    assert (by_hand.name, by_hand.about) == ("by hand", "it ran")
    assert by_hand.values.to_json() == {
        "all_reduce": "nccl",
        "decode_log_interval": 10,
        "enable_mixed_chunk": False,
        "ep_size": 1,
        "mem_fraction_static": 0.88,
        "numa": "off",
        "schedule_conservativeness": 1.0,
        "speculative": "eagle3",
        "speculative_num_steps": 1,
    }


def test_a_file_is_named_after_itself_unless_it_says_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "my-box.yaml"
    file.write_text(TEXT)
    assert (read_space(file).name, read_space(file).file) == ("my-box", str(file))
    file.write_text(f"name: other\n{TEXT}")
    assert read_space(file).name == "other"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_space(tmp_path / "missing.yaml")


def _parameter(text: str, name: str = "x") -> str:
    return f"parameters: {{{name}: {text}}}"


def _number(text: str) -> str:
    return _parameter(f"{{type: float, {text}}}")


REFUSED = {
    # the file as a whole
    "unknown top-level key": ("parametres: {}", ["parametres: unknown key", "did you mean 'parameters'?"]),
    "no parameters": ("name: x", ["the key 'parameters' is missing"]),
    "empty parameters": ("parameters: {}", ["parameters: a search space needs at least one parameter"]),
    "twice the same parameter": (
        "parameters:\n  a: boolean\n  b: boolean\n  a: boolean",
        ["box.yaml:4: parameters.a: this key stands here twice (first on line 2)"],
    ),
    "parameters as a list": ("parameters: [a]", ["parameters: expected keys and values, got a list"]),
    # names
    "hyphens": (_parameter("boolean", "mem-fraction-static"), ["did you mean 'mem_fraction_static'?"]),
    "dashes": (_parameter("boolean", "--mem-fraction-static"), ["did you mean 'mem_fraction_static'?"]),
    "a version's spelling": (_parameter("[1, 2]", "cuda_graph_max_bs_decode"), ["mean 'cuda_graph_max_bs'?"]),
    "an alias": (_parameter("[1, 2]", "tp"), ["did you mean 'tp_size'?"]),
    "the flag behind a composite": (_parameter("[EAGLE3]", "speculative_algorithm"), ["mean 'speculative'?"]),
    "neither flag nor variable": (_parameter("boolean", "Nccl_Proto"), ["a flag in small letters"]),
    "a word of the rules": (
        _parameter("boolean", "not"),
        ["parameters.not: 'not' is a word of the language"],
    ),
    "a secret": (_parameter("[a]", "HF_TOKEN"), ["'HF_TOKEN' looks like a secret", "environment"]),
    # kinds
    "no type": (_parameter("{low: 1, high: 2}"), ["parameters.x: the key 'type' is missing"]),
    "unknown type": (
        _parameter("{type: integr}"),
        ["parameters.x.type: 'integr'", "did you mean 'integer'?"],
    ),
    "not a parameter": (_parameter("5"), ["parameters.x: expected keys and values, got int 5"]),
    "key of another type": (_number("low: 0, high: 1, choices: [1]"), ["parameters.x.choices: unknown key"]),
    "misspelt key": (_number("low: 0, high: 1, defualt: 1"), ["x.defualt: unknown key", "mean 'default'?"]),
    "a composite as a choice": (
        _parameter("{type: choice, choices: [nccl]}", "all_reduce"),
        ["type: composite"],
    ),
    # numbers
    "no low": (_number("high: 1"), ["parameters.x: the key 'low' is missing"]),
    "low above high": (_number("low: 2, high: 1"), ["x.high: the range is empty", "swap low and high"]),
    "text as a number": (_number("low: a, high: 1"), ["x.low: expected a number, got str 'a'"]),
    "infinite": (_number("low: 0, high: .inf"), ["x.high: expected a finite number"]),
    "too far": (_number("low: 0, high: 1e30"), ["x.high: 1e+30 is farther from 0 than 1e+15"]),
    "fraction as integer": (
        _parameter("{type: integer, low: 0.5, high: 2}"),
        ["x.low: expected a whole number, got float 0.5"],
    ),
    "switch as a number": (
        _parameter("{type: integer, low: true, high: 2}"),
        ["x.low: expected a whole number"],
    ),
    "step 0": (_number("low: 0, high: 1, step: 0"), ["x.step: a step must be above 0"]),
    "negative step": (_number("low: 0, high: 1, step: -0.1"), ["x.step: a step must be above 0"]),
    "large step": (_number("low: 0, high: 1, step: 2"), ["x.step: the step 2.0 is larger than the range"]),
    "tiny step": (_number("low: 0, high: 1, step: 1e-12"), ["x.step: the step 1e-12 is finer than 1e-09"]),
    "off the grid": (
        _number("low: 0.8, high: 0.95, step: 0.1"),
        ["x.high: 0.95 cannot be reached from 0.8 in steps of 0.1", "the last value on the grid is 0.9"],
    ),
    "integer off the grid": (
        _parameter("{type: integer, low: 1, high: 512, step: 8}"),
        ["x.high: 512 cannot be reached", "the last value on the grid is 505"],
    ),
    "log with step": (_number("low: 1, high: 2, step: 1, log: true"), ["x.step: a range by its logarithm"]),
    "log from 0": (_number("low: 0, high: 2, log: true"), ["x.low: a range by its logarithm begins above 0"]),
    "log as text": (_number("low: 1, high: 2, log: yes"), ["x.log: expected true or false, got str 'yes'"]),
    "default outside": (_number("low: 0, high: 1, default: 2"), ["x.default: the default does not fit", "2"]),
    "default off its step": (
        _number("low: 0, high: 1, step: 0.5, default: 0.3"),
        ["x.default: ", "the grid"],
    ),
    "default auto": (
        _number("low: 0, high: 1, auto: true, default: auto"),
        ["x.default: ", "leave the default"],
    ),
    # choices
    "no choices": (_parameter("{type: choice}"), ["parameters.x: the key 'choices' is missing"]),
    "empty choices": (_parameter("[]"), ["parameters.x: expected at least 1 item, got 0"]),
    "twice the same choice": (_parameter("[a, b, a]"), ["parameters.x[2]: the choice a stands here twice"]),
    "the same on the command line": (_parameter('[1, "1"]'), ["parameters.x[1]: the choice 1 stands"]),
    "nothing as a choice": (
        _parameter("[a, null]"),
        ["parameters.x[1]: expected a single value, got nothing"],
    ),
    "a list as a choice": (
        _parameter("[[1, 2], [4]]"),
        ["parameters.x[0]: expected a single value, got a list"],
    ),
    "true as a choice": (
        _parameter("[auto, true]"),
        ["x[1]: true and false are no choices", "type: boolean"],
    ),
    "an empty word": (_parameter('[""]'), ["x[0]: must not be empty"]),
    "default no choice": (
        _parameter("{type: choice, choices: [fcfs, lpm], default: fcsf}"),
        ["x.default: the default does not fit", "did you mean 'fcfs'?"],
    ),
    "default of a switch": (_parameter("{type: boolean, default: on}"), ["x.default: ", "is a switch"]),
    # composites
    "unknown built-in choice": (
        _parameter("[nccl, pcie_ipc]", "all_reduce"),
        ["parameters.all_reduce[1]: 'pcie_ipc' is no built-in choice", "did you mean 'pcie-ipc'?"],
    ),
    "twice a built-in choice": (
        _parameter("[off, off]", "speculative"),
        ["the choice off stands here twice"],
    ),
    "own composite without effects": (
        _parameter("{type: composite, choices: [off, bind]}", "numa"),
        [
            "numa.choices[0]: what 'off' of the composite 'numa' sets is not said",
            "all_reduce and speculative",
        ],
    ),
    "own choice without effects": (
        _parameter("{type: composite, choices: {off: , bind: {}}}", "numa"),
        ["numa.choices.off: what 'off' of the composite 'numa' sets is not said"],
    ),
    "auto that sets something": (
        _parameter("{type: composite, choices: {auto: {env: {A: 1}}}}"),
        ["x.choices.auto: auto leaves everything out"],
    ),
    "no choice": (
        _parameter("{type: composite, choices: {}}"),
        ["x.choices: a composite needs at least one"],
    ),
    "unknown effect": (
        _parameter("{type: composite, choices: {a: {flag: {}}}}"),
        ["x.choices.a.flag: unknown key", "did you mean 'flags'?"],
    ),
    "hyphens in an effect": (
        _parameter("{type: composite, choices: {a: {flags: {numa-node: 1}}}}"),
        ["x.choices.a.flags.numa-node", "did you mean 'numa_node'?"],
    ),
    "variable among flags": (
        _parameter("{type: composite, choices: {a: {flags: {NCCL_ALGO: Ring}}}}"),
        ["flags.NCCL_ALGO: ", "belong under env"],
    ),
    "flag that is false": (
        _parameter("{type: composite, choices: {a: {flags: {enable_symm_mem: false}}}}"),
        ["enable_symm_mem: false would set nothing"],
    ),
    "variable that is true": (
        _parameter("{type: composite, choices: {a: {env: {A: true}}}}"),
        ["a.env.A: a variable holds text", '"1" or "true"'],
    ),
    "impossible variable": (
        _parameter("{type: composite, choices: {a: {env: {A-B: 1}}}}"),
        ["env.A-B: this"],
    ),
    "secret variable": (
        _parameter("{type: composite, choices: {a: {env: {OPENAI_API_KEY: x}}}}"),
        ["looks like a secret"],
    ),
    "set by two parameters": (
        "parameters: {numa_node: [0, 1], numa: {type: composite, choices: {on: {flags: {numa_node: 0}}}}}",
        ["parameters.numa: it sets 'numa_node', which the parameter 'numa_node' sets too"],
    ),
    # conditions and rules
    "condition on a later parameter": (
        "parameters:\n  steps: {type: boolean, when: mode == a}\n  mode: [a, b]",
        ["box.yaml:2: parameters.steps.when: 'mode' stands below 'steps'", "move 'mode' above 'steps'"],
    ),
    "condition on itself": (
        _parameter("{type: boolean, when: not x}"),
        ["x.when: a parameter cannot depend on"],
    ),
    "condition on nothing": (
        "parameters: {mode: [a, b], x: {type: boolean, when: mdoe == a}}",
        ["parameters.x.when: in 'mdoe == a' at character 1", "did you mean 'mode'?"],
    ),
    "condition on no value": (
        "parameters: {mode: [off, slow], x: {type: boolean, when: mode != of}}",
        ["parameters.x.when: ", "'of' is no choice of 'mode'", "did you mean 'off'?"],
    ),
    "condition that is no text": (_parameter("{type: boolean, when: true}"), ["x.when: expected text"]),
    "rule on an unknown parameter": (
        "parameters: {mode: [a]}\nrules:\n- {forbid: mod == a, because: x}",
        ["box.yaml:3: rules[0].forbid: in 'mod == a'", "did you mean 'mode'?"],
    ),
    "rule without a reason": (
        "parameters: {mode: [a]}\nrules: [{forbid: mode == a}]",
        ["'because' is missing"],
    ),
    "rule with another key": (
        "parameters: {mode: [a]}\nrules: [{forbid: mode == a, because: x, then: y}]",
        ["rules[0].then: unknown key"],
    ),
    "rule as text": ("parameters: {mode: [a]}\nrules: [mode == a]", ["rules[0]: expected keys and values"]),
    # known-good configurations
    "known-good with an unknown parameter": (
        "parameters: {mode: [a]}\nknown_good:\n- {name: k, values: {moed: a}}",
        ["box.yaml:3: known_good[0].values.moed: there is no such parameter", "did you mean 'mode'?"],
    ),
    "known-good outside the space": (
        "parameters: {mode: [fast, slow]}\nknown_good: [{name: k, values: {mode: fsat}}]",
        ["known_good[0].values.mode: 'fsat' is no choice of 'mode'", "did you mean 'fast'?"],
    ),
    "known-good that breaks a rule": (
        "parameters: {mode: [a, b]}\nrules: [{forbid: mode == b, because: it hung}]\n"
        "known_good: [{name: k, values: {mode: b}}]",
        ["known_good[0].values: 'k' breaks the rule 'mode == b' (it hung): it means mode=b"],
    ),
    "known-good that breaks a rule by what it leaves unsaid": (
        "parameters: {mode: [a, b]}\nrules: [{forbid: mode == a, because: it hung}]\n"
        "known_good: [{name: k, values: {}}]",
        ["'k' breaks the rule 'mode == a'", "it means mode=a"],
    ),
    "known-good with what does not apply": (
        "parameters: {mode: [a, b], x: {type: boolean, when: mode == b}}\n"
        "known_good: [{name: k, values: {mode: a, x: true}}]",
        ["known_good[0].values.x: it does not apply here: it exists only when mode == b"],
    ),
    "known-good twice": (
        "parameters: {mode: [a]}\nknown_good: [{name: k, values: {}}, {name: k, values: {}}]",
        ["known_good[1].name: another known-good configuration is called 'k'"],
    ),
    "known-good without values": (
        "parameters: {mode: [a]}\nknown_good: [{name: k}]",
        ["'values' is missing"],
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_cannot_be_used_is_refused_with_its_place(case: str) -> None:
    text, fragments = REFUSED[case]
    with pytest.raises(InputError) as caught:
        space(text)
    assert str(caught.value).startswith("box.yaml:")
    assert caught.value.exit_code == EXIT_BAD_INPUT
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_ranges_of_one_value_and_steps_of_decimals_are_possible() -> None:
    assert space(_number("low: 0.9, high: 0.9")).size() == 1
    assert space(_number("low: 0.1, high: 0.7, step: 0.1")).size() == 7
    assert space(_number("low: 1, high: 1.3, step: 0.1, default: 1")).assignment({}) == {"x": 1.0}


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
_KEYS = st.sampled_from(
    [
        "type",
        "low",
        "high",
        "step",
        "log",
        "auto",
        "choices",
        "default",
        "when",
        "values",
        "forbid",
        "name",
        "x",
    ]
)
_WORDS = st.sampled_from(
    ["integer", "float", "choice", "boolean", "composite", "auto", "x", "x > 1", 1, 2, 0.5, True]
)
_TREES = st.recursive(
    st.one_of(_SCALARS, _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=7)),
    max_leaves=20,
)


@settings(deadline=None)
@given(
    parameters=st.dictionaries(st.sampled_from(["x", "y", "all_reduce"]), _TREES, min_size=1, max_size=3),
    rules=st.one_of(st.just([]), _TREES),
    known_good=st.one_of(st.just([]), _TREES),
)
def test_any_file_is_a_space_or_an_input_error(
    parameters: dict[str, object], rules: object, known_good: object
) -> None:
    content = {"parameters": parameters, "rules": rules, "known_good": known_good}
    try:
        found = parse_space(parse_document(write_document(content), "any.yaml"), "any")
    except InputError:
        return
    assert found.configuration(found.assignment({})) is not None
    assert found.size() != 0
