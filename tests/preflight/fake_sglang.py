"""A package called `sglang` for a Python of its own: small, and with the habits of the real one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tuner.preflight.validator import Validator

ARGUMENTS = """
import argparse, os, sys, time

print("an import that prints")
os.write(1, b"{\\"id\\": 1, \\"refused\\": {}}\\n")

class ServerArgs:
    def __init__(self, **values):
        self.__dict__.update(values)
        self.__post_init__()

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--page-size", type=int, default=1)
        parser.add_argument("--chunk", type=int, default=64)
        parser.add_argument("--host")
        parser.add_argument("--do", default="")

    @classmethod
    def from_cli_args(cls, arguments):
        return cls(**vars(arguments))

    def act(self):
        print("checking", self.do)
        os.write(1, b"more noise\\n")
        if self.do == "hang":
            time.sleep(600)
        if self.do == "die":
            os._exit(3)
        if self.do == "kill":
            os.kill(os.getpid(), 9)
        if self.do == "assert":
            assert self.page_size == 7
        if self.do == "files":
            raise OSError("no such model")
        if self.do == "leave":
            sys.exit(0)
        if self.do == "child":
            import subprocess
            subprocess.Popen(["sleep", "600"])
        if self.do == "change":
            os.environ["SGLANG_LEFT_BEHIND"] = "1"
        if self.chunk % self.page_size:
            raise AssertionError("chunk must be divisible\\nby page_size")
"""

NEW = (
    ARGUMENTS
    + """
    def __post_init__(self):
        self.done = False

    def resolve_once(self):
        self.act()
        self.done = True

    def check_server_args(self):
        assert self.done

    def resolved_dict(self):
        names = ("SGLANG_LEFT_BEHIND", "ASKED")
        return {"page_size": self.page_size, "path": __import__("pathlib").Path("x"), "variables": [n for n in names if n in os.environ]}

def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return ServerArgs.from_cli_args(parser.parse_args(argv))
"""
)

OLD = (
    ARGUMENTS
    + """
    def __post_init__(self):
        self.act()
        self._hidden = 1

    def check_server_args(self):
        pass
"""
)

NONE = "def launch(): pass\n"
BROKEN = "import no_such_dependency\n"
DEAD = "import os, sys\nprint('a last word', file=sys.stderr, flush=True)\nos._exit(9)\n"
SLOW = "import time\ntime.sleep(600)\n"


def validator(folder: Path, source: str, **options: Any) -> Validator:
    """One that asks a fake of this source."""
    package = folder / "sglang" / "srt"
    package.mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "server_args.py").write_text(source)
    return Validator(Path(sys.executable), {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}, **options)
