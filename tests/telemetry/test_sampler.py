"""The thread that reads the box, and who counts as a stranger on the GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pytest

from tuner.clock import ManualClock, SystemClock
from tuner.errors import BrokenEnvironment, TunerError
from tuner.launch.gpus import FakeProbe, GpuProbe, NullProbe, Occupant
from tuner.launch.host import HostReading
from tuner.launch.meter import FakeMeter, GpuMeter, GpuReading, NullMeter
from tuner.telemetry.sampler import Sampler

LIMIT_S = 10.0


class Host:
    """Says when it was read for the nth time."""

    def __init__(self, count: int = 0) -> None:
        self.enough = threading.Event()
        self.reads = 0
        self._count = count

    def read(self) -> HostReading:
        self.reads += 1
        if self.reads > self._count:
            self.enough.set()
        return HostReading(10.0, 20.0, 0.0, 1.0, 2.0, 0.0)


def sampler(
    *,
    meter: GpuMeter | None = None,
    probe: GpuProbe | None = None,
    host: Host | None = None,
    ours: Sequence[int] = (),
) -> Sampler:
    return Sampler(
        meter=meter or NullMeter(), probe=probe or NullProbe(), host=host or Host(), gpus=(0,), clock=ManualClock(5.0),
        is_ours=lambda pid: pid in ours,
    )  # fmt: skip


def test_a_series_has_samples_from_its_start_to_its_end_and_can_be_repeated() -> None:
    host = Host(count=4)
    watched = Sampler(
        meter=FakeMeter({0: [GpuReading(0, power_w=300.0)]}), probe=NullProbe(), host=host, gpus=(0,),
        clock=SystemClock(), is_ours=lambda pid: True, period_s=0.001,
    )  # fmt: skip
    began_s = SystemClock().monotonic_s()
    watched.start()
    assert host.enough.wait(LIMIT_S)
    samples = watched.stop()
    ended_s = SystemClock().monotonic_s()
    assert len(samples) >= 4
    times = [sample.at_s for sample in samples]
    assert times == sorted(times)
    assert began_s <= times[0] <= times[-1] <= ended_s
    assert all(sample.gpus[0].power_w == 300.0 for sample in samples)

    watched.start()
    again = watched.stop()
    assert len(again) >= 1
    assert again[0].at_s >= times[-1]


def test_stopping_what_was_not_started_gives_nothing_and_starting_twice_is_an_error() -> None:
    watched = sampler()
    assert watched.stop() == ()
    watched.start()
    with pytest.raises(TunerError):
        watched.start()
    watched.stop()


def test_the_host_is_read_where_there_is_no_gpu() -> None:
    taken = sampler().take()
    assert (taken.at_s, taken.gpus, taken.strangers, taken.error) == (5.0, (), (), "")
    assert taken.host is not None


def test_a_process_that_comes_later_is_a_stranger_and_the_servers_own_are_not() -> None:
    probe = FakeProbe({0: 0.0}, occupants=[Occupant(0, 100, None)])
    watched = sampler(probe=probe, ours=(100, 101))
    assert watched.take().strangers == ()
    probe.set_occupants(Occupant(0, 100, None), Occupant(0, 101, None), Occupant(0, 200, None))
    assert watched.take().strangers == (200,)
    probe.set_occupants(Occupant(0, 100, None))
    assert watched.take().strangers == ()


def test_who_was_there_beside_the_server_is_a_stranger() -> None:
    probe = FakeProbe({0: 0.0}, occupants=[Occupant(0, 100, None), Occupant(0, 200, None)])
    assert sampler(probe=probe, ours=(100,)).take().strangers == (200,)


def test_pids_that_cannot_be_recognised_count_as_the_servers_until_others_come() -> None:
    probe = FakeProbe({0: 0.0}, occupants=[Occupant(0, 31_000, None), Occupant(0, 31_001, None)])
    watched = sampler(probe=probe)
    assert watched.take().strangers == ()
    probe.set_occupants(Occupant(0, 31_000, None), Occupant(0, 40_000, None))
    assert watched.take().strangers == (40_000,)


def test_only_gpus_of_the_study_are_looked_at() -> None:
    probe = FakeProbe({0: 0.0, 1: 0.0}, occupants=[Occupant(1, 200, None)])
    assert sampler(probe=probe).take().strangers == ()


def test_traffic_is_read_now_and_then() -> None:
    class Noting(FakeMeter):
        asked: list[bool] = []  # noqa: RUF012 (of this one test)

        def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
            self.asked.append(pcie)
            return []

    watched = sampler(meter=Noting({}))
    for _ in range(8):
        watched.take()
    assert Noting.asked == [True, False, False, False] * 2


def test_a_gpu_that_is_lost_is_part_of_the_sample() -> None:
    class Lost(FakeMeter):
        def read(self, gpus: Iterable[int], *, pcie: bool) -> list[GpuReading]:
            raise BrokenEnvironment("the GPU driver answers NVML with: GPU is lost")

    taken = sampler(meter=Lost({})).take()
    assert "GPU is lost" in taken.error
    assert taken.host is not None
