"""How a real SGLang dies, and what the running tuner says of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.real_server.conftest import RealSGLang
from tuner.clock import SystemClock
from tuner.diagnosis.failure import Cause, Failure, Kind
from tuner.document import parse_document
from tuner.evaluate.fitting import fit_to_installation
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import LaunchShown, Listener, PhaseNews, Request
from tuner.evaluate.server import ServerEvaluator
from tuner.launch.environment import clean_environment
from tuner.launch.gpus import NullProbe
from tuner.launch.local import LocalExecutor
from tuner.launch.protocol import Lease
from tuner.sglang.installation import ask_installation
from tuner.sglang.phases import Phase
from tuner.space.configuration import Configuration
from tuner.space.reading import parse_space
from tuner.study.definition import parse_definition

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(300)]

SPACE = "parameters:\n  schedule_policy: {type: choice, choices: [fcfs, lpm]}\n"


class BusyPort(LocalExecutor):
    """An executor whose port was taken between the lease and the launch."""

    def lease(self, gpus: tuple[int, ...]) -> Lease:
        lease = super().lease(gpus)
        self.holder = socket.socket()
        self.holder.bind((lease.host, lease.port))
        self.holder.listen()
        return lease

    def close(self) -> None:
        self.holder.close()


@dataclass
class Harm(Listener):
    """Does something to the server's scheduler, or to its first process, in a phase."""

    phase: Phase
    number: signal.Signals
    victim: str
    log: Path
    done: bool = False

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        self.log = request.folder / "server.log"

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        if news.phase is self.phase and not self.done:
            self.done = True
            for process in writers_of(self.log):
                if self.victim in process.name() or (
                    self.victim == "first" and process.ppid() == os.getpid()
                ):
                    process.send_signal(self.number)


def writers_of(log: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if Path(f"/proc/{process.pid}/fd/1").readlink() == log.resolve():
                found.append(process)
        except OSError:
            continue
    return found


def run(
    sglang: RealSGLang,
    folder: Path,
    *,
    command: str = "",
    model: str = "",
    flags: str = ", max_total_tokens: 65536",
    listener: Listener | None = None,
    executor_type: Callable[..., LocalExecutor] = LocalExecutor,
    limits: str = "{}",
) -> Outcome:
    """One launch as the study makes it: planned, followed, diagnosed, ended."""
    study = f"""
search_space: given
server:
  command: {command or sglang.command}
  model: {model or sglang.model}
  flags: {{device: cpu, attention_backend: torch_native, load_format: dummy{flags}}}
  environment: {{{", ".join(f"{name}: {value!r}" for name, value in sglang.environment.items())}}}
  stop_grace_s: 5
  stall_limits_s: {limits}
workload: {{input_tokens: 16, output_tokens: 400, concurrency: 4, silence_limit_s: 12}}
guard: {{enabled: false}}
"""
    space = parse_space(parse_document(SPACE, "space.yaml"), "given")
    definition = parse_definition(
        parse_document(study, "study.yaml"), name="deaths", folder=folder, space=space
    )
    base = clean_environment(os.environ)
    environment = {**base, **definition.server.environment}
    installation = ask_installation(definition.server.argv, environment, cache_dir=folder / "cache")
    executor = executor_type(
        NullProbe(),
        SystemClock(),
        marker_scope=f"deaths-{os.getpid()}",
        stop_grace_s=5,
        base_environment=base,
    )
    evaluator = ServerEvaluator(fit_to_installation(definition, installation), executor, SystemClock())
    trial = folder / "trial-0000"
    trial.mkdir()
    outcome = evaluator.evaluate(Request(0, Configuration(), trial, "nonce"), listener or Listener())
    assert outcome.clean, outcome.leftovers
    assert not writers_of(trial / "server.log")
    return outcome


def failure_of(outcome: Outcome) -> Failure:
    assert outcome.failure is not None
    return outcome.failure


def test_a_busy_port(real_sglang: RealSGLang, tmp_path: Path) -> None:
    executors: list[BusyPort] = []

    def busy(*arguments: object, **named: object) -> BusyPort:
        executors.append(BusyPort(*arguments, **named))  # type: ignore[arg-type]
        return executors[0]

    try:
        failure = failure_of(run(real_sglang, tmp_path, executor_type=busy))
    finally:
        executors[0].close()
    assert (failure.kind, failure.cause) == (Kind.PORT_IN_USE, Cause.TRANSIENT)


def test_a_missing_model(real_sglang: RealSGLang, tmp_path: Path) -> None:
    failure = failure_of(run(real_sglang, tmp_path, model="/nowhere/model"))
    assert (failure.kind, failure.cause) == (Kind.MODEL_ACCESS, Cause.ENVIRONMENT)


def test_an_unknown_flag(real_sglang: RealSGLang, tmp_path: Path) -> None:
    """Hidden in the command, where nobody but SGLang looks."""
    failure = failure_of(run(real_sglang, tmp_path, command=f"{real_sglang.command} --no-such-flag 1"))
    assert (failure.kind, failure.phase) == (Kind.INVALID_ARGUMENTS, Phase.ARGUMENTS)
    assert "--no-such-flag" in failure.telling_line


def test_an_assertion_of_the_arguments(real_sglang: RealSGLang, tmp_path: Path) -> None:
    failure = failure_of(
        run(
            real_sglang, tmp_path, flags=", page_size: 64, chunked_prefill_size: 100, max_total_tokens: 65536"
        )
    )
    assert (failure.kind, failure.cause) == (Kind.ASSERTION, Cause.CONFIG)


def test_heads_that_three_ranks_cannot_share(real_sglang: RealSGLang, tmp_path: Path) -> None:
    assert (
        failure_of(run(real_sglang, tmp_path, flags=", tp_size: 3, max_total_tokens: 65536")).kind
        is Kind.INDIVISIBLE
    )


def test_a_memory_fraction_without_room(real_sglang: RealSGLang, tmp_path: Path) -> None:
    failure = failure_of(run(real_sglang, tmp_path, flags=", mem_fraction_static: 0.0002"))
    assert (failure.kind, failure.cause) == (Kind.MEM_FRACTION_TOO_LOW, Cause.CONFIG)
    hint = next(hint for hint in failure.hints if hint.name == "mem_fraction_static")
    assert hint.direction == "increase"
    assert str(hint.value) in failure.telling_line
    assert isinstance(hint.value, float) and 0.0002 < hint.value < 0.02


def test_an_address_space_that_is_too_small(real_sglang: RealSGLang, tmp_path: Path) -> None:
    command = f"prlimit --as={12 * 2**30} {real_sglang.command}"
    failure = failure_of(run(real_sglang, tmp_path, command=command, flags=", max_total_tokens: 33000000"))
    assert failure.kind in (Kind.OOM_KV_CACHE, Kind.HOST_OOM)


def test_a_killed_scheduler(real_sglang: RealSGLang, tmp_path: Path) -> None:
    harm = Harm(Phase.SERVING, signal.SIGKILL, "sglang::sched", tmp_path)
    failure = failure_of(run(real_sglang, tmp_path, listener=harm))
    assert harm.done
    assert failure.kind in (Kind.SCHEDULER_DIED, Kind.KILLED)


def test_a_killed_parent(real_sglang: RealSGLang, tmp_path: Path) -> None:
    harm = Harm(Phase.SERVING, signal.SIGKILL, "first", tmp_path)
    failure = failure_of(run(real_sglang, tmp_path, listener=harm))
    assert harm.done
    assert failure.kind is Kind.KILLED


def test_a_stopped_scheduler_while_it_starts(real_sglang: RealSGLang, tmp_path: Path) -> None:
    """Nothing is printed, nothing moves: only the silence tells."""
    harm = Harm(Phase.IMPORT, signal.SIGSTOP, "python", tmp_path)
    failure = failure_of(run(real_sglang, tmp_path, listener=harm, limits="{import: 12, arguments: 12}"))
    assert harm.done
    assert failure.kind is Kind.HANG
    assert "sign of life" in failure.summary
    assert (
        "T" in (tmp_path / "trial-0000" / "processes.txt").read_text()
        or "stopped" in (tmp_path / "trial-0000" / "processes.txt").read_text()
    )


def test_a_stopped_scheduler_while_it_serves(real_sglang: RealSGLang, tmp_path: Path) -> None:
    harm = Harm(Phase.SERVING, signal.SIGSTOP, "sglang::sched", tmp_path)
    failure = failure_of(run(real_sglang, tmp_path, listener=harm))
    assert harm.done
    assert failure.kind is Kind.HANG
    assert (tmp_path / "trial-0000" / "processes.txt").is_file()
