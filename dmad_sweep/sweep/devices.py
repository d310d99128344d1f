"""Devices as the parent sees them: NVML for GPUs, /proc for the CPU. Never torch."""

import importlib.util
import os
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from dmad_sweep.config.schema import Device
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.units import bytes_to_gib, gib_to_bytes

PID_LIMIT = 2**22
"""Linux gives no process a higher number."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; `index` is NVML's, which is the order of the PCI bus.

    `total_bytes` leaves out what the driver reserves (615 MiB of an H200), as cudaMemGetInfo does.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int


@dataclass(frozen=True)
class GpuProcess:
    """A process as NVML lists it. In a container the PID may be the host's."""

    pid: int
    used_bytes: int | None
    """None where NVML cannot attribute memory (WSL, MPS)."""


class Nvml:
    """NVML, or the reason why there is none."""

    def __init__(self) -> None:
        self.gpus: list[Gpu] = []
        self.driver: str | None = None
        self.reason: str | None = None
        self._handles: dict[str, Any] = {}
        try:
            pynvml.nvmlInit()
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._add(index)
        except (pynvml.NVMLError, OSError) as error:
            self.reason = f"NVML: {error}"

    def used_bytes(self, uuid: str) -> int | None:
        """Used memory of the whole device, the driver's own reserve left out; a few microseconds."""
        memory = self._memory(uuid)
        return None if memory is None else int(memory.used)

    def processes(self, uuid: str, *, graphics: bool = False) -> list[GpuProcess]:
        """The processes on a device, as far as NVML lists them: in many containers, none.

        After some driver updates entries are garbage; what cannot be a PID or does not fit the device is
        dropped. `graphics` adds processes that only draw. That list takes milliseconds and holds the
        driver's lock (MangoHud#2104), so it is not for while something is measured.
        """
        lists = [pynvml.nvmlDeviceGetComputeRunningProcesses]
        if graphics:
            lists.append(pynvml.nvmlDeviceGetGraphicsRunningProcesses)
        total = next(gpu.total_bytes for gpu in self.gpus if gpu.uuid == uuid)
        found: dict[int, GpuProcess] = {}
        for listed in lists:
            # an old driver lacks the call, and not every release of the binding says so by an NVMLError
            with suppress(Exception):
                for process in listed(self._handles[uuid]):
                    used = process.usedGpuMemory or None
                    if 0 < (process.pid or 0) < PID_LIMIT and (used is None or used <= total):
                        found.setdefault(process.pid, GpuProcess(pid=process.pid, used_bytes=used))
        return list(found.values())

    def _add(self, index: int) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        memory = self._memory(uuid)
        if memory is not None:
            name = _text(pynvml.nvmlDeviceGetName(handle))
            total = int(memory.total) - int(getattr(memory, "reserved", 0))
            self.gpus.append(Gpu(index=index, uuid=uuid, name=name, total_bytes=total))

    def _memory(self, uuid: str) -> Any:
        """The second version of the call keeps the driver's reserve apart; drivers before R510 lack it."""
        handle = self._handles[uuid]
        try:
            return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        except pynvml.NVMLError:
            try:
                return pynvml.nvmlDeviceGetMemoryInfo(handle)
            except pynvml.NVMLError:
                return None


def choose_device(wanted: Device, nvml: Nvml) -> PlannedDevice:
    """The device that the configuration asks for.

    Raises:
        ConfigError: there is no such device, or it is smaller than the one to emulate.
    """
    limit = None if wanted.memory_limit_gib is None else gib_to_bytes(wanted.memory_limit_gib)
    if wanted.kind != "cpu" and "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        raise ConfigError(
            "CUDA_VISIBLE_DEVICES names a MIG instance, whose memory cannot be told from its card's yet; "
            "choose a whole GPU, or device=cpu"
        )
    gpus = visible_gpus(nvml.gpus)
    if wanted.kind == "cpu" or (wanted.kind == "auto" and not (gpus and torch_has_cuda())):
        return PlannedDevice(kind="cpu", name=_cpu_name(), memory_limit_bytes=limit)
    if not gpus:
        hidden = " (CUDA_VISIBLE_DEVICES hides all of them)" if nvml.gpus else ""
        raise ConfigError(
            f"device=cuda is not possible here: {nvml.reason or 'NVML shows no usable GPU'}{hidden}; "
            "device=cpu measures on the CPU"
        )
    if wanted.index >= len(gpus):
        names = ", ".join(f"{i} {gpu.name}" for i, gpu in enumerate(gpus))
        raise ConfigError(f"device.index={wanted.index} is not allowed: choose one of {names}")
    gpu = gpus[wanted.index]
    if limit is not None and limit > gpu.total_bytes:
        raise ConfigError(
            f"device.memory_limit_gib={wanted.memory_limit_gib:g} is not allowed: "
            f"{gpu.name} has {bytes_to_gib(gpu.total_bytes):.1f} GiB, a larger card cannot be emulated"
        )
    return PlannedDevice(
        kind="cuda", name=gpu.name, uuid=gpu.uuid, total_bytes=gpu.total_bytes, memory_limit_bytes=limit
    )


def visible_gpus(gpus: list[Gpu]) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; integers are taken in PCI bus order."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return gpus
    visible = []
    for entry in (part.strip() for part in listed.split(",")):
        matches = [
            gpu
            for gpu in gpus
            if entry
            and (str(gpu.index) == entry or (entry.startswith("GPU-") and gpu.uuid.startswith(entry)))
        ]
        if len(matches) != 1:
            break  # CUDA, too, stops at the first entry that it does not know
        visible += matches
    return visible


def torch_has_cuda() -> bool:
    """Whether the installed torch was built with CUDA, read from its version file: importing it is slow."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py")
    return bool(re.search(r"^cuda\b[^=]*=\s*['\"]", version.read_text(), re.MULTILINE))


def _cpu_name() -> str:
    try:
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        model = None
    return f"CPU, {model[1].strip() if model else platform.machine()}"


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value
