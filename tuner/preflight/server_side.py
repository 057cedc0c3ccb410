"""Asks the installed SGLang what it makes of arguments. Run by the server's own Python, never imported.

A question is a line of JSON on stdin, `{"id", "words", "variables"}`; the answer is one on stdout: the id
with `resolved` (accepted, the values it would run with), `refused` (exception and text) or `unknown` (why
nobody can tell). The first line says `ready`, or `absent` and why. Whatever SGLang prints goes to stderr. The
end of stdin is the end.

SGLang resolves its arguments in `ServerArgs.__post_init__` up to 0.5.19, and in `resolve_once` from 0.5.20;
its launcher then calls `check_server_args`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
import traceback
from typing import Any

_MOST_CHARACTERS = 600
_OF_THE_MOMENT = (OSError, MemoryError, ImportError)
"""Files, networks, memory: they say something of the moment, and nothing of the arguments."""


def main() -> None:
    """Answer until stdin ends."""
    answers, questions = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  (a descriptor is wanted)
        os.dup2(nothing.fileno(), 0)
    sys.stdout = sys.stderr

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()

    try:
        module = importlib.import_module("sglang.srt.server_args")
    except Exception as error:  # noqa: BLE001  (whatever an installation fails of)
        say({"absent": _told(error)})
        return
    kind = getattr(module, "ServerArgs", None)
    if not hasattr(kind, "from_cli_args") or not hasattr(kind, "add_cli_args"):
        say({"absent": "this SGLang has no ServerArgs that read a command line"})
        return
    say({"ready": True})
    for line in questions:
        question = json.loads(line)
        say({"id": question["id"], **_answer(module, question["words"], question["variables"])})


def _answer(module: Any, words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    before, printed = dict(os.environ), io.StringIO()
    os.environ.update(variables)
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return {"resolved": _resolved(module, words)}
    except SystemExit as error:
        if error.code in (None, 0):
            return {"unknown": "it ended with exit code 0"}
        # argparse prints what is wrong as its last line, and gives 2 as the code.
        told = error.code if isinstance(error.code, str) else (printed.getvalue().splitlines() or [""])[-1]
        return {"refused": {"type": "SystemExit", "text": told.rpartition("error: ")[2]}}
    except _OF_THE_MOMENT as error:
        return {"unknown": _told(error)}
    except Exception as error:  # noqa: BLE001  (the server would end with it too)
        return {"refused": {"type": type(error).__name__, "text": _text(error)}}
    finally:
        os.environ.clear()
        os.environ.update(before)


def _resolved(module: Any, words: list[str]) -> dict[str, Any]:
    if hasattr(module, "prepare_server_args"):
        arguments = module.prepare_server_args(words)
    else:
        parser = argparse.ArgumentParser()
        module.ServerArgs.add_cli_args(parser)
        arguments = module.ServerArgs.from_cli_args(parser.parse_args(words))
    for step in ("resolve_once", "check_server_args"):
        if hasattr(arguments, step):
            getattr(arguments, step)()
    values = arguments.resolved_dict() if hasattr(arguments, "resolved_dict") else vars(arguments)
    return {name: value for name, value in values.items() if not name.startswith("_")}


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    """What it says; of a bare assertion, the line that asserts."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    return (text or (frames[-1].line if frames else "") or "")[:_MOST_CHARACTERS]


if __name__ == "__main__":
    main()
