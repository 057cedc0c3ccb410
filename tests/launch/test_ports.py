"""Ports: fresh, never the same twice, and out of the way of outgoing connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tuner.errors import BrokenEnvironment
from tuner.launch import ports
from tuner.launch.ports import PortPool, is_free


def test_a_listening_port_is_not_free_and_afterwards_is() -> None:
    port = PortPool().fresh()
    assert is_free(port)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        assert not is_free(port)
    assert is_free(port)


def test_a_connection_that_lingers_does_not_block_the_port() -> None:
    port = PortPool().fresh()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = server.accept()
        connection.close()  # who closes first keeps the port in TIME_WAIT
        assert client.recv(1) == b""
        client.close()
    assert is_free(port)


def test_a_server_on_all_addresses_takes_the_port_on_loopback_too() -> None:
    port = PortPool().fresh()
    with socket.socket() as server:
        server.bind(("0.0.0.0", port))
        server.listen()
        assert not is_free(port)


def test_ports_lie_below_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_range = tmp_path / "ip_local_port_range"
    local_range.write_text("20050\t60999\n", "ascii")
    monkeypatch.setattr(ports, "_EPHEMERAL_RANGE", local_range)
    pool = PortPool()
    assert all(20_000 <= pool.fresh() < 20_050 for _ in range(10))


@pytest.mark.parametrize("text", ["1024 65535", "", "nonsense"])
def test_any_range_of_outgoing_connections_leaves_a_port(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_range = tmp_path / "ip_local_port_range"
    local_range.write_text(text, "ascii")
    monkeypatch.setattr(ports, "_EPHEMERAL_RANGE", local_range)
    assert is_free(PortPool().fresh())


def test_no_port_is_handed_out_twice_and_running_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ABOVE_HIGHEST", 20_004)
    monkeypatch.setattr(ports, "_any_port", lambda: 20_000)
    monkeypatch.setattr(ports, "is_free", lambda port: True)
    pool = PortPool()
    handed_out = []
    with pytest.raises(BrokenEnvironment, match="no free TCP port"):
        while True:
            handed_out.append(pool.fresh())
    assert sorted(handed_out) == [20_000, 20_001, 20_002, 20_003]
