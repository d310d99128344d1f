"""Who else uses a GPU. Others' processes are looked at, never touched."""

import os
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import psutil

from dmad_sweep.errors import ConfigError
from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.records.record import DeviceMemory, Stranger
from dmad_sweep.records.result import larger
from dmad_sweep.sweep.devices import GpuProcess, Nvml
from dmad_sweep.units import MIB


class Strangers:
    """Others' processes on a device: those there before a trial, and those that appear during it."""

    def __init__(self, processes: list[GpuProcess]) -> None:
        """`processes` are on the device before the trial's child starts."""
        self._before = [_stranger(p, "before") for p in processes if not _is_ours(p.pid)]
        self._appeared: dict[int, Stranger] = {}
        self._known = {process.pid for process in processes}
        self._ours_listed = False

    def look(self, processes: list[GpuProcess], child: int) -> None:
        """Note what is on the device while the child with this PID lives."""
        for process in processes:
            pid = process.pid
            if pid in self._appeared:
                seen = self._appeared[pid]
                used = larger(seen.used_bytes, process.used_bytes)
                self._appeared[pid] = replace(seen, used_bytes=used)
            elif pid == child or (pid not in self._known and _is_ours(pid)):
                self._ours_listed = True
                self._known.add(pid)
            elif pid not in self._known:
                self._appeared[pid] = _stranger(process, "during")

    @property
    def told(self) -> bool:
        """Whether NVML listed the trial's own process, be it under a PID of the host."""
        return self._ours_listed or bool(self._appeared)

    def found(self) -> list[Stranger]:
        """All of them. Where PIDs are the host's, one of those that appeared is the child, unknown which."""
        if self._ours_listed:
            return [*self._before, *self._appeared.values()]
        return [*self._before, *[Stranger(seen="during")] * (len(self._appeared) - 1)]


def refuse_if_in_use(device: PlannedDevice, nvml: Nvml) -> None:
    """For `device.require_idle`, before the first trial of a sweep; a CPU is never refused.

    Raises:
        ConfigError: others use the device.
    """
    if device.uuid is None:
        return
    others = Strangers(nvml.processes(device.uuid, graphics=True)).found()
    used = nvml.used_bytes(device.uuid)
    if not DeviceMemory(used_before_bytes=used, strangers=others).in_use_before:
        return
    who = ", ".join(_described(stranger) for stranger in others) or "processes that NVML does not list here"
    amount = "" if used is None else f", {used / MIB:.0f} MiB in all"
    raise ConfigError(
        f"device.require_idle=true is not allowed now: {device.name} is used by {who}{amount}; wait until it "
        "is free, choose another with device.index, or leave require_idle out and read the rows' remarks"
    )


def _is_ours(pid: int) -> bool:
    """Whether this is the present process or descends from it."""
    with suppress(Exception):  # gone, hidden, or a /proc that psutil stumbles over: no reason to end a trial
        process = psutil.Process(pid)
        return os.getpid() in (pid, *(parent.pid for parent in process.parents()))
    return False


def _stranger(process: GpuProcess, seen: Literal["before", "during"]) -> Stranger:
    return Stranger(seen=seen, pid=process.pid, name=_name(process.pid), used_bytes=process.used_bytes)


def _name(pid: int) -> str | None:
    """The name that a process gave itself, without what could move a terminal or break a file's encoding."""
    with suppress(Exception):  # as above
        return "".join(c if c.isprintable() else "?" for c in psutil.Process(pid).name()[:64])
    return None


def _described(stranger: Stranger) -> str:
    parts = [f"pid {stranger.pid}"]
    if stranger.used_bytes is not None:
        parts.append(f"{stranger.used_bytes / MIB:.0f} MiB")
    return f"{stranger.name or 'a process'} ({', '.join(parts)})"
