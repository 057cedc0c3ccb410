"""What a study does with what becomes of its trials."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.search.scripted import STUDY, Run, failed, measured, renamed, speed, summary, with_launches
from tuner.diagnosis.failure import Cause, Kind
from tuner.errors import BrokenEnvironment, InputError
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import Request
from tuner.measure.measurement import Measurement
from tuner.results.record import read_records
from tuner.search.reference import nearest_miss
from tuner.sglang.phases import Phase
from tuner.startup.ladder import PhaseSpan


def test_baseline_then_known_good_then_the_sampler(tmp_path: Path) -> None:
    run = Run(tmp_path, speed)
    end = run.search.run()
    roles = [record.role for record in end.records]
    assert roles == ["baseline", "known-good", "known-good", "search", "search", "search"]
    assert run.evaluator.requests[0].as_baseline
    assert end.reason == "the budget of 6 launches is used up"
    assert end.best is not None and end.best.score >= 109.5
    assert end.best.record.gain == pytest.approx(end.best.score / 82.0 - 1)


def test_every_trial_is_asked_every_parameter_so_that_the_joint_space_never_shrinks(tmp_path: Path) -> None:
    run = Run(tmp_path, speed, study=with_launches(15))
    run.search.run()
    finished = [trial for trial in run.trials if trial.state.is_finished()]
    assert {trial.state for trial in finished} == {TrialState.COMPLETE, TrialState.PRUNED}
    asked = {"bs", "backend", "speculative", "speculative_num_steps"}
    assert all(set(trial.params) == asked for trial in finished)
    assert set(optuna.search_space.intersection_search_space(finished)) == asked


def test_a_configuration_is_never_proposed_twice_and_rules_are_kept(tmp_path: Path) -> None:
    study = with_launches(100).replace("confirm: 0", "confirm: 0, stop_when_idle: false")
    run = Run(tmp_path, speed, study=study)
    end = run.search.run()
    searched = [
        configuration
        for configuration, role in zip(run.asked(), end.records, strict=True)
        if role.role != "baseline"
    ]
    assert len(set(searched)) == len(searched)
    assert not any(values["bs"] == 8 and values["backend"] == "triton" for values in searched)
    # 4 sizes x 2 backends less the forbidden pair, each off or with 1 to 3 steps: all found, then it ends.
    assert len(searched) == 7 * 4
    assert end.reason == "every configuration that the rules allow is known"


def test_a_crash_is_pruned_with_kind_phase_and_line_and_the_study_goes_on(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        lambda request: failed() if not request.as_baseline else measured(82.0),
        study=with_launches(3),
    )
    run.search.run()
    pruned = run.trials[1]
    assert pruned.state is TrialState.PRUNED
    assert pruned.user_attrs["failure_kind"] == "oom-graph-capture"
    assert pruned.user_attrs["failure_phase"] == "graph-capture"
    assert pruned.user_attrs["failure_summary"] == "it died of oom-graph-capture"
    assert len(run.trials) == 3


def test_a_transient_failure_is_launched_once_more_in_the_same_trial(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        if request.trial == 1 and request.attempt == 1:
            return failed(Kind.PORT_IN_USE, Cause.TRANSIENT, Phase.WARMUP)
        return measured(82.0)

    run = Run(tmp_path, script, study=with_launches(3))
    end = run.search.run()
    assert [(request.trial, request.attempt) for request in run.evaluator.requests] == [
        (0, 1),
        (1, 1),
        (1, 2),
    ]
    assert [attempt["kind"] for attempt in end.records[1].attempts] == ["port-in-use"]
    assert end.records[1].state == "complete"
    assert end.records[1].took_s == pytest.approx(500 + 660)
    assert run.evaluator.requests[1].folder != run.evaluator.requests[2].folder


def test_a_transient_failure_that_stays_is_pruned(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        lambda request: measured(1.0) if request.as_baseline else failed(Kind.NCCL, Cause.TRANSIENT),
        study=with_launches(3),
    )
    run.search.run()
    assert run.trials[1].state is TrialState.PRUNED
    assert run.trials[1].user_attrs["launches"] == 2


def test_a_cold_first_start_is_launched_again_and_not_scored(tmp_path: Path) -> None:
    """Kernels were compiled: the first seconds of such a server are slower than any later one's."""

    def script(request: Request) -> Outcome:
        if request.trial == 0 and request.attempt == 1:
            spans = (PhaseSpan(Phase.JIT_COMPILE, 30.0, 330.0), PhaseSpan(Phase.READY, 330.0, 331.0))
            return renamed(measured(60.0), phases=spans)
        return renamed(measured(82.0), phases=(PhaseSpan(Phase.JIT_COMPILE, 30.0, 330.0),))

    end = Run(tmp_path, script, study=with_launches(3)).search.run()
    assert [record.score for record in end.records] == pytest.approx([82.0, 82.0])
    assert end.records[0].attempts[0]["summary"].startswith("a cold start: 300 s of compiling")


def test_an_environment_failure_stops_the_study_and_a_later_run_resumes_it(tmp_path: Path) -> None:
    def broken(request: Request) -> Outcome:
        return failed(Kind.DRIVER_MISMATCH, Cause.ENVIRONMENT, Phase.IMPORT)

    with pytest.raises(BrokenEnvironment, match="it died of driver-mismatch"):
        Run(tmp_path, broken).search.run()
    run = Run(tmp_path, speed)
    end = run.search.run()
    assert run.evaluator.requests[0].as_baseline
    assert end.reference.startswith("the engine's defaults")
    assert len([record for record in end.records if record.state != "failed"]) == 6


def test_two_deaths_before_the_weights_load_stop_a_study_without_a_success(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        return failed(Kind.INVALID_ARGUMENTS, Cause.CONFIG, Phase.ARGUMENTS)

    run = Run(tmp_path, script)
    with pytest.raises(BrokenEnvironment, match="2 launches died before the weights were loaded"):
        run.search.run()
    assert len(run.evaluator.requests) == 2
    # Once the box is mended all of it is tried again, the baseline first.
    mended = Run(tmp_path, speed)
    end = mended.search.run()
    assert mended.evaluator.requests[0].as_baseline
    assert end.best is not None


def test_early_deaths_after_a_success_are_ordinary(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        if request.as_baseline:
            return measured(82.0)
        return failed(Kind.INVALID_ARGUMENTS, Cause.CONFIG, Phase.ARGUMENTS)

    end = Run(tmp_path, script).search.run()
    assert [record.state for record in end.records] == ["complete", *["pruned"] * 5]


def test_where_the_baseline_cannot_start_a_known_good_is_the_reference_and_is_named(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        return failed(Kind.OOM_DRAFT_MODEL) if request.as_baseline else speed(request)

    end = Run(tmp_path, script).search.run()
    expected = "known-good 'small' (trial 1: the baseline could not start, oom-draft-model)"
    assert end.reference == expected
    assert end.best is not None and end.best.record.reference == expected
    assert expected in (tmp_path / "s" / "best.yaml").read_text()


def test_interrupted_in_a_trial_the_configuration_is_queued_again(tmp_path: Path) -> None:
    def interrupt(request: Request) -> Outcome:
        if request.trial == 1:
            raise KeyboardInterrupt
        return speed(request)

    first = Run(tmp_path, interrupt)
    with pytest.raises(KeyboardInterrupt):
        first.search.run()
    assert [trial.state for trial in first.trials] == [
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.WAITING,
    ]
    interrupted = first.asked()[1]
    second = Run(tmp_path, speed)
    end = second.search.run()
    assert second.asked()[0] == interrupted
    assert end.records[2].role == "known-good"
    assert "it was interrupted" in end.records[2].source
    assert sum(record.state in ("complete", "pruned") for record in end.records) == 6


def test_a_trial_that_a_dead_process_left_running_is_queued_again(tmp_path: Path) -> None:
    killed = Run(tmp_path, speed, owner="dead")
    proposal = killed.store.next()
    assert proposal is not None
    run = Run(tmp_path, speed, alive=lambda owner: owner != "dead")
    assert run.store.abandoned_owners() == ["dead"]
    run.search.run()
    assert run.trials[0].state is TrialState.FAIL
    assert run.evaluator.requests[0].as_baseline


def test_a_trial_of_a_living_worker_is_left_alone(tmp_path: Path) -> None:
    other = Run(tmp_path, speed, owner="alive")
    taken = other.store.next()
    run = Run(tmp_path, speed, alive=lambda owner: owner == "alive")
    assert run.store.abandoned_owners() == []
    assert run.store.recover() == []
    own = run.store.next()
    assert taken is not None and own is not None
    assert own.configuration != taken.configuration


def test_resuming_with_another_workload_or_space_is_refused_and_says_why(tmp_path: Path) -> None:
    Run(tmp_path, speed).search.run()
    with pytest.raises(InputError, match=r"workload.input_tokens: was 8, is 16"):
        Run(tmp_path, speed, study=STUDY.replace("input_tokens: 8", "input_tokens: 16"))
    from tests.search.scripted import SPACE

    with pytest.raises(InputError, match="space"):
        Run(
            tmp_path,
            speed,
            space=SPACE.replace("[8, 64, 128, 512]", "[64, 128, 512]").replace(
                "forbid: bs == 8", "forbid: bs == 64"
            ),
        )
    with pytest.raises(InputError, match=r"server.model: was \"m\", is \"n\""):
        Run(tmp_path, speed, study=STUDY.replace("model: m", "model: n"))


def test_a_larger_budget_goes_on_where_the_study_stopped(tmp_path: Path) -> None:
    Run(tmp_path, speed).search.run()
    run = Run(tmp_path, speed, study=with_launches(8))
    end = run.search.run()
    assert len(run.evaluator.requests) == 2
    assert len(end.records) == 8


def test_an_error_of_the_evaluator_is_a_failed_launch_and_ends_nothing(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        if request.trial == 1:
            raise RuntimeError("a bug")
        return speed(request)

    end = Run(tmp_path, script).search.run()
    assert end.records[1].state == "pruned"
    assert end.records[1].failure is not None
    assert "RuntimeError: a bug" in end.records[1].failure["summary"]
    assert len(end.records) == 6


def test_a_configuration_that_offers_too_little_is_never_the_best(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        if request.as_baseline:
            return measured(82.0, kv_tokens=200_000)
        return measured(200.0, kv_tokens=10_000)

    run = Run(tmp_path, script, study=STUDY + "least: {min_kv_tokens: 100000}\n")
    end = run.search.run()
    assert end.best is not None and end.best.record.trial == 0
    assert end.records[1].infeasible == ("KV tokens 10000, at least 100000 asked",)
    assert run.trials[1].state is TrialState.COMPLETE
    assert run.trials[1].constraints == {"kv_tokens": pytest.approx(0.9)}
    assert run.trials[1].user_attrs["feasible"] is False
    assert run.store.study.best_trial.number == 0


def test_a_box_that_is_not_as_it_was_stops_the_study(tmp_path: Path) -> None:
    def script(request: Request) -> Outcome:
        return renamed(measured(82.0), clean=False, leftovers=("process 12 (python)",))

    run = Run(tmp_path, script)
    with pytest.raises(BrokenEnvironment, match=r"process 12 \(python\)"):
        run.search.run()
    assert run.trials[0].state is TrialState.COMPLETE


def test_the_record_is_on_disk_while_the_trial_goes(tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []

    def script(request: Request) -> Outcome:
        seen.append(json.loads((request.folder / "record.json").read_text()))
        return measured(82.0)

    run = Run(tmp_path, script, study=with_launches(1))
    run.search.run()
    assert seen[0]["state"] == "running"
    assert seen[0]["label"] == "a labelled box"
    assert read_records(run.definition.folder)[0].state == "complete"


def test_hours_and_time_of_day_end_a_study(tmp_path: Path) -> None:
    end = Run(
        tmp_path / "a", speed, study=STUDY.replace("launches: 6, confirm: 0", "hours: 0.5, confirm: 0")
    ).search.run()
    assert end.reason == "the budget of 0.5 hours is used up"
    assert len(end.records) == 3  # 11 minutes each; the third ends beyond the half hour
    run = Run(
        tmp_path / "b",
        speed,
        study=STUDY.replace("launches: 6, confirm: 0", 'confirm: 0, until: "2023-11-14T22:43"'),
    )
    end = run.search.run()
    assert "until 2023-11-14T22:43" in end.reason or "it is 2023" in end.reason


def test_where_nothing_meets_the_limits_the_nearest_is_named(tmp_path: Path) -> None:
    study = STUDY + "objective: {concurrency: 1, limits: {ttft_p99_ms: 25}}\n"

    def script(request: Request) -> Outcome:
        levels = (replace(summary(80.0), latency_ms={"ttft_p99_ms": 30.0 + request.trial}),)
        return renamed(measured(80.0), measurement=Measurement(levels))

    run = Run(tmp_path, script, study=study)
    end = run.search.run()
    assert end.best is None
    told = nearest_miss(end.records, run.definition.objective)
    assert told.startswith("no configuration meets") and "trial 0" in told and "20%" in told
    assert run.trials[0].constraints == {"ttft_p99_ms": pytest.approx(0.2)}
