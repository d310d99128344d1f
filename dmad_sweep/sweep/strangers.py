"""Who else uses a GPU. Others' processes are looked at, never touched."""

import os
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import psutil

from dmad_sweep.records.record import Stranger
from dmad_sweep.records.result import larger
from dmad_sweep.sweep.devices import GpuProcess


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
