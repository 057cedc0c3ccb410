from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.sglang import help_texts
from tuner.errors import InputError
from tuner.sglang.flags import parse_help
from tuner.sglang.installation import Installation, ask_installation, bounds_by_flags

ENVIRONMENT = dict(os.environ)


def ask(command: tuple[str, ...], cache: Path, **more: str) -> Installation:
    return ask_installation(command, {**ENVIRONMENT, **more}, cache_dir=cache, timeout_s=20)


def fake_sglang(folder: Path, version: str) -> None:
    """A package `sglang` with metadata, so that this Python reports a version."""
    package = folder / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    help_texts.write_fake_server(package / "launch_server.py")
    metadata = folder / f"sglang-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")


def test_the_servers_own_python_tells_the_version_and_the_help_is_asked_once(tmp_path: Path) -> None:
    fake_sglang(tmp_path, "0.5.12.post1")
    command = (sys.executable, "-m", "sglang.launch_server")
    first = ask(command, tmp_path / "cache", PYTHONPATH=str(tmp_path))
    again = ask(command, tmp_path / "cache", PYTHONPATH=str(tmp_path))
    assert first.version == again.version == "0.5.12.post1"
    assert (first.source, again.source) == ("help", "cache")
    assert help_texts.times_asked(tmp_path / "sglang" / "launch_server.py") == 1
    assert again.flags.spelling("mem_fraction_static") == "--mem-fraction-static"
    assert first.can_be("0.5.12")
    assert first.python == again.python == Path(sys.executable)
    assert not first.can_be("0.5.13")


def test_a_console_script_is_asked_through_the_python_it_names(tmp_path: Path) -> None:
    fake_sglang(tmp_path, "0.5.21")
    script = tmp_path / "sglang-bin" / "sglang"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_module('sglang.launch_server', run_name='__main__')\n"
    )
    script.chmod(0o755)
    found = ask((str(script),), tmp_path / "cache", PYTHONPATH=str(tmp_path))
    assert found.version == "0.5.21"
    assert found.shown() == "SGLang 0.5.21"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -m sglang.launch_server", ()),
        ("numactl -m 0 python -m sglang.launch_server --tp 2", ("--tp", "2")),
        ("sglang serve --tp 2", ("--tp", "2")),
        ("python -m sglang serve", ()),
    ],
)
def test_flags_in_the_command_are_told_from_the_program(command: str, words: tuple[str, ...]) -> None:
    assert Installation(tuple(command.split()), parse_help("")).words_behind == words


def test_a_wrapper_before_the_python_is_looked_through(tmp_path: Path) -> None:
    fake_sglang(tmp_path, "0.5.9")
    wrapper = tmp_path / "pinned"
    wrapper.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    wrapper.chmod(0o755)
    command = (str(wrapper), "-m", "0", sys.executable, "-m", "sglang.launch_server")
    assert ask(command, tmp_path / "cache", PYTHONPATH=str(tmp_path)).version == "0.5.9"


def test_another_version_is_asked_again(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "sglang.launch_server")
    for number in ("0.5.3", "0.5.4"):
        home = tmp_path / number
        home.mkdir()
        fake_sglang(home, number)
        found = ask(command, tmp_path / "cache", PYTHONPATH=str(home))
        assert (found.version, found.source) == (number, "help")


def test_a_program_without_a_version_is_asked_again_when_its_code_changed(tmp_path: Path) -> None:
    program = tmp_path / "lookalike.py"
    help_texts.write_fake_server(program)
    command = (sys.executable, str(program))
    first = ask(command, tmp_path / "cache")
    assert first.version is None
    assert ask(command, tmp_path / "cache").source == "cache"
    help_texts.write_fake_server(program, ', "--boundary-reduction"')
    changed = ask(command, tmp_path / "cache")
    assert changed.source == "help"
    assert changed.can_be("0.5.21")
    assert "judged by its flags" in changed.shown()


def test_a_module_of_another_name_works_like_sglang(tmp_path: Path) -> None:
    help_texts.write_fake_server(tmp_path / "lookalike.py", ', "--cuda-graph-max-bs-decode"')
    found = ask((sys.executable, "-m", "lookalike"), tmp_path / "cache", PYTHONPATH=str(tmp_path))
    assert found.version is None
    assert found.python is None, "only SGLang itself can be asked about its arguments"
    assert found.can_be("0.5.20")


def test_a_lookalike_is_not_credited_with_the_version_its_python_has(tmp_path: Path) -> None:
    fake_sglang(tmp_path, "0.5.23")
    help_texts.write_fake_server(tmp_path / "lookalike.py", ', "--enable-piecewise-cuda-graph"')
    found = ask((sys.executable, "-m", "lookalike"), tmp_path / "cache", PYTHONPATH=str(tmp_path))
    assert found.version is None
    assert found.version_bounds.shown() == "0.5.4 to 0.5.13.post1"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (None, "there is no program"),
        ("not executable", "cannot be executed"),
        ("#!/bin/sh\necho 'ImportError: no torch' >&2\nexit 3\n", r"exit code 3:\n +ImportError: no torch"),
        ("#!/bin/sh\necho usage\n", "does not start an SGLang server"),
    ],
)
def test_a_program_that_cannot_be_asked_is_a_users_error(tmp_path: Path, make: str | None, said: str) -> None:
    program = tmp_path / "server"
    if make is not None:
        program.write_text(make)
        program.chmod(0o644 if make == "not executable" else 0o755)
    with pytest.raises(InputError, match=said) as refused:
        ask((str(program),), tmp_path / "cache")
    assert refused.value.exit_code == 2
    assert refused.value.hint


def test_a_help_that_never_ends_is_ended_with_all_it_started(tmp_path: Path) -> None:
    program = tmp_path / "server"
    note = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {note}\nwait\n")
    program.chmod(0o755)
    with pytest.raises(InputError, match=r"did not end within 0\.5 s"):
        ask_installation((str(program),), ENVIRONMENT, cache_dir=tmp_path / "cache", timeout_s=0.5)
    state = Path(f"/proc/{note.read_text().strip()}/stat")
    deadline = time.monotonic() + 5
    while not _is_over(state) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _is_over(state)


def _is_over(state: Path) -> bool:
    """A killed process is gone, or a zombie that nobody has waited for."""
    try:
        return state.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_unwritable_cache_is_no_obstacle(tmp_path: Path) -> None:
    program = tmp_path / "lookalike.py"
    help_texts.write_fake_server(program)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert ask((sys.executable, str(program)), tmp_path / "cache").source == "help"


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ((), "an unknown version"),
        (("--cuda-graph-max-bs",), "0.5.13.post1 or older"),
        (("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"), "0.5.14 to 0.5.19"),
        (("--cuda-graph-max-bs-decode",), "0.5.20 or newer"),
        (("--cuda-graph-max-bs-decode", "--boundary-reduction"), "0.5.21 or newer"),
        (("--attn-dp-size", "--boundary-reduction"), "0.5.22 or newer"),
        (("--config", "--cuda-graph-max-bs"), "0.5.3 to 0.5.13.post1"),
        (("--attn-dp-size", "--torchao-config"), "0.5.22 or newer"),
    ],
)
def test_the_version_is_bounded_by_the_flags_that_are_there(words: tuple[str, ...], bounds: str) -> None:
    text = "options:\n" + "".join(f"  {word} X\n" for word in words)
    assert bounds_by_flags(parse_help(text)).shown() == bounds


def test_what_is_not_certain_is_not_ruled_out() -> None:
    assert help_texts.installed(parse_help("options:\n  --port PORT\n")).can_be("0.5.23")
    assert help_texts.installed(help_texts.new()).can_be("0.5.22")
    assert not help_texts.installed(help_texts.old()).can_be("0.5.14"), "its help has the old flags only"
    assert not help_texts.installed(help_texts.new(), "0.5.12").can_be("0.5.14")
