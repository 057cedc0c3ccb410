"""The real SGLang that `setup.sh` installed, as a study wants it named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STUBS = HERE / "recipe" / "stubs"


@dataclass(frozen=True)
class RealSGLang:
    """Where it is."""

    python: Path
    model: Path

    @property
    def command(self) -> str:
        return f"{self.python} -m sglang.launch_server"

    @property
    def environment(self) -> dict[str, str]:
        # A computing thread per core takes the cores from SGLang's own other processes: the threads of one
        # step wait for each other, and steps of 5 ms become steps of seconds wherever anything else runs.
        return {
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(STUBS),
        }

    @property
    def options(self) -> list[str]:
        """Options of `optimize` for the study `cpu`."""
        return [
            "--command", self.command,
            "--model", str(self.model),
            "--flag", "load_format=dummy",
            "--env", f"PYTHONPATH={STUBS}",
        ]  # fmt: skip


@pytest.fixture(scope="session")
def real_sglang() -> Iterator[RealSGLang]:
    """Skips, with the reason, where it is not installed; fails instead where it must be."""
    folder = Path(os.environ.get("TUNER_SGLANG_DIR") or Path.home() / ".cache" / "tuner" / "sglang-cpu")
    found = RealSGLang(folder / "venv" / "bin" / "python", folder / "model-tiny")
    if not (found.python.is_file() and found.model.is_dir()):
        reason = f"no real SGLang in {folder}: run `bash tests/real_server/setup.sh {folder}` first"
        if os.environ.get("TUNER_REQUIRE_REAL_SERVER"):
            pytest.fail(reason)
        pytest.skip(reason)
    yield found
