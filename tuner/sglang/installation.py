"""What the installed SGLang can do, asked of the installation itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.errors import InputError
from tuner.programs import Ended, run_to_end
from tuner.sglang.flags import FlagSet, parse_help
from tuner.sglang.versions import ANY_VERSION, VersionRange, parse_version, version

HELP_LIMIT_S = 120.0
"""SGLang imports torch before it prints its help: 6 s on a quiet machine, a minute from a cold disk."""

_FACTS_LIMIT_S = 60.0
_PYTHON_NAME = re.compile(r"^(?:python|pypy)[\d.]*$")
_LAUNCH_NEEDS = ("--host", "--port", "--model-path")

_MARKERS: tuple[tuple[str, str | None, str | None], ...] = (
    # Flag, first and last version that lists it.
    ("--config", "0.5.3", None),
    ("--enable-torch-symm-mem", "0.5.3", None),
    ("--speculative-moe-runner-backend", "0.5.4", None),
    ("--fp8-gemm-backend", "0.5.6", None),
    ("--speculative-draft-attention-backend", "0.5.7", None),
    ("--admin-api-key", "0.5.8", None),
    ("--attn-cp-size", "0.5.9", None),
    ("--pre-warm-nccl", "0.5.10", None),
    ("--speculative-adaptive", "0.5.11", None),
    ("--speculative-draft-window-size", "0.5.12", None),
    ("--dsa-decode-backend", "0.5.13", None),
    ("--cuda-graph-max-bs-decode", "0.5.14", None),
    ("--dcp-size", "0.5.15", None),
    ("--retraction-policy", "0.5.16", None),
    ("--weight-cache-mode", "0.5.17", None),
    ("--startup-weight-load-mode", "0.5.18", None),
    ("--deepep-v2-mode", "0.5.19", None),
    ("--radix-eviction-policy-config", "0.5.20", None),
    ("--boundary-reduction", "0.5.21", None),
    ("--attn-dp-size", "0.5.22", None),
    ("--prefill-decode-interval-min-bs", "0.5.23", None),
    ("--enable-deepep-moe", None, "0.5.3"),
    ("--enable-piecewise-cuda-graph", "0.5.4", "0.5.13.post1"),
    ("--torchao-config", None, "0.5.17"),
    ("--cuda-graph-max-bs", None, "0.5.19"),
    ("--stream-output", None, "0.5.19"),
    ("--enable-breakable-cuda-graph", "0.5.11", "0.5.19"),
    ("--cuda-graph-tc-compiler", "0.5.14", "0.5.21"),
)

# Run by the server's own Python; prints one JSON object. `origin` is where `python -m MODULE` finds its code.
_ASK = """
import importlib.metadata, importlib.util, json, sys
found = {"version": None, "origin": None}
try:
    found["version"] = importlib.metadata.version("sglang")
except Exception:
    pass
module = sys.argv[1]
if module and not (found["version"] and module.split(".")[0] == "sglang"):
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            spec = importlib.util.find_spec(module + ".__main__")
        found["origin"] = spec.origin if spec is not None else None
    except Exception:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Installation:
    """One way of starting SGLang, and what it accepts.

    `version` is what the server's Python reports, None where that cannot be told; then `version_bounds`,
    judged by the flags that are there, is all that is known. `source` says where the flags come from: `help`
    or `cache`. `python` is the server's own, None where the command does not start SGLang itself.
    """

    command: tuple[str, ...]
    flags: FlagSet
    version: str | None = None
    version_bounds: VersionRange = ANY_VERSION
    source: str = "help"
    python: Path | None = None

    @property
    def words_behind(self) -> tuple[str, ...]:
        """The words of the command behind its program or module: flags that every launch has."""
        module = _module(self.command)
        words = self.command[self.command.index(module) + 1 :] if module else self.command[1:]
        return words[1:] if words[:1] == ("serve",) else words

    def can_be(self, wanted: str) -> bool:
        """Whether this can be version `wanted` or newer: false only where it is certain to be older."""
        known = parse_version(self.version) if self.version is not None else self.version_bounds.high
        return known is None or known >= version(wanted)

    def shown(self) -> str:
        """For people: `SGLang 0.5.23`, or `SGLang 0.5.21 or newer (judged by its flags)`."""
        if self.version is not None:
            return f"SGLang {self.version}"
        return f"SGLang {self.version_bounds.shown()} (judged by its flags)"

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        return {
            "command": list(self.command),
            "version": self.version,
            "version_bounds": None if self.version is not None else self.version_bounds.shown(),
            "flags": len(self.flags),
        }


def bounds_by_flags(flags: FlagSet) -> VersionRange:
    """The versions of SGLang (0.4.6 to 0.5.23 were read) that list these flags."""
    present = [marker for marker in _MARKERS if marker[0] in flags]
    lows = [version(first) for _, first, _ in present if first is not None]
    highs = [version(last) for _, _, last in present if last is not None]
    if "--cuda-graph-max-bs-decode" in flags and "--cuda-graph-max-bs" not in flags:
        lows.append(version("0.5.20"))
    if "--cuda-graph-max-bs" in flags and "--cuda-graph-max-bs-decode" not in flags:
        highs.append(version("0.5.13.post1"))
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and high < low:
        high = None  # A mixture that no known version lists: a fork or a newer one.
    return VersionRange(low, high)


def ask_installation(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    cache_dir: Path,
    timeout_s: float = HELP_LIMIT_S,
) -> Installation:
    """Ask the program that `command` starts for its flags and its version.

    `environment` is the whole environment it runs in. The help is kept under `cache_dir`, by the version of
    SGLang that the server's own Python reports, else by path, size and time of change of the code; a program
    of which neither is known is asked every time.

    Raises `InputError` where the program is missing or cannot be executed, where its `--help` fails or takes
    longer than `timeout_s`, and where it does not list what every SGLang server has.
    """
    program = _program(command, environment)
    interpreter = _interpreter(command, program, environment)
    module = _module(command)
    facts = _ask_python(interpreter, module, environment) if interpreter is not None else {}
    reported = facts.get("version")
    own = module.split(".")[0] == "sglang" or program.name == "sglang"
    key = _cache_key(command, program, interpreter, reported if own else None, facts.get("origin"))
    cached = cache_dir / f"help-{key}.json" if key is not None else None

    text = _read_cached(cached)
    source = "cache" if text is not None else "help"
    if text is None:
        text = _ask_help(command, program, environment, timeout_s)
    flags = parse_help(text)
    lacking = [word for word in _LAUNCH_NEEDS if word not in flags]
    if lacking:
        raise InputError(
            f"`{' '.join(command)} --help` lists no {lacking[0]}: this does not start an SGLang server",
            hint="the command is what SGLang's flags can follow, like `python -m sglang.launch_server`",
        )
    if cached is not None and source == "help":
        _write_cached(cached, text, reported)
    bounds = bounds_by_flags(flags)
    trusted = reported if own or _fits(reported, bounds) else None
    return Installation(command, flags, trusted, bounds, source, interpreter if own else None)


def _fits(reported: str | None, bounds: VersionRange) -> bool:
    """Whether a program of another name can be of the version that its Python has installed."""
    parsed = parse_version(reported) if reported is not None else None
    return parsed is not None and parsed in bounds


# --- finding the program and its Python ------------------------------------------------------------------


def _program(command: tuple[str, ...], environment: Mapping[str, str]) -> Path:
    if not command:
        raise InputError(
            "the command that starts the server is empty", hint="like `python -m sglang.launch_server`"
        )
    word = command[0]
    found = shutil.which(word, path=environment.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    if "/" in word and Path(word).exists():
        raise InputError(
            f"{word} cannot be executed", hint="check its permissions, or start it with its Python"
        )
    where = "" if "/" in word else " in PATH"
    raise InputError(
        f"there is no program {word}{where}: the server cannot be started",
        hint="name the Python that has SGLang, like `/path/to/venv/bin/python -m sglang.launch_server`",
    )


def _interpreter(command: tuple[str, ...], program: Path, environment: Mapping[str, str]) -> Path | None:
    """The server's Python: a word of the command (`numactl … python -m …`) or what its script names."""
    for word in command:
        if _PYTHON_NAME.match(Path(word).name):
            found = shutil.which(word, path=environment.get("PATH", os.defpath))
            return Path(found) if found is not None else None
    try:
        with program.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    # Console scripts begin `#!/…/python`, or `#!/bin/sh` and `'''exec' "/…/python" "$0" "$@"` for long paths.
    for line in head.decode(errors="replace").splitlines()[:2]:
        for word in re.findall(r"\"[^\"]+\"|[^\s\"']+", line.removeprefix("#!")):
            plain = word.strip('"')
            if _PYTHON_NAME.match(Path(plain).name):
                found = shutil.which(plain, path=environment.get("PATH", os.defpath))
                return Path(found) if found is not None else None
    return None


def _module(command: tuple[str, ...]) -> str:
    """The module of `python -m MODULE`, or the empty string; a `-m` before the Python is someone else's."""
    behind_python = False
    for word, following in pairwise(command):
        behind_python = behind_python or bool(_PYTHON_NAME.match(Path(word).name))
        if behind_python and word == "-m":
            return following
    return ""


def _ask_python(interpreter: Path, module: str, environment: Mapping[str, str]) -> dict[str, str | None]:
    told = _run([str(interpreter), "-c", _ASK, module], environment, _FACTS_LIMIT_S)
    try:
        facts = json.loads(told.output.strip().splitlines()[-1]) if told.exit_code == 0 else {}
    except (ValueError, IndexError):
        return {}
    return facts if isinstance(facts, dict) else {}


# --- asking for the help ---------------------------------------------------------------------------------


def _ask_help(
    command: tuple[str, ...], program: Path, environment: Mapping[str, str], timeout_s: float
) -> str:
    shown = f"`{' '.join(command)} --help`"
    variables = {**environment, "COLUMNS": "200", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
    told = _run([str(program), *command[1:], "--help"], variables, timeout_s)
    if told.exit_code is None:
        raise InputError(
            f"{shown} did not end within {timeout_s:g} s, so nothing is known about the installed SGLang",
            hint="run it by hand; a disk that is slow at first is faster at the second try",
        )
    if told.exit_code != 0:
        last = "\n".join(f"    {line}" for line in (told.errors or told.output).strip().splitlines()[-5:])
        raise InputError(
            f"{shown} failed with exit code {told.exit_code}:\n{last}",
            hint="run it by hand and mend what it says",
        )
    return told.output


def _run(argv: list[str], environment: Mapping[str, str], limit_s: float) -> Ended:
    try:
        return run_to_end(argv, environment=environment, limit_s=limit_s)
    except OSError as error:
        raise InputError(f"{argv[0]} cannot be started: {error.strerror or error}") from None


# --- the cache -------------------------------------------------------------------------------------------


def _cache_key(
    command: tuple[str, ...],
    program: Path,
    interpreter: Path | None,
    reported: str | None,
    origin: str | None,
) -> str | None:
    """What the help depends on, or None where that is not known well enough to keep it."""
    parts: list[Any] = [list(command), str(program), str(interpreter)]
    if reported is not None:
        parts.append(reported)
    else:
        module = _module(command)
        if module and origin is None:
            return None
        code = _code_files(Path(origin)) if origin is not None else []
        files = [program, *code, *(Path(word) for word in command[1:] if "/" in word or "." in word)]
        parts.append([_stamp(file) for file in files])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _code_files(origin: Path) -> list[Path]:
    """A module's file, and its neighbours where it is part of a package."""
    package = origin.parent
    if not (package / "__init__.py").exists():
        return [origin]
    return sorted(file for file in package.iterdir() if file.is_file())


def _stamp(file: Path) -> list[Any]:
    try:
        found = file.stat()
    except OSError:
        return [str(file)]
    return [str(file), found.st_mtime_ns, found.st_size]


def _read_cached(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    text = held.get("help") if isinstance(held, dict) else None
    return text if isinstance(text, str) else None


def _write_cached(file: Path, text: str, reported: str | None) -> None:
    """Best effort: a cache that cannot be written costs a few seconds next time, no more."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        held = json.dumps({"sglang": reported, "help": text})
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as partial:
            partial.write(held)
        Path(partial.name).replace(file)
