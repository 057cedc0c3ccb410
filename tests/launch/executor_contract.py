"""What every executor has to keep, whatever it runs servers on.

Derive a test class, give it the fixture `executor`, and pytest runs all of it.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.servers import plan_of, wait_for
from tuner.errors import InputError
from tuner.launch.ports import is_free
from tuner.launch.protocol import Executor, ServerHandle
from tuner.sglang.plan import LaunchPlan


class ExecutorContract:
    """The tests. `executor` has to stop or sweep what a failing test leaves."""

    @pytest.fixture
    def executor(self) -> Executor:
        """An executor whose servers may run Python programs of this machine."""
        raise NotImplementedError

    def start(self, executor: Executor, plan: LaunchPlan, folder: Path) -> ServerHandle:
        """Lease a place and launch there."""
        lease = executor.lease(())
        return executor.launch(plan.at(port=lease.port, gpus=lease.gpus), folder)

    def start_ready(self, executor: Executor, script: str, folder: Path) -> ServerHandle:
        """Launch and wait until it says that it is ready."""
        handle = self.start(executor, plan_of(script), folder)
        wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
        return handle

    def test_every_lease_has_a_free_port_of_its_own(self, executor: Executor) -> None:
        ports = [executor.lease(()).port for _ in range(20)]
        assert len(set(ports)) == 20
        assert all(is_free(port) for port in ports)

    def test_a_server_serves_until_it_is_stopped(self, executor: Executor, tmp_path: Path) -> None:
        handle = self.start_ready(executor, servers.POLITE, tmp_path)
        with urllib.request.urlopen(handle.url, timeout=10) as answer:
            assert answer.read() == b"hello"
        assert handle.poll() is None
        assert handle.owns_port()

        report = handle.stop()

        assert report.exit_code == 0
        assert report.clean
        assert report.leftovers == ()
        assert report.signals == ("SIGTERM",)
        assert handle.poll() == 0
        assert is_free(int(handle.url.rpartition(":")[2]))

    def test_stopping_again_says_the_same(self, executor: Executor, tmp_path: Path) -> None:
        handle = self.start_ready(executor, servers.POLITE, tmp_path)
        assert handle.stop() == handle.stop()

    def test_a_server_that_ignores_sigterm_is_killed(self, executor: Executor, tmp_path: Path) -> None:
        report = self.start_ready(executor, servers.STUBBORN, tmp_path).stop()
        assert report.clean
        assert report.exit_code == -9
        assert report.signals == ("SIGTERM", "SIGKILL")

    def test_only_the_first_process_is_asked_to_end(self, executor: Executor, tmp_path: Path) -> None:
        # To a worker of SGLang a SIGTERM is a crash, and the log would tell of one.
        handle = self.start_ready(executor, servers.WORKER_TELLS_OF_SIGTERM, tmp_path)
        report = handle.stop()
        assert report.clean
        assert report.exit_code == 0
        assert handle.read_log(0) == b"ready\ndraining\n"

    @pytest.mark.parametrize(("script", "code"), [(servers.CRASHES, -9), (servers.EXITS_3, 3)])
    def test_a_server_that_ends_by_itself(
        self, executor: Executor, tmp_path: Path, script: str, code: int
    ) -> None:
        handle = self.start(executor, plan_of(script), tmp_path)
        wait_for(lambda: handle.poll() is not None, "the server ends")
        assert handle.poll() == code
        report = handle.stop()
        assert report.clean
        assert report.exit_code == code
        assert report.signals == ()
        assert handle.poll() == code

    def test_the_log_is_read_on_from_an_offset(self, executor: Executor, tmp_path: Path) -> None:
        handle = self.start_ready(executor, servers.POLITE, tmp_path)
        first = handle.read_log(0)
        assert first == b"ready\n"
        assert handle.read_log(len(first)) == b""
        handle.stop()
        assert handle.read_log(len(first)) == b"draining\n"
        assert handle.log_path == tmp_path / "server.log"

    def test_a_program_that_is_not_there_is_the_users_mistake(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        plan = LaunchPlan(command=("/no/such/python", "-m", "sglang.launch_server"), flags=())
        with pytest.raises(InputError, match="/no/such/python"):
            self.start(executor, plan, tmp_path)

    def test_variables_of_the_plan_reach_the_server_and_those_of_the_shell_do_not(
        self, executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
        plan = plan_of(servers.PRINTS_ENVIRONMENT, variables=(("NCCL_PROTO", "LL"),))
        handle = self.start(executor, plan, tmp_path)
        wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
        seen = json.loads(handle.read_log(0).splitlines()[0])
        handle.stop()
        assert seen["NCCL_PROTO"] == "LL"
        assert "NCCL_P2P_DISABLE" not in seen

    def test_a_port_that_somebody_else_took_is_not_owned(self, executor: Executor, tmp_path: Path) -> None:
        lease = executor.lease(())
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind((lease.host, lease.port))
            stranger.listen()
            plan = plan_of(servers.WITHOUT_PORT).at(port=lease.port)
            handle = executor.launch(plan, tmp_path)
            wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
            assert not handle.owns_port()
        assert handle.stop().clean

    def test_work_shows_as_activity(self, executor: Executor, tmp_path: Path) -> None:
        handle = self.start_ready(executor, servers.BUSY, tmp_path)
        before = handle.activity()
        wait_for(lambda: handle.activity().cpu_s > before.cpu_s + 0.1, "CPU time grows")
        handle.stop()
        assert handle.activity().cpu_s >= before.cpu_s

    def test_a_server_is_found_again_by_what_its_handle_tells(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        handle = self.start_ready(executor, servers.POLITE, tmp_path)
        info = json.loads(json.dumps(handle.info()))

        again = executor.attach(info)

        assert again is not None
        assert again.url == handle.url
        assert again.poll() is None
        assert again.owns_port()
        assert again.read_log(0) == b"ready\n"
        assert again.stop().clean
        assert again.poll() is not None
        wait_for(lambda: handle.poll() is not None, "the first handle sees the end too")
        assert handle.stop().clean
        assert executor.attach(info) is None

    def test_no_secret_stays_in_a_file(self, executor: Executor, tmp_path: Path) -> None:
        plan = LaunchPlan(
            command=plan_of(servers.PRINTS_ARGUMENTS).command,
            flags=(("--api-key", ("sk-very-secret",)), ("--served-model-name", ("shown",))),
            variables=(("HF_TOKEN", "hf-very-secret"),),
        )
        handle = self.start(executor, plan, tmp_path)
        wait_for(lambda: b"ready" in handle.read_log(0), "the server says it is ready")
        log = handle.read_log(0)
        told = json.dumps(handle.info())
        handle.stop()
        assert b"'--api-key', '**************', '--served-model-name', 'shown'" in log
        assert b"very-secret" not in log
        assert "very-secret" not in told
        assert "shown" in told
        assert not any(b"very-secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
