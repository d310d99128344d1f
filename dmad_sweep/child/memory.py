"""What a device can tell about memory: the CUDA caching allocator, or the process on a CPU."""

import contextlib
import resource
from pathlib import Path
from typing import Any, Protocol

import torch

from dmad_sweep.child.exhaustion import observe_exhaustion
from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.records.result import Peak


class MemoryMeter(Protocol):
    """Peaks between two resets. All bytes are above `zero_bytes`."""

    name: str
    zero_bytes: int
    context_bytes: int | None
    limit_bytes: int | None
    unmeasured: dict[str, str]
    """Fields of MemoryReport that this device cannot give, with the reason."""

    def reset(self) -> None:
        """Let the peak be what is in use now."""

    def peak(self) -> Peak:
        """Highest use since the last reset."""

    def allocated(self) -> int | None:
        """Bytes in use now."""

    def device_used(self) -> int | None:
        """Bytes of the device in use now, less those in use before the trial."""

    def beyond_allocator(self) -> int | None:
        """Bytes of the device in use now that the allocator does not hold: context, kernels, libraries."""

    def retries(self) -> int | None:
        """Allocations that succeeded only after the cache was freed."""

    def requested_when_exhausted(self) -> int | None:
        """Bytes of the last allocation that failed, where the device tells them exactly."""

    def lift_limit(self) -> None:
        """The trial is over: what is left to do, writing its result, must not run out of memory too."""


class CudaMeter:
    """torch's caching allocator, and cudaMemGetInfo for the device."""

    name: str = "cuda_allocator"
    zero_bytes: int = 0

    def __init__(self, planned: PlannedDevice, device: torch.device) -> None:
        self._device = device
        self._used_before = planned.used_before_bytes or 0
        self.unmeasured: dict[str, str] = {}
        self._failed_request: int | None = None
        torch.cuda.set_device(device)
        torch.empty(1, device=device)  # the context exists from here on
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        self.context_bytes: int | None = self.device_used()
        self._emulated_bytes = planned.memory_limit_bytes
        self.limit_bytes: int | None = None
        if self._emulated_bytes is not None:
            self._apply_limit(self._emulated_bytes)
        observe_exhaustion(self._note_failed_request)
        torch.cuda.reset_peak_memory_stats(device)

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)
        if self._emulated_bytes is not None:
            self._apply_limit(self._emulated_bytes)

    def peak(self) -> Peak:
        stats = self._stats()
        return Peak(
            allocated_bytes=stats["allocated_bytes"]["all"]["peak"],
            reserved_bytes=stats["reserved_bytes"]["all"]["peak"],
        )

    def allocated(self) -> int | None:
        return int(self._stats()["allocated_bytes"]["all"]["current"])

    def device_used(self) -> int | None:
        free, total = torch.cuda.mem_get_info(self._device)
        return int(total - free - self._used_before)

    def beyond_allocator(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return int(total - free - self._used_before - self._stats()["reserved_bytes"]["all"]["current"])

    def retries(self) -> int | None:
        return int(self._stats()["num_alloc_retries"])

    def requested_when_exhausted(self) -> int | None:
        return self._failed_request

    def lift_limit(self) -> None:
        pass  # nothing that follows allocates on the device

    def _stats(self) -> dict[str, Any]:
        return torch.cuda.memory_stats_as_nested_dict(self._device)

    def _apply_limit(self, emulated: int) -> None:
        """Emulate a device of `emulated` bytes: the allocator gets what the context leaves of it.

        `set_per_process_memory_fraction` counts neither the context nor library handles (pytorch#58466),
        which take their part of a real card. The context grows as kernels are loaded (527 MiB at start,
        773 MiB after some of SD1.5 on an H200), so the allowance is set again at stage borders.
        """
        _, total = torch.cuda.mem_get_info(self._device)
        allowance = emulated - self.beyond_allocator()
        if allowance <= 0:
            raise UnsupportedError(
                f"device.memory_limit_gib: the CUDA context alone takes {emulated - allowance} bytes, "
                f"more than the limit of {emulated}"
            )
        if allowance != self.limit_bytes:
            torch.cuda.set_per_process_memory_fraction(min(1.0, allowance / total), self._device)
            self.limit_bytes = allowance

    def _note_failed_request(self, requested: int) -> None:
        """The message of the error rounds it."""
        self._failed_request = requested


class ProcessMeter:
    """Resident memory of this process above its value at construction, from /proc (Linux).

    VmHWM belongs to this process alone; ru_maxrss would inherit the parent's. Writing 5 to clear_refs
    resets it; where that is denied only the whole trial's peak is known.
    """

    name: str = "process_rss"
    context_bytes: int | None = None

    def __init__(self, planned: PlannedDevice) -> None:
        _warm_up_libraries()
        self.unmeasured = {"context_bytes": "a CPU has no device context"}
        self._resettable = self._try_reset()
        if not self._resettable:
            self.unmeasured["steady"] = "the kernel does not allow VmHWM to be reset"
        self.zero_bytes = self._read("VmRSS") or 0
        self.limit_bytes = planned.memory_limit_bytes
        if planned.memory_limit_bytes is not None:
            data = self._read("VmData") or 0
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (data + planned.memory_limit_bytes, hard))

    def reset(self) -> None:
        if self._resettable:
            self._try_reset()

    def peak(self) -> Peak:
        high = self._read("VmHWM")
        return Peak(allocated_bytes=None if high is None else max(0, high - self.zero_bytes))

    def allocated(self) -> int | None:
        resident = self._read("VmRSS")
        return None if resident is None else max(0, resident - self.zero_bytes)

    def device_used(self) -> int | None:
        return None

    def beyond_allocator(self) -> int | None:
        return None

    def retries(self) -> int | None:
        return None

    def requested_when_exhausted(self) -> int | None:
        return None

    def lift_limit(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    @staticmethod
    def _try_reset() -> bool:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
            return True
        return False

    @staticmethod
    def _read(key: str) -> int | None:
        """A field of /proc/self/status, in bytes."""
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith(f"{key}:"):
                    return int(line.split()[1]) * 1024
        return None


def create_meter(planned: PlannedDevice, device: torch.device) -> MemoryMeter:
    return CudaMeter(planned, device) if device.type == "cuda" else ProcessMeter(planned)


def _warm_up_libraries() -> None:
    """Start the thread pools and load the kernels' libraries, so that they are no part of the workload."""
    image = torch.zeros(2, 8, 32, 32, requires_grad=True)
    kernel = torch.zeros(8, 8, 3, 3, requires_grad=True)
    torch.autograd.backward(
        (torch.nn.functional.conv2d(image, kernel, padding=1) @ torch.zeros(32, 32)).sum()
    )
