"""Running the program as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tuner(*arguments: str, cwd: Path = ROOT, limit_s: float = 280) -> subprocess.CompletedProcess[str]:
    """`python -m tuner …`, ended after `limit_s`."""
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=limit_s,
        check=False,
    )


def simulated(folder: Path, *options: str) -> list[str]:
    """Arguments for the embedded default, measured quickly, with its results in `folder`."""
    return ["optimize", "--folder", str(folder), "--repeat-limit-s", "2", "--warmup-s", "0.5", *options]
