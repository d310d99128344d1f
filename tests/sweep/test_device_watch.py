from collections.abc import Sequence

from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.sweep.device_watch import DeviceWatch
from dmad_sweep.sweep.devices import GpuProcess, Nvml
from dmad_sweep.units import MIB

GPU = PlannedDevice(kind="cuda", name="GPU", uuid="GPU-1", total_bytes=1000 * MIB)
CHILD = 4_000_001


class Readings(Nvml):
    """A device whose used memory runs through `used`, and whose processes through `listed`; the last stay."""

    def __init__(self, used: Sequence[int], listed: Sequence[list[int]] = ([],)) -> None:
        self._used, self._listed = list(used), list(listed)
        self.reason = None

    def used_bytes(self, uuid: str) -> int | None:
        return (self._used.pop(0) if len(self._used) > 1 else self._used[0]) * MIB

    def processes(self, uuid: str, *, graphics: bool = False) -> list[GpuProcess]:
        pids = self._listed.pop(0) if len(self._listed) > 1 else self._listed[0]
        return [GpuProcess(pid=pid, used_bytes=MIB) for pid in pids]


def watched(nvml: Nvml) -> DeviceWatch:
    watch = DeviceWatch(GPU, nvml)
    watch.begin()
    watch.sample(CHILD)
    return watch


def test_memory_that_comes_back_late_is_waited_for() -> None:
    nvml = Readings([10, 500, 500, 400, 300, 20])
    watch = watched(nvml)
    watch.await_release(CHILD)
    assert nvml.used_bytes("GPU-1") == 20 * MIB
    assert watch.found().unreleased_bytes is None


def test_memory_that_does_not_come_back_is_told() -> None:
    watch = watched(Readings([10, 500]))
    watch.await_release(CHILD, at_most_s=0.1)
    assert watch.found().unreleased_bytes == 490 * MIB


def test_what_others_took_meanwhile_is_not_waited_for() -> None:
    watch = watched(Readings([10, 500], listed=[[], [CHILD], []]))
    watch.await_release(CHILD)
    assert watch.found().unreleased_bytes is None
