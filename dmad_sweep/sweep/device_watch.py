"""A device's memory while a trial runs on it, from outside the trial's process."""

import time
from dataclasses import replace

from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.records.record import DeviceMemory
from dmad_sweep.records.result import larger
from dmad_sweep.sweep.devices import Nvml
from dmad_sweep.sweep.strangers import Strangers
from dmad_sweep.units import MIB

PROCESS_SAMPLING_PERIOD_S = 1.0
"""Listing a device's processes can take milliseconds and hold the driver's lock (MangoHud#2104)."""

RELEASE_S = 30.0
"""For the driver to take back the memory of a process that has ended."""

RELEASED_BYTES = 64 * MIB
"""What a device may hold above its level before a trial and count as released: others come and go."""


class DeviceWatch:
    """Samples NVML; on a CPU there is nothing to sample, and the reason is kept."""

    def __init__(self, device: PlannedDevice, nvml: Nvml) -> None:
        self._device, self._nvml = device, nvml
        self._peak: int | None = None
        self._process_peak: int | None = None
        self._samples = 0
        self._next_process_sample = 0.0
        self._strangers: Strangers | None = None
        self._unreleased: int | None = None

    def begin(self) -> PlannedDevice:
        """Note what is in use, and who is there, before the measured process starts; the device with that."""
        uuid = self._device.uuid
        if uuid is not None:
            self._device = replace(self._device, used_before_bytes=self._nvml.used_bytes(uuid))
            self._strangers = Strangers(self._nvml.processes(uuid, graphics=True))
        return self._device

    def sample(self, pid: int) -> None:
        """While the process `pid` is measured."""
        uuid = self._device.uuid
        if uuid is None:
            return
        self._samples += 1
        self._peak = larger(self._peak, self._nvml.used_bytes(uuid))
        if time.monotonic() >= self._next_process_sample:
            self._next_process_sample = time.monotonic() + PROCESS_SAMPLING_PERIOD_S
            processes = self._nvml.processes(uuid)
            own = next((process.used_bytes for process in processes if process.pid == pid), None)
            self._process_peak = larger(self._process_peak, own)
            if self._strangers:
                self._strangers.look(processes, pid)

    def await_release(self, pid: int, at_most_s: float = RELEASE_S) -> None:
        """Wait until the device has back what the ended process held: the next trial must not find it.

        Where NVML had listed the process and no longer does, what is held is others'.
        """
        uuid, before = self._device.uuid, self._device.used_before_bytes
        if uuid is None or before is None:
            return
        deadline = time.monotonic() + at_most_s
        while (held := (self._nvml.used_bytes(uuid) or 0) - before) > RELEASED_BYTES:
            gone = all(process.pid != pid for process in self._nvml.processes(uuid))
            if gone and self._process_peak is not None:
                return
            if time.monotonic() > deadline:
                self._unreleased = held
                return
            time.sleep(0.02)

    def found(self) -> DeviceMemory:
        if self._device.uuid is None:
            reason = self._nvml.reason or "measured on the CPU"
            fields = ("peak_used_bytes", "process_peak_bytes", "strangers")
            return DeviceMemory(unmeasured=dict.fromkeys(fields, reason))
        unmeasured = {}
        if self._strangers is None:
            unmeasured["strangers"] = "the measured process was never started"
        elif not self._strangers.told:
            unmeasured["strangers"] = (
                "NVML lists not even the trial's own process (container, WSL, MPS), so others may be hidden"
            )
        if self._peak is None:
            unmeasured["peak_used_bytes"] = "the process ended before the first sample"
        if self._process_peak is None:
            unmeasured["process_peak_bytes"] = (
                "NVML attributes no memory to this process (container, WSL, MPS)"
            )
        return DeviceMemory(
            total_bytes=self._device.total_bytes,
            used_before_bytes=self._device.used_before_bytes,
            peak_used_bytes=self._peak,
            process_peak_bytes=self._process_peak,
            unreleased_bytes=self._unreleased,
            samples=self._samples,
            strangers=self._strangers.found() if self._strangers else [],
            unmeasured=unmeasured,
        )
