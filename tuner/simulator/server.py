"""One simulated server from its first line to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import NoReturn

from tuner.clock import SystemClock
from tuner.simulator.box import Box
from tuner.simulator.deaths import collective_timeout, lost_peer
from tuner.simulator.engine import Engine, SchedulerDeathError
from tuner.simulator.journal import VARIABLE, Journal
from tuner.simulator.log import Log
from tuner.simulator.memory import plan_memory
from tuner.simulator.noise import LaunchNoise
from tuner.simulator.physics import StepModel, links_of
from tuner.simulator.processes import Children, die
from tuner.simulator.request import Request
from tuner.simulator.routes import Routes
from tuner.simulator.script import Script
from tuner.simulator.settings import Settings
from tuner.simulator.startup import shown_arguments, startup_script
from tuner.simulator.texts import Corpus
from tuner.simulator.wire import Call, Connection

SEED_VARIABLE = "TUNER_SIM_SEED"
_SIGTERM_POLL_S = 5.0
_WARMUP_PROMPT = 20
_WARMUP_TOKENS = 8


def serve(box: Box, settings: Settings, environment: dict[str, str]) -> int:
    """Start, serve and end; returns the exit code, unless the process kills itself as SGLang does."""
    log = Log(settings.tp)
    for warning in settings.warnings:
        log.main(warning)
    log.main(shown_arguments(box, settings.arguments))
    plan = plan_memory(box, settings)
    links = links_of(box, settings, environment)
    script = startup_script(box, settings, plan, links, environment)
    names = (
        [f"sglang::scheduler_TP{rank}" for rank in range(settings.tp)]
        if settings.tp > 1
        else ["sglang::scheduler"]
    )
    children = Children((*names, "sglang::detokenizer"))
    play(script, box.time_scale, log)
    if script.ending == "exception":
        _fail_schedulers(log, script.failure)
        log.main("Received sigquit from a child process. It usually means the child failed.")
        _say_tree_killed(box, log)
        die(children)
    if script.ending == "abort":
        log.raw(collective_timeout(settings.tp))
        children.kill()
        return 1
    journal_path = environment.get(VARIABLE)
    with Journal(Path(journal_path) if journal_path else None) as journal:
        noise = LaunchNoise(box, _noise_seed(box, settings, environment))
        model = StepModel(box, settings, links)
        rules = [
            rule
            for rule in box.rules
            if rule.phase == "serving" and rule.applies(settings.arguments, environment)
        ]
        fault = next((rule for rule in rules if rule.effect in ("death", "hang")), None)
        engine = Engine(box, settings, plan, model, noise=noise, log=log, journal=journal, fault=fault)
        corpus = Corpus(box.seed, garbled=any(rule.effect == "garbled" for rule in rules))
        routes = Routes(box, settings, plan, engine, corpus)
        server = Server(box, settings, engine, routes, log=log, children=children, journal=journal)
        return asyncio.run(server.run())


def _say_tree_killed(box: Box, log: Log) -> None:
    if box.sglang_version.number >= 20:
        pid = os.getpid()
        log.main(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")


def _noise_seed(box: Box, settings: Settings, environment: dict[str, str]) -> str:
    """The luck of this launch: of its flags and of TUNER_SIM_SEED, or of the moment where that is not set."""
    nonce = environment.get(SEED_VARIABLE) or f"{os.getpid()}-{SystemClock().wall_s()}"
    flags = {
        key: value for key, value in settings.arguments.items() if key not in ("host", "port", "nccl_port")
    }
    return f"{box.seed}/{nonce}/{sorted(flags.items())}"


def play(script: Script, scale: float, log: Log) -> None:
    """Print the script's lines at their times, divided by `scale`."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    for event in script.events:
        clock.sleep(began_s + event.at_s / scale - clock.monotonic_s())
        if event.speaker == "ranks":
            log.every_rank(event.text)
        elif event.speaker == "rank0":
            log.rank(0, event.text)
        elif event.speaker == "raw":
            log.raw(event.text)
        else:
            log.main(event.text)
    clock.sleep(began_s + script.at_s / scale - clock.monotonic_s())


def _fail_schedulers(log: Log, failure: str) -> None:
    log.rank(0, f"Scheduler hit an exception: {failure}")
    for rank in log.ranks[1:]:
        log.rank(rank, f"Scheduler hit an exception: {lost_peer(rank)}")


class _Answered(asyncio.Event):
    """A sink that is set when its request is finished."""

    def emit(self, request: Request) -> None:
        """See `Sink`."""
        if request.finish_reason is not None:
            self.set()


class Server:
    """The serving part: binds the port, warms up, answers, and ends by a signal or with its schedulers."""

    def __init__(
        self,
        box: Box,
        settings: Settings,
        engine: Engine,
        routes: Routes,
        *,
        log: Log,
        children: Children,
        journal: Journal,
    ) -> None:
        self._box = box
        self._settings = settings
        self._engine = engine
        self._routes = routes
        self._log = log
        self._children = children
        self._journal = journal
        self._connections: set[Connection] = set()
        self._leave = asyncio.Event()
        self._interrupted = False
        self._drain: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serve until told to leave; the exit code."""
        loop = asyncio.get_running_loop()
        self._log.main(f"INFO:     Started server process [{os.getpid()}]")
        self._log.main("INFO:     Waiting for application startup.")
        self._log.main("INFO:     Application startup complete.")
        host, port = self._settings.host, self._settings.port
        try:
            listener = await loop.create_server(self._connect, host, port, backlog=2048)
        except OSError as error:
            return await self._busy_port(error)
        self._log.main(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        tasks = [
            loop.create_task(self._warm_up()),
            loop.create_task(self._run_engine()),
            loop.create_task(self._watch_children()),
        ]
        await self._leave.wait()
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self._leave_cleanly()

    # --- start -------------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        return Connection(self._routes.handle, self._access, self._connections)

    def _access(self, client: str, call: Call, status: str) -> None:
        if self._settings.arguments["log_level_http"] not in ("warning", "error", "critical"):
            self._log.access(client, call.method, call.path, status)

    async def _busy_port(self, error: OSError) -> int:
        self._log.main(f"ERROR:    {error}")
        self._log.main("INFO:     Waiting for application shutdown.")
        if self._box.sglang_version.hangs_on_busy_port:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
            await asyncio.Event().wait()
        self._log.main("INFO:     Application shutdown complete.")
        self._children.kill()
        return 1

    async def _warm_up(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._settings.skip_warmup:
            self._log.access("127.0.0.1:50000", "GET", "/model_info", "200 OK")
            await asyncio.sleep(self._box.startup.warmup_s / self._box.time_scale)
            await self._first_request()
            path = "/v1/chat/completions" if self._box.model.multimodal else "/generate"
            self._log.access("127.0.0.1:50001", "POST", path, "200 OK")
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        self._log.main("The server is fired up and ready to roll!")
        self._routes.ready = True
        self._journal.event("ready", at_s=loop.time())

    async def _first_request(self) -> None:
        """The request that SGLang sends to itself; the server is ready when it is answered."""
        now_s = asyncio.get_running_loop().time()
        answered = _Answered()
        self._engine.submit(
            Request(
                rid="warmup",
                prompt=tuple(range(_WARMUP_PROMPT)),
                wanted=_WARMUP_TOKENS,
                stop_after=None,
                start=0,
                sink=answered,
                received_s=now_s,
            )
        )
        await answered.wait()

    # --- ends --------------------------------------------------------------------------------------------

    async def _run_engine(self) -> None:
        try:
            await self._engine.run()
        except SchedulerDeathError as death:
            _fail_schedulers(self._log, str(death))
            self._end_failed()

    async def _watch_children(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            crashed = self._children.crashed()
            if crashed is not None:
                _, pid, code = crashed
                self._log.main(
                    f"Subprocess scheduler_0 (pid={pid}) crashed with exit code {code}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                self._log.main(
                    "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
                )
                die(self._children)

    def _end_failed(self) -> NoReturn:
        self._log.main("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        _say_tree_killed(self._box, self._log)
        die(self._children)

    def _interrupt(self) -> None:
        self._interrupted = True
        self._leave.set()

    def _terminate(self) -> None:
        if self._drain is None:
            self._log.main("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
            self._routes.leaving = True
            self._drain = asyncio.get_running_loop().create_task(self._drain_requests())

    async def _drain_requests(self) -> None:
        poll_s = _SIGTERM_POLL_S / self._box.time_scale
        while True:
            await asyncio.sleep(poll_s)
            remaining = self._engine.open_requests
            self._log.main(
                f"Gracefully exiting... Remaining number of requests {remaining}. "
                "Remaining requests remaining_rids=[]."
            )
            if not remaining:
                break
            poll_s = max(poll_s, 0.25)
        await asyncio.sleep(self._box.startup.shutdown_s / self._box.time_scale)
        self._leave.set()

    def _leave_cleanly(self) -> int:
        for connection in list(self._connections):
            connection.close()
        if not self._box.sglang_version.exits_zero_on_sigterm and not self._interrupted:
            die(self._children)
        for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            self._log.main(f"INFO:     {text}")
        self._log.main(f"INFO:     Finished server process [{os.getpid()}]")
        self._children.kill()
        return 0
