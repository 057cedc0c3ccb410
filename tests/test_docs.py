"""Every command in the documentation runs, and every file it names is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.study.overrides import OVERRIDES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "docs/studies.md",
    "docs/searching.md",
    "docs/preflight.md",
    "docs/explaining.md",
)

# Commands that need what a test of their own provides.
ELSEWHERE = {
    "bash tests/run": "it runs these tests",
    "bash tests/real_server/setup.sh ~/.cache/tuner/sglang-cpu": "`.ci/run` runs it, for tests/real_server",
    "python -m benchmarks.explanation --studies 10": "tests/search/test_explain.py runs a part of it",
    "python -m benchmarks.explanation --studies 5 --boxes": "likewise",
    "python -m benchmarks.search_efficiency --quick": "tests/benchmarks/test_search_efficiency.py",
    "python -m benchmarks.verdict --studies 1000": "tests/benchmarks/test_verdict.py runs it with fewer",
    "python -m tuner optimize mine --until 07:00": "tests/real_server and tests/cli run studies",
    "python -m benchmarks.search_efficiency --seeds 5 --first-seed 10": (
        "ten minutes; tests/benchmarks/test_search_efficiency.py runs a part of it"
    ),
    "python -m benchmarks.search_efficiency --held-out --seeds 5 --first-seed 10": "likewise",
    "python -m benchmarks.warm_start --seeds 2 --boxes '32 streams' long PCIe poor tight nothing": "ten minutes; tests/benchmarks/test_warm_start.py runs a part of it",
    "python -m benchmarks.search_efficiency --seeds 2 --samplers surrogate --looks off auto --hours 1 2 4 8 --boxes long '32 streams' PCIe single tight": (
        "ten minutes; tests/benchmarks/test_search_efficiency.py runs a part of it"
    ),
    "python -m tuner optimize mine --explain 2": "tests/cli/test_explain.py",
    "python -m sglang.launch_server --config best.yaml": "tests/real_server/test_end_to_end.py starts the exported file",
}


def commands(document: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a fresh clone has."""
    folder = tmp_path_factory.mktemp("clone") / "tuner"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def shell(command: str, cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=cwd, capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.timeout(1800)
def test_the_first_command_runs_the_main_job_from_a_fresh_clone(clone: Path) -> None:
    first, dashboard, *_ = commands("README.md")
    printed = shell(first, clone)
    gain = re.search(
        r"best on .*\(simulated\): trial \d+, ([\d.]+) tok/s \([^)]*\), \+([\d.]+)% over the engine's defaults",
        printed,
    )
    assert gain is not None, printed[-2000:]
    assert float(gain[2]) > 5
    for name in ("best.yaml", "best.sh"):
        assert (clone / "studies" / "simulated-kimi-k2.5" / name).is_file()
    program = clone / dashboard.split()[0]
    assert subprocess.run([str(program), "--version"], capture_output=True, check=True).stdout
    assert dashboard.split()[1] in printed and dashboard.split()[3] in printed


@pytest.mark.timeout(1800)
def test_the_other_commands(clone: Path, tmp_path: Path) -> None:
    python = f'python() {{ {sys.executable} "$@"; }}\n'
    stand_in = "{python} -m tuner.simulator --box kimi-k2.5-8x-rtx-pro-6000-0.5.23"
    (clone / "server.log").write_text("[2030-01-01 00:00:00] The server is fired up and ready to roll!\n")
    results = clone / "studies" / "mine"
    if not results.exists():
        shutil.copytree(clone / "studies" / "simulated-kimi-k2.5", results)
    for command in [command for document in DOCUMENTS for command in commands(document)][2:]:
        if command in ELSEWHERE:
            continue
        shell(python + command.replace("'python -m sglang.launch_server'", f"'{stand_in}'"), clone)


def test_no_command_is_left_out() -> None:
    known = {command for document in DOCUMENTS for command in commands(document)}
    assert set(ELSEWHERE) <= known, "a command that is tested elsewhere is gone from the documents"


def test_every_path_that_the_documents_name_is_there() -> None:
    for document in DOCUMENTS:
        for path in re.findall(
            r"`((?:tuner|tests|search_spaces|studies|benchmarks)/[\w./-]*)`", (ROOT / document).read_text()
        ):
            if "NAME" not in path and "studies/simulated" not in path:
                assert (ROOT / path).exists(), f"{document} names {path}"


def test_every_field_of_a_study_is_documented() -> None:
    told = (ROOT / "docs" / "studies.md").read_text()
    assert [item.path for item in OVERRIDES if f"| `{item.path}` | `{item.option}` |" not in told] == []


def test_every_room_stands_in_the_architecture() -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {
        path.name for path in (ROOT / "tuner").iterdir() if path.is_dir() and not path.name.startswith("_")
    }
    missing = {room for room in rooms if f"`tuner/{room}/`" not in told}
    assert not missing
