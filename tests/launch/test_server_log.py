"""Logs that are read while they grow, and the secrets in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.launch import server_log
from tuner.launch.server_log import ServerLog, secret_values


def test_a_secret_that_is_written_in_two_pieces_is_found(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = ServerLog(path, ["sk-123456"])
    with path.open("ab", buffering=0) as server:
        server.write(b"key=sk-123")
        log.read(0)
        server.write(b"456;\nnext")
    assert log.read(0) == b"key=*********;\nnext"
    assert path.read_bytes() == b"key=*********;\nnext"


def test_a_longer_secret_that_holds_a_shorter_one_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"secret secret-two")
    ServerLog(path, ["secret", "secret-two"]).scrub()
    assert path.read_bytes() == b"****** **********"


def test_a_short_secret_does_not_blot_out_ordinary_words(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"a test")
    assert ServerLog(path, ["test", ""]).read(0) == b"a test"


def test_a_log_that_is_gone_is_empty(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "server.log", ["sk-123456"])
    log.scrub()
    assert log.read(5) == b""


@given(
    pieces=st.lists(st.sampled_from([b"s3cret", b"s3c", b"ret", b"\n", b"word "]), max_size=40),
    chunk=st.integers(1, 16),
    looks=st.sets(st.integers(0, 40)),
)
def test_whatever_the_chunks_no_secret_remains(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], chunk: int, looks: set[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "server.log"
    log = ServerLog(path, ["s3cret"])
    with pytest.MonkeyPatch.context() as patch, path.open("ab", buffering=0) as server:
        patch.setattr(server_log, "_CHUNK_BYTES", chunk)
        for number, piece in enumerate(pieces):
            server.write(piece)
            if number in looks:
                log.scrub()
        log.scrub()
    assert path.read_bytes() == b"".join(pieces).replace(b"s3cret", b"******")


def test_secrets_are_the_values_of_secret_flags_and_variables() -> None:
    argv = [
        "python",
        "--api-key",
        "one",
        "--admin-api-key=two",
        "--max-total-tokens",
        "65536",
        "--x",
        "http://u:p@h",
    ]
    environment = {
        "HF_TOKEN": "three",
        "SGLANG_API_KEY": "four",
        "TOKENIZERS_PARALLELISM": "false",
        "PATH": "/bin",
    }
    assert secret_values(argv, environment) == {"one", "two", "three", "four"}
