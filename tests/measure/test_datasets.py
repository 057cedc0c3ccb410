from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import InputError
from tuner.measure import builtin_prompts
from tuner.measure.datasets import open_dataset
from tuner.measure.lengths import Lengths
from tuner.measure.measurement import Workload


def workload(
    dataset: str, *, inputs: Lengths | None = None, outputs: Lengths | None = None, **more: object
) -> Workload:
    return Workload(inputs, outputs, concurrency=(4,), dataset=dataset, **more)  # type: ignore[arg-type]


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_the_builtin_set_is_varied_and_mixed() -> None:
    lines = (Path(builtin_prompts.__file__).parent / "builtin_prompts.jsonl").read_text().splitlines()
    kinds = Counter(json.loads(line)["kind"] for line in lines)
    assert len(set(builtin_prompts.texts())) == len(lines) >= 60
    assert all(kinds[kind] >= 15 for kind in ("english", "code", "dialogue"))


def test_builtin_prompts_are_distinct_from_their_first_words_on() -> None:
    found = open_dataset(workload("builtin", inputs=Lengths.fixed(64), outputs=Lengths.fixed(32)))
    prompts = found.draw(400, "seed") + found.draw(400, "seed", 400) + found.draw(400, "another")
    assert len({prompt.text[:14] for prompt in prompts}) > 1190
    assert len({prompt.text for prompt in prompts}) == 1200
    assert found.draw(3, "seed") == found.draw(3, "seed")


@pytest.mark.parametrize("tokens", [64, 300, 4000])
def test_builtin_prompts_have_about_the_asked_length(tokens: int) -> None:
    found = open_dataset(workload("builtin", inputs=Lengths.fixed(tokens), outputs=Lengths.fixed(32)))
    for prompt in found.draw(20, "seed"):
        assert 0.8 * 4 * tokens < len(prompt.text) <= 4 * tokens


def test_shared_prefixes_are_shared_within_their_group_and_fresh_for_every_seed() -> None:
    found = open_dataset(
        workload(
            "shared-prefix",
            inputs=Lengths(40, 60),
            outputs=Lengths.fixed(8),
            prefix_tokens=32,
            prefix_groups=3,
        )
    )
    prompts = found.draw(30, "a") + found.draw(30, "a", 30)
    assert len({prompt.ids[:32] for prompt in prompts}) == 3
    assert len({prompt.ids for prompt in prompts}) == 60
    assert {prompt.shared_tokens for prompt in prompts} == {32}
    assert {prompt.ids[:32] for prompt in found.primers("a")} == {prompt.ids[:32] for prompt in prompts}
    assert not {prompt.ids[:32] for prompt in found.draw(30, "b")} & {prompt.ids[:32] for prompt in prompts}


def test_a_shared_prefix_needs_room_for_a_question() -> None:
    with pytest.raises(InputError, match="have no room for a shared prefix of 32"):
        open_dataset(
            workload("shared-prefix", inputs=Lengths(32, 60), outputs=Lengths.fixed(8), prefix_tokens=32)
        )


def test_jsonl_with_texts_messages_and_lengths(tmp_path: Path) -> None:
    path = written(
        tmp_path / "own.jsonl",
        {"text": "tell me", "output_tokens": 17},
        "",
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]},
        {"prompt": "in older words"},
        {"text": "tell me", "output_tokens": 99},
    )
    found = open_dataset(workload("jsonl", outputs=Lengths.fixed(40), dataset_file=path))
    assert found.left(0) == 3  # the repeated one is left out
    prompts = sorted(found.draw(3, "seed"), key=lambda prompt: prompt.output_tokens)
    assert (prompts[0].text, prompts[0].output_tokens) == ("tell me", 17)
    assert {prompt.output_tokens for prompt in prompts[1:]} == {40}
    assert (("system", "be brief"), ("user", "why?")) in {prompt.messages for prompt in prompts}


def test_prompts_of_a_file_come_in_an_order_that_the_seed_decides_and_never_twice(tmp_path: Path) -> None:
    path = written(tmp_path / "own.jsonl", *({"text": f"number {index}"} for index in range(40)))
    found = open_dataset(workload("jsonl", outputs=Lengths.fixed(8), dataset_file=path))
    first, second = found.draw(20, "a"), found.draw(20, "a", 20)
    assert len({prompt.text for prompt in first + second}) == 40
    assert found.draw(20, "b") != first
    with pytest.raises(InputError, match=r"has 40 prompts that differ, and a level needs 41"):
        found.draw(1, "a", 40)


def test_sharegpt_takes_the_first_question_and_the_length_of_its_answer(tmp_path: Path) -> None:
    path = written(
        tmp_path / "chats.json",
        [
            {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "x" * 400}]},
            {"conversations": [{"from": "gpt", "value": "hello"}]},
            {
                "conversations": [
                    {"from": "system", "value": "s"},
                    {"from": "human", "value": "second"},
                    {"from": "gpt", "value": "x"},
                ]
            },
        ],
    )
    found = open_dataset(workload("sharegpt", dataset_file=path))
    lengths = {prompt.messages[0][1]: prompt.output_tokens for prompt in found.draw(2, "seed")}
    assert lengths == {"hi": 100, "second": 8}
    fixed = open_dataset(workload("sharegpt", outputs=Lengths.fixed(64), dataset_file=path))
    assert {prompt.output_tokens for prompt in fixed.draw(2, "seed")} == {64}


@pytest.mark.parametrize(
    ("kind", "lines", "message"),
    [
        ("jsonl", ["{"], r"own:1: is no valid JSON"),
        ("jsonl", [{"text": "a"}, [1]], r"own:2: expected an object"),
        ("jsonl", [{"text": ""}], r"own:1: needs either a 'text'"),
        ("jsonl", [{"text": "a", "messages": [{"role": "user", "content": "b"}]}], r"own:1: needs either"),
        ("jsonl", [{"messages": [{"role": "user"}]}], r"own:1: a message needs a role and a content"),
        ("jsonl", [{"text": "a", "output_tokens": True}], r"own:1: output_tokens must be a whole number"),
        ("jsonl", [""], r"own: has no prompt"),
        ("sharegpt", [{"a": 1}], r"own: is no ShareGPT file"),
        ("sharegpt", ["[]"], r"own: has no prompt"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, kind: str, lines: list[object], message: str
) -> None:
    path = written(tmp_path / "own", *lines)
    with pytest.raises(InputError, match=message):
        open_dataset(workload(kind, outputs=Lengths.fixed(8), dataset_file=path))


def test_a_line_without_any_length_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "own", {"text": "a"})
    with pytest.raises(InputError, match=r"own:1: says nothing of how long"):
        open_dataset(workload("jsonl", dataset_file=path)).draw(1, "seed")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: open_dataset(workload("jsonl", dataset_file=Path("/nowhere/at/all"))),
            "cannot be read: No such",
        ),
        (lambda: open_dataset(workload("jsonl")), "needs a dataset_file"),
        (lambda: open_dataset(workload("randm")), "unknown dataset 'randm'"),
        (
            lambda: open_dataset(workload("random", inputs=Lengths.fixed(1))),
            "needs input_tokens and output_tokens",
        ),
    ],
)
def test_datasets_that_cannot_be_opened(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
