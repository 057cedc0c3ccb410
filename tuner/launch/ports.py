"""Free ports on loopback, each handed out once."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import psutil

from tuner.errors import BrokenEnvironment

LOOPBACK = "127.0.0.1"

_LOWEST = 20_000
_ABOVE_HIGHEST = 30_000  # from here on Kubernetes hands out ports of its nodes
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_EPHEMERAL_START = 32_768
_TRIES = 200


class PortPool:
    """Hands out free ports; no port twice, also when it is free again.

    A server binds its port only after the weights are loaded, minutes after the port was chosen. Ports are
    therefore taken from below the range out of which the system serves outgoing connections (the load
    generator opens thousands of them): none of those can take the port in between. Only where that range
    leaves no room is the system asked for any free port.
    """

    def __init__(self) -> None:
        self._handed_out: set[int] = set()

    def fresh(self) -> int:
        """A free port. Raises `BrokenEnvironment` where none can be found."""
        quiet = range(_LOWEST, min(_ABOVE_HIGHEST, _ephemeral_start()))
        for attempt in range(_TRIES):
            port = secrets.choice(quiet) if quiet and attempt < _TRIES // 2 else _any_port()
            if port not in self._handed_out and is_free(port):
                self._handed_out.add(port)
                return port
        raise BrokenEnvironment(
            f"no free TCP port was found on {LOOPBACK} in {_TRIES} tries; a server needs one of its own",
            hint="see what holds them with `ss -ltn`",
        )


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on the port now.

    Connections that linger in TIME_WAIT do not count: servers bind with SO_REUSEADDR, and so does this.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL_START


def port_holder(port: int) -> psutil.Process | None:
    """The process that listens on a TCP port of this machine; None where none can be seen."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for connection in connections:
        if connection.status != psutil.CONN_LISTEN or not connection.laddr or connection.pid is None:
            continue
        if connection.laddr.port == port:
            try:
                return psutil.Process(connection.pid)
            except psutil.Error:
                return None
    return None
