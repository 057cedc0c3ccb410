"""Small real servers that behave well or badly, and plans to launch them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tuner.sglang.plan import LaunchPlan

_LISTEN = """
import os, signal, socket, subprocess, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
def listen():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(16)
    return server
def say(*words):
    print(*words, flush=True)
"""

_SERVE = """
server = listen()
say("ready")
while True:
    connection, _ = server.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
    connection.close()
"""

POLITE = f"""{_LISTEN}
def leave(*_):
    say("draining")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
{_SERVE}"""
"""Serves, and ends with 0 on SIGTERM."""

STUBBORN = f"""{_LISTEN}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{_SERVE}"""
"""Serves, and ignores SIGTERM."""

CRASHES = f"""{_LISTEN}
say("about to die")
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Kills itself with SIGKILL, as SGLang does when one of its processes fails."""

EXITS_3 = f"""{_LISTEN}
say("bad argument")
sys.exit(3)
"""
"""Ends at once with 3."""

PRINTS_ENVIRONMENT = f"""{_LISTEN}
import json
say(json.dumps(dict(os.environ)))
{_SERVE}"""
"""Prints its environment as one line of JSON, then serves."""

PRINTS_ARGUMENTS = f"""{_LISTEN}
say(sys.argv, os.environ.get("HF_TOKEN"))
{_SERVE}"""
"""Prints its arguments and its token, then serves."""

LEADER_THREAD_ENDS = f"""{_LISTEN}
import ctypes, platform, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def serve():
    server = listen()
    say("ready")
    while True:
        server.accept()
threading.Thread(target=serve).start()
SYS_exit = {{"x86_64": 60, "aarch64": 93}}[platform.machine()]
ctypes.CDLL(None).syscall(SYS_exit, 0)
"""
"""Its first thread is gone, which makes it look like a zombie; another one serves on."""

WITHOUT_PORT = f"""{_LISTEN}
say("ready")
time.sleep(600)
"""
"""Runs, and never listens."""

BUSY = f"""{_LISTEN}
say("ready")
while True:
    sum(range(10000))
"""
"""Uses CPU time as long as it runs."""

HIDES_GRANDCHILD = f"""{_LISTEN}
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("hidden", os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
{_SERVE}"""
"""Has a grandchild of another session, whose parent is gone; itself polite."""

LEAVES_PORT_TO_ORPHAN = f"""{_LISTEN}
server = listen()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        say("hidden", os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Crashes, and an orphan of another session keeps its port open."""

CHILDREN_SURVIVE = f"""{_LISTEN}
for _ in range(2):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    say("child", child.pid)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Crashes, and its children of the same group live on."""

WORKER_TELLS_OF_SIGTERM = f"""{_LISTEN}
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: say("worker was signalled"))
    say("ready")
    while True:
        time.sleep(600)
def leave(*_):
    time.sleep(0.2)
    say("draining")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
while True:
    time.sleep(600)
"""
"""Has a worker in its group that would tell of a SIGTERM; itself takes a moment to end."""

UNMARKED_GRANDCHILD = f"""{_LISTEN}
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], env={{}}, start_new_session=True
)
say("hidden", child.pid)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
{_SERVE}"""
"""Has a child of another session whose environment lacks everything; itself polite."""


@dataclass(frozen=True)
class Talk:
    """What a server said in its log."""

    words: dict[str, list[int]]

    @classmethod
    def of(cls, log: bytes) -> Talk:
        """Lines of a word and a number, by word."""
        words: dict[str, list[int]] = {}
        for line in log.decode().splitlines():
            word, _, number = line.partition(" ")
            if number.isdigit():
                words.setdefault(word, []).append(int(number))
        return cls(words)


def plan_of(script: str, *, variables: tuple[tuple[str, str], ...] = ()) -> LaunchPlan:
    """A plan that launches a script without a place."""
    return LaunchPlan(command=(sys.executable, "-c", script), flags=(), variables=variables)


def wait_for(condition: Callable[[], object], what: str, *, limit_s: float = 90.0) -> None:
    """Wait until `condition` holds; fail with `what` after the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {limit_s} s in vain: {what}")
        time.sleep(0.01)
