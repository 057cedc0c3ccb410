"""A look at a configuration on a real SGLang server: its flags arrive, it serves, and it is recorded as a look."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real_server.conftest import RealSGLang
from tuner.cli.assembly import assemble
from tuner.cli.optimize import add_arguments
from tuner.evaluate.protocol import Listener, Looker
from tuner.results.record import LOOKED, read_record
from tuner.results.recorder import FolderRecorder
from tuner.search.roles import LOOK
from tuner.search.store import StudyStore
from tuner.search.trial import TrialRunner
from tuner.space.configuration import Configuration
from tuner.study.finding import load_study


@pytest.mark.real_server
@pytest.mark.timeout(600)
def test_a_look_is_served_without_weights_and_with_fewer_layers(
    real_sglang: RealSGLang, tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    own = '{"max_position_embeddings": 2048}'
    words = [
        "--folder", str(tmp_path / "study"), "--concurrency", "2", "--objective-concurrency", "2",
        "--warmup-s", "1", "--preflight", "false",
    ]  # fmt: skip
    flags = ["load_format=auto", f"json_model_override_args='{own}'", "max_total_tokens=16384"]
    options = [word if word != "load_format=dummy" else flags[0] for word in real_sglang.options]
    definition = load_study("cpu", parser.parse_args(["cpu", *options, "--flag", *flags, *words]))
    space = definition.space.without({})
    parameters = tuple(one for one in space.parameters if one.name != "max_total_tokens")
    definition = replace(definition, space=replace(space, parameters=parameters, known_good=()))
    parts = assemble(definition, None, owner="test-looks")
    assert isinstance(parts.evaluator, Looker)
    # Two layers are too few to leave any out: the tuner itself would look without weights alone.
    (whole,) = parts.evaluator.fidelities()
    assert whole.flags == {"load_format": "dummy"}
    override = '{"num_hidden_layers": 1}'
    look = replace(whole, flags={**whole.flags, "json_model_override_args": override})

    store = StudyStore(definition, parts.space, owner="test-looks", is_alive=lambda _: True)
    asked = Configuration({"max_running_requests": 8})
    proposal = replace(store.next_given(asked, "a test", role=LOOK), fidelity=look)
    runner = TrialRunner(definition, parts.evaluator, parts.clock)
    recorder = FolderRecorder(runner.new_record(proposal), tmp_path / "study" / "trial-0000")
    try:
        outcome = runner.run(proposal, recorder, Listener(), is_first=False)
    finally:
        parts.close()
    recorder.close(runner.concluded(recorder.record, outcome))

    record = read_record(recorder.folder)
    assert record.failure is None, record.failure
    assert (record.role, record.state, record.score) == (LOOK, LOOKED, None)
    assert record.looked[0] > 0
    assert record.output == {}  # nobody asks a server without weights what it says
    argv = record.launch["argv"]
    assert argv[argv.index("--load-format") + 1] == "dummy"
    merged = json.loads(argv[argv.index("--json-model-override-args") + 1])
    assert merged == {"max_position_embeddings": 2048, "num_hidden_layers": 1}
    log = (recorder.folder / "server.log").read_text()
    assert '"num_hidden_layers": 1' in log
    assert "The server is fired up and ready to roll!" in log
