from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import InputError, TunerError
from tuner.measure.crosscheck import BenchServing, samples_of
from tuner.measure.load import Schedule
from tuner.measure.prompts import Prompt
from tuner.measure.window import decode_window

PROMPTS = [Prompt(6, ids=(10 + number,) * 16) for number in range(2)]


def line(**changes: Any) -> str:
    """What `--output-details` appends to its file: two requests of six tokens, 10 ms a token."""
    run = {
        "backend": "sglang",
        "request_rate": float("inf"),
        "output_throughput": 1.0,
        "input_lens": [16, 16],
        "output_lens": [6, 6],
        "ttfts": [0.1, 0.12],
        "itls": [[0.01] * 5, [0.01] * 5],
        "generated_texts": ["", ""],
        "errors": ["", ""],
        **changes,
    }
    return json.dumps(run)


def test_the_window_is_recomputed_from_the_details_of_the_last_run() -> None:
    text = line(ttfts=[9.0, 9.0]) + "\n" + line() + "\n"
    samples = samples_of(text, 6)
    assert [sample.error for sample in samples] == ["", ""]
    assert samples[0].tokens == (1, 2, 3, 4, 5, 6)
    assert samples[1].arrivals_s == pytest.approx((0.12, 0.13, 0.14, 0.15, 0.16, 0.17))
    assert (samples[0].prompt_tokens, samples[0].asked_tokens) == (16, 6)
    window = decode_window(samples)
    assert window.start_s == pytest.approx(0.12)
    assert window.end_s == pytest.approx(0.15)
    assert window.tok_s == pytest.approx(200)


def test_a_first_chunk_of_several_tokens_is_seen() -> None:
    (sample, _) = samples_of(line(itls=[[0.01] * 2, [0.01] * 5]), 6)
    assert sample.tokens == (4, 5, 6)


def test_a_request_that_failed_is_an_error() -> None:
    samples = samples_of(line(errors=["", "Bad Request: no"], output_lens=[6, 0], itls=[[0.01] * 5, []]), 6)
    assert [sample.error for sample in samples] == ["", "Bad Request: no"]


@pytest.mark.parametrize("text", ["", "{", "[]", line(ttfts=[0.1]), json.dumps({"output_throughput": 3.0})])
def test_a_file_without_details_is_refused(text: str) -> None:
    with pytest.raises(TunerError, match="has no per-request details"):
        samples_of(text, 6)


# --- as the load of a round, with a stand-in for the program -----------------------------------------------


class Server:
    def __init__(self) -> None:
        self.url = "http://127.0.0.1:1"
        self.api_key: str | None = "the-key"
        self.dead = threading.Event()

    def alive(self) -> bool:
        return not self.dead.is_set()

    def flush_cache(self) -> None: ...

    def log_mark(self) -> int:
        return 0

    def log_readings_since(self, mark: int) -> Sequence[Any]:
        return []


def stand_in(folder: Path, body: str) -> str:
    """An interpreter that runs `body` in place of any module; `result` is the file to write."""
    script = folder / "stand-in"
    head = (
        "import json, os, sys, time\nwords = sys.argv[1:]\nresult = words[words.index('--output-file') + 1]\n"
    )
    script.write_text(f"#!{sys.executable}\n{head}{body}\n")
    script.chmod(0o755)
    return str(script)


def test_a_round_is_one_run_of_the_program_with_a_seed_of_its_own(tmp_path: Path) -> None:
    python = stand_in(
        tmp_path,
        f"open({str(tmp_path / 'words')!r}, 'a').write(json.dumps([words, os.environ['OPENAI_API_KEY'],"
        f" os.environ['EXTRA']]) + '\\n')\nopen(result, 'w').write({line()!r})",
    )
    bench = BenchServing(python, "some/model", {"EXTRA": "1"}, seed=40)
    for _ in range(2):
        samples, effort = bench.send(Server(), PROMPTS, Schedule(2), 20, 20)
        assert [sample.error for sample in samples] == ["", ""]
        assert effort is None
    runs = [json.loads(text) for text in (tmp_path / "words").read_text().splitlines()]
    words, key, extra = runs[0]
    options = dict(pairwise(words))
    assert words[:2] == ["-m", "sglang.bench_serving"]
    assert (key, extra) == ("the-key", "1")
    assert options["--random-input-len"] == "16" and options["--random-output-len"] == "6"
    assert options["--num-prompts"] == "2" and options["--model"] == "some/model"
    assert "the-key" not in words
    assert [dict(pairwise(run[0]))["--seed"] for run in runs] == ["41", "42"]


def test_a_run_that_fails_tells_its_last_words(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "print('Warmup failed'); sys.exit(3)")
    (sample, _), _ = BenchServing(python, "m").send(Server(), PROMPTS, Schedule(2), 20, 20)
    assert sample.error == "sglang.bench_serving ended with 3: Warmup failed"


def test_a_run_that_hangs_is_ended_with_all_of_its_processes(tmp_path: Path) -> None:
    child = tmp_path / "child"
    python = stand_in(
        tmp_path,
        f"pid = os.fork()\nif pid:\n    open({str(child)!r}, 'w').write(str(pid))\ntime.sleep(60)",
    )
    (sample, _), _ = BenchServing(python, "m").send(Server(), PROMPTS, Schedule(2), 0.5, 20)
    assert sample.error == "not finished within the limit of 0.5 s"
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(int(child.read_text()), 0)
            threading.Event().wait(0.1)


def test_a_dead_server_ends_the_run(tmp_path: Path) -> None:
    server = Server()
    server.dead.set()
    (sample, _), _ = BenchServing(stand_in(tmp_path, "time.sleep(60)"), "m").send(
        server, PROMPTS, Schedule(2), 20, 20
    )
    assert sample.error == "the server process ended during the request"


def test_missing_packages_and_interpreters_are_said(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "import surely_not_there")
    with pytest.raises(TunerError, match="No module named 'surely_not_there'") as missing:
        BenchServing(python, "m").send(Server(), PROMPTS, Schedule(2), 20, 20)
    assert missing.value.hint.endswith("pip install datasets tabulate")
    with pytest.raises(TunerError, match="cannot be started: No such file"):
        BenchServing(str(tmp_path / "nowhere"), "m").send(Server(), PROMPTS, Schedule(2), 20, 20)


@pytest.mark.parametrize(
    ("prompts", "schedule"),
    [
        ([Prompt(6, text="hello")], Schedule(1)),
        ([Prompt(6, ids=(1,)), Prompt(7, ids=(2,))], Schedule(2)),
        (PROMPTS, Schedule(1)),
        (PROMPTS, Schedule(2, (0.0, 1.0))),
    ],
)
def test_only_even_batches_of_random_prompts(prompts: list[Prompt], schedule: Schedule) -> None:
    with pytest.raises(InputError, match="batches of random prompts of one length only"):
        BenchServing("python", "m").send(Server(), prompts, schedule, 20, 20)
