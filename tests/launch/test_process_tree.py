"""Running totals over trees of processes, and the helpers that look at real ones."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.servers import wait_for
from tuner.clock import ManualClock
from tuner.launch import process_tree
from tuner.launch.environment import MARKER
from tuner.launch.process_tree import ProcessKey, TreeTotal

MAIN: ProcessKey = (1, 0.0)
CHILD: ProcessKey = (2, 0.0)
GRANDCHILD: ProcessKey = (3, 0.0)


def test_a_child_that_was_reaped_counts_once() -> None:
    total = TreeTotal()
    assert total.update({MAIN: (None, 1.0), CHILD: (MAIN, 10.0)}) == 11.0
    # The system added the child's time to its parent's.
    assert total.update({MAIN: (None, 11.5)}) == 11.5


def test_an_orphan_that_ended_still_counts() -> None:
    total = TreeTotal()
    total.update({MAIN: (None, 1.0), CHILD: (MAIN, 1.0), GRANDCHILD: (CHILD, 10.0)})
    total.update({MAIN: (None, 2.0), GRANDCHILD: (None, 20.0)})
    assert total.update({MAIN: (None, 3.0)}) == 23.0
    assert total.update({}) == 23.0


def test_a_new_process_with_an_old_pid_is_another_process() -> None:
    total = TreeTotal()
    total.update({MAIN: (None, 7.0)})
    assert total.update({(MAIN[0], 99.0): (None, 1.0)}) == 8.0


KEYS = st.tuples(st.integers(1, 4), st.just(0.0))
SAMPLES = st.dictionaries(KEYS, st.tuples(st.none() | KEYS, st.floats(0, 1000)), max_size=4)


@given(st.lists(SAMPLES, max_size=8))
def test_a_total_never_shrinks(samples: list[dict[ProcessKey, tuple[ProcessKey | None, float]]]) -> None:
    total = TreeTotal()
    totals = [total.update(living) for living in samples]
    assert totals == sorted(totals)


def test_a_zombie_is_not_alive_and_its_parent_can_still_be_sampled() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    wait_for(lambda: process.status() == psutil.STATUS_ZOMBIE, "the child ends and is not collected")
    assert not process_tree.is_alive(process)
    assert psutil.Process(os.getpid()).pid in {
        pid for pid, _ in process_tree.sample([psutil.Process(), process], process_tree.cpu_s)
    }
    child.wait()
    process_tree.kill(process)  # gone: nothing happens
    assert process_tree.described(process).startswith(str(child.pid))


def test_we_never_find_ourselves() -> None:
    script = (
        "from tuner.launch.process_tree import find_marked as f; print(f(lambda m: m == 'study:ourselves'))"
    )
    environment = {**os.environ, MARKER: "study:ourselves"}
    found = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout == "[]\n"


def test_ending_gives_up_at_its_limit_and_names_what_is_left() -> None:
    immortal = psutil.Process()

    class Never(psutil.Process):
        def kill(self) -> None:
            return

    clock = ManualClock()
    left = process_tree.end_all(lambda: [Never(immortal.pid)], clock, limit_s=3.0)
    assert [process.pid for process in left] == [os.getpid()]
    assert 3.0 <= clock.monotonic_s() < 3.2


def test_waiting_ends_at_the_deadline() -> None:
    clock = ManualClock()
    assert not process_tree.wait_until(lambda: False, clock, deadline_s=2.0)
    assert 2.0 <= clock.monotonic_s() < 2.1
    assert process_tree.wait_until(lambda: True, clock, deadline_s=0.0)
