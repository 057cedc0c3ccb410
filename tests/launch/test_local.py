"""LocalExecutor against real processes: nothing survives a stop, and nothing foreign is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.launch import servers
from tests.launch.executor_contract import ExecutorContract
from tests.launch.servers import Talk, plan_of, wait_for
from tuner.clock import ManualClock, SystemClock
from tuner.errors import BrokenEnvironment, InputError, TunerError
from tuner.launch import local
from tuner.launch.environment import MARKER
from tuner.launch.gpus import FakeProbe, GpuProbe, NullProbe, Occupant
from tuner.launch.handle import LocalHandle
from tuner.launch.local import LocalExecutor
from tuner.launch.main_process import OwnMain
from tuner.launch.ports import is_free
from tuner.launch.process_tree import find, is_alive
from tuner.redact import REDACTED
from tuner.sglang.plan import LaunchPlan


class TestLocalExecutorKeepsTheContract(ExecutorContract):
    @pytest.fixture
    def executor(self, scope: str) -> LocalExecutor:
        return executor_of(scope)


def executor_of(scope: str, probe: GpuProbe | None = None, *, clean_limit_s: float = 5.0) -> LocalExecutor:
    return LocalExecutor(
        probe or NullProbe(),
        SystemClock(),
        marker_scope=scope,
        stop_grace_s=1.0,
        kill_grace_s=5.0,
        clean_limit_s=clean_limit_s,
    )


def launch(executor: LocalExecutor, script: str, folder: Path, *, gpus: tuple[int, ...] = ()) -> LocalHandle:
    lease = executor.lease(gpus)
    return executor.launch(plan_of(script).at(port=lease.port, gpus=lease.gpus), folder)


def told_pid(handle: LocalHandle, word: str) -> int:
    wait_for(lambda: word in Talk.of(handle.read_log(0)).words, f"the log tells the pid of '{word}'")
    return Talk.of(handle.read_log(0)).words[word][0]


def runs(pid: int) -> bool:
    process = find(pid)
    return process is not None and is_alive(process)


@pytest.fixture
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, whose marker is of another study with a similar name."""
    environment = {**os.environ, MARKER: "another study:0123456789abcdef"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment) as process:
        yield process
        process.kill()


def test_a_grandchild_that_left_the_session_is_swept(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = launch(executor, servers.HIDES_GRANDCHILD, tmp_path)
    hidden = told_pid(handle, "hidden")
    wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
    report = handle.stop()
    assert report.clean
    assert report.exit_code == 0
    assert report.swept_pids == (hidden,)
    assert not runs(hidden)


def test_an_orphan_that_holds_the_port_is_swept(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = launch(executor, servers.LEAVES_PORT_TO_ORPHAN, tmp_path)
    hidden = told_pid(handle, "hidden")
    wait_for(lambda: handle.poll() == -9, "the server crashes")
    port = handle.plan.port
    assert port is not None
    assert not is_free(port)
    assert handle.owns_port()
    report = handle.stop()
    assert report.clean
    assert report.swept_pids == (hidden,)
    assert is_free(port)


def test_children_that_outlive_a_crash_are_ended_with_the_group(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = launch(executor, servers.CHILDREN_SURVIVE, tmp_path)
    wait_for(lambda: handle.poll() == -9, "the server crashes")
    children = Talk.of(handle.read_log(0)).words["child"]
    assert len(children) == 2
    report = handle.stop()
    assert report.clean
    assert report.exit_code == -9
    assert report.signals == ("SIGKILL",)
    assert report.swept_pids == ()
    assert not any(map(runs, children))


def test_a_descendant_without_the_marker_is_ended_if_it_was_seen(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    handle = launch(executor, servers.UNMARKED_GRANDCHILD, tmp_path)
    hidden = told_pid(handle, "hidden")
    handle.activity()
    os.kill(handle.info()["pid"], signal.SIGKILL)
    wait_for(lambda: handle.poll() == -9, "the server dies")
    assert runs(hidden)
    report = handle.stop()
    assert report.clean
    assert not runs(hidden)


def test_a_process_whose_first_thread_ended_is_no_dead_one(executor: LocalExecutor, tmp_path: Path) -> None:
    handle = launch(executor, servers.LEADER_THREAD_ENDS, tmp_path)
    process = psutil.Process(handle.info()["pid"])
    wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE, "the first thread ends")
    wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
    assert handle.poll() is None
    assert is_alive(process)
    report = handle.stop()
    assert report.clean
    assert report.exit_code == -9


def test_ctrl_c_while_stopping_leaves_the_rest_to_a_second_call(
    executor: LocalExecutor, scope: str, tmp_path: Path
) -> None:
    class InterruptedClock(SystemClock):
        interrupted = False

        def sleep(self, seconds: float) -> None:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().sleep(seconds)

    clock = InterruptedClock()
    executor = LocalExecutor(NullProbe(), clock, marker_scope=scope, stop_grace_s=0.5)
    handle = launch(executor, servers.STUBBORN, tmp_path)
    wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
    with pytest.raises(KeyboardInterrupt):
        handle.stop()
    assert handle.poll() is None
    report = handle.stop()
    assert report.clean
    assert report.signals == ("SIGTERM", "SIGKILL")
    assert report.exit_code == -9


def test_ctrl_c_while_launching_leaves_no_server(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = []

    def interrupted(child: subprocess.Popen[bytes]) -> OwnMain:
        children.append(child)
        wait_for((tmp_path / "server.log").read_bytes, "the server speaks")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "OwnMain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(executor, servers.STUBBORN, tmp_path)
    assert children[0].wait(timeout=10) == -signal.SIGKILL


def test_a_leftover_is_named_and_a_later_stop_tries_again(scope: str, tmp_path: Path) -> None:
    probe = FakeProbe({0: [0.0, 0.0, 40_000.0]})
    handle = launch(executor_of(scope, probe, clean_limit_s=0.2), servers.POLITE, tmp_path, gpus=(0,))
    wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
    report = handle.stop()
    assert not report.clean
    assert report.leftovers == ("GPU 0 has 40000 MiB more in use than before the launch",)
    probe.set_memory(0, 300.0)
    assert handle.stop().clean


def test_stopping_waits_until_the_driver_gave_the_memory_back(scope: str, tmp_path: Path) -> None:
    probe = FakeProbe({0: 0.0, 1: 4.0})
    handle = launch(executor_of(scope, probe), servers.POLITE, tmp_path, gpus=(1,))
    probe.set_memory(1, 90_000.0, 60_000.0, 20_000.0, 400.0)
    report = handle.stop()
    assert report.clean
    assert probe.memory_used_mib([1]) == {1: 400.0}


def test_a_port_that_somebody_else_took_is_not_a_leftover(
    executor: LocalExecutor, scope: str, tmp_path: Path
) -> None:
    """SGLang loses such a race after the load; there is nothing of ours to wait for."""
    other = launch(executor, servers.POLITE, tmp_path / "other")
    wait_for(lambda: b"ready" in other.read_log(0), "the server says it is ready")
    port = other.plan.port
    assert port is not None
    executor = executor_of(scope, clean_limit_s=0.1)
    handle = executor.launch(plan_of(servers.WITHOUT_PORT).at(port=port), tmp_path)
    report = handle.stop()
    assert other.poll() is None
    other.stop()
    assert report.clean, report.leftovers


def test_a_stranger_is_never_touched(
    executor: LocalExecutor, bystander: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = launch(executor, servers.CHILDREN_SURVIVE, tmp_path)
    wait_for(lambda: handle.poll() is not None, "the server crashes")
    assert handle.stop().clean
    assert executor.sweep_leftovers() == []
    assert executor.sweep_leftovers("another") == []
    assert bystander.poll() is None


def test_a_record_whose_pid_went_to_a_stranger_finds_nothing(
    executor: LocalExecutor, bystander: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = launch(executor, servers.POLITE, tmp_path)
    info = handle.info()
    handle.stop()
    started_s = psutil.Process(bystander.pid).create_time()
    assert executor.attach({**info, "pid": bystander.pid, "started_s": started_s}) is None
    assert bystander.poll() is None


_TUNER_THAT_DIES = """
import json, os, sys
from pathlib import Path
from tests.launch.servers import plan_of, wait_for
from tuner.clock import SystemClock
from tuner.launch.gpus import NullProbe
from tuner.launch.local import LocalExecutor
scope, folder, script = sys.argv[1:]
executor = LocalExecutor(NullProbe(), SystemClock(), marker_scope=scope)
handle = executor.launch(plan_of(script).at(port=executor.lease(()).port), Path(folder))
wait_for(lambda: handle.read_log(0), "the server speaks")
print(json.dumps(handle.info()), flush=True)
os._exit(1)
"""


def server_of_a_dead_tuner(scope: str, folder: Path, script: str) -> dict[str, object]:
    command = [sys.executable, "-c", _TUNER_THAT_DIES, scope, str(folder), script]
    tuner = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=60)
    info: dict[str, object] = json.loads(tuner.stdout)
    return info


def test_a_server_of_a_tuner_that_died_is_found_and_stopped(scope: str, tmp_path: Path) -> None:
    info = server_of_a_dead_tuner(scope, tmp_path, servers.POLITE)
    handle = executor_of(scope).attach(info)
    assert handle is not None
    assert handle.poll() is None
    assert handle.owns_port()
    report = handle.stop()
    assert report.clean
    assert report.signals == ("SIGTERM",)
    assert report.exit_code is None
    assert handle.poll() == 255
    assert handle.read_log(0) == b"ready\ndraining\n"


def test_secrets_are_taken_out_of_the_log_of_a_server_that_was_found_again(
    scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-very-secret")
    info = server_of_a_dead_tuner(scope, tmp_path, servers.PRINTS_ARGUMENTS + "#")
    handle = executor_of(scope).attach(info)
    assert handle is not None
    handle.stop()
    assert b"very-secret" not in (tmp_path / "server.log").read_bytes()


def test_what_a_dead_server_of_a_dead_tuner_left_is_found_and_stopped(scope: str, tmp_path: Path) -> None:
    info = server_of_a_dead_tuner(scope, tmp_path, servers.CHILDREN_SURVIVE)
    handle = executor_of(scope).attach(info)
    assert handle is not None
    wait_for(lambda: handle.poll() == 255, "the first process is gone")
    report = handle.stop()
    assert report.clean
    assert len(report.swept_pids) == 2


def test_the_leftovers_of_an_earlier_run_are_swept_and_running_servers_are_not(
    executor: LocalExecutor, bystander: subprocess.Popen[bytes], scope: str, tmp_path: Path
) -> None:
    info = server_of_a_dead_tuner(scope, tmp_path / "earlier", servers.STUBBORN)
    handle = launch(executor, servers.POLITE, tmp_path / "now")
    assert executor.sweep_leftovers() == [info["pid"]]
    assert executor.attach(info) is None
    assert handle.poll() is None
    assert bystander.poll() is None
    assert handle.stop().clean


def test_after_a_sweep_the_lease_waits_for_the_memory(scope: str, tmp_path: Path) -> None:
    server_of_a_dead_tuner(scope, tmp_path, servers.STUBBORN)
    executor = executor_of(scope, FakeProbe({0: [80_000.0, 30_000.0, 10.0]}))
    assert len(executor.sweep_leftovers()) == 1
    assert executor.lease((0,)).gpus == (0,)


def test_occupied_gpus_are_refused_by_name(scope: str) -> None:
    probe = FakeProbe({0: 10.0, 1: 10.0, 2: 50_000.0}, occupants=[Occupant(1, 4711, 2_000.0, "python3")])
    executor = executor_of(scope, probe)
    assert executor.lease((0,)).gpus == (0,)
    with pytest.raises(BrokenEnvironment, match=r"GPU 1 is in use: process 4711 \(python3\) holds 2000 MiB"):
        executor.lease((0, 1))
    with pytest.raises(BrokenEnvironment, match="GPU 2 has 50000 MiB in use") as refused:
        executor.lease((2,))
    assert "nvidia-smi" in refused.value.hint


@pytest.mark.parametrize("gpus", [(3,), (0, 8), (-1,), (0, 0)])
def test_gpus_that_are_not_there_are_the_users_mistake(scope: str, gpus: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        executor_of(scope, FakeProbe({0: 0.0, 1: 0.0, 2: 0.0})).lease(gpus)


def test_gpus_cannot_be_refused_where_nothing_can_be_seen(executor: LocalExecutor) -> None:
    assert executor.lease((0, 1)).gpus == (0, 1)


def test_the_environment_is_recorded_without_secrets(
    scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-very-secret")
    executor = executor_of(scope, FakeProbe({0: 0.0, 1: 0.0}))
    lease = executor.lease((1, 0))
    plan = plan_of(servers.PRINTS_ENVIRONMENT, variables=(("NCCL_PROTO", "LL"),))
    handle = executor.launch(plan.at(port=lease.port, gpus=lease.gpus), tmp_path)
    wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
    seen = json.loads(handle.read_log(0).splitlines()[0])
    handle.stop()
    kept = json.loads((tmp_path / "environment.json").read_text("utf-8"))
    assert seen["HF_TOKEN"] == "*" * len("hf-very-secret")  # it had it, and the log does not keep it
    assert kept["HF_TOKEN"] == REDACTED
    assert seen["CUDA_VISIBLE_DEVICES"] == kept["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert kept["NCCL_PROTO"] == "LL"
    assert kept[MARKER].startswith(f"{scope}:")


def test_a_second_launch_in_a_folder_keeps_the_first_log(executor: LocalExecutor, tmp_path: Path) -> None:
    for script in (servers.EXITS_3, servers.CRASHES):
        handle = launch(executor, script, tmp_path)
        wait_for(lambda: handle.poll() is not None, "the server ends")
        handle.stop()
    assert (tmp_path / "server.log").read_text("utf-8") == "about to die\n"
    assert (tmp_path / "server.1.log").read_text("utf-8") == "bad argument\n"


def test_activity_tells_memory_of_the_leased_gpus(scope: str, tmp_path: Path) -> None:
    probe = FakeProbe({0: 1.0, 1: 2.0, 2: 3.0})
    handle = launch(executor_of(scope, probe), servers.POLITE, tmp_path, gpus=(0, 2))
    probe.set_memory(0, 900.0)
    assert handle.activity().gpu_memory_mib == 903.0
    probe.set_memory(0, 1.0)
    handle.stop()


def test_a_log_that_cannot_be_written_breaks_the_environment(executor: LocalExecutor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(BrokenEnvironment, match="cannot be written"):
        launch(executor, servers.POLITE, tmp_path / "file" / "trial")


def test_a_file_that_is_no_program_is_the_users_mistake(executor: LocalExecutor, tmp_path: Path) -> None:
    for mode in (0o644, 0o755):
        program = tmp_path / f"program-{mode}"
        program.write_bytes(b"\x00\x01 neither a script nor a binary")
        program.chmod(mode)
        with pytest.raises(InputError):
            executor.launch(LaunchPlan(command=(str(program),), flags=(), port=1), tmp_path / str(mode))


@pytest.mark.parametrize("info", [{}, {"executor": "ssh"}, {"executor": "local", "plan": 3}])
def test_a_record_that_is_none_is_said_so(executor: LocalExecutor, info: dict[str, object]) -> None:
    with pytest.raises(TunerError):
        executor.attach(info)


def test_waits_go_by_the_clock_that_was_handed_in(scope: str, tmp_path: Path) -> None:
    clock = ManualClock()
    probe = FakeProbe({0: [0.0, 0.0, 9_000.0]})
    executor = LocalExecutor(probe, clock, marker_scope=scope, clean_limit_s=5.0, kill_grace_s=3600.0)
    handle = launch(executor, servers.CRASHES, tmp_path, gpus=(0,))
    wait_for(lambda: handle.poll() is not None, "the server crashes")
    report = handle.stop()
    assert not report.clean
    assert 5.0 <= report.took_s < 6.0
