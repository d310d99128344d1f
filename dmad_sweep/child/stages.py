"""Stages of a trial as one-line spans: the peak of each, and where it was when an exception came."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dmad_sweep.child.memory import MemoryMeter
from dmad_sweep.records.progress import Progress, ProgressWriter
from dmad_sweep.records.result import Anatomy, MemoryReport, Peak, larger

BETWEEN = "between stages"


class StageRecorder:
    """Gives workloads their span and keeps the highest memory of each stage.

    The meter's peak is read and reset at both ends of every span, so no allocation between two spans is
    lost from the trial's peak. Reading it needs no synchronisation: the caching allocator works on the
    host, in the order of the program.
    """

    def __init__(self, meter: MemoryMeter, progress: ProgressWriter, cycles: int) -> None:
        self.stage = "start"
        self.cycle = 0
        self._meter, self._progress, self._cycles = meter, progress, cycles
        self._warmup = True
        self._peak = Peak()
        self._peak_stage: str | None = None
        self._peak_cycle: int | None = None
        self._cycle_peak = Peak()
        self._first: dict[str, Peak] = {}
        self._steady: dict[str, Peak] = {}
        self._until_first: dict[str, int | None] = {}
        self._after_load: int | None = None
        self._device_peak: int | None = None
        self._cycle_stage = BETWEEN
        self._beyond_allocator: int | None = None
        self.on_enter: Callable[[str], None] = lambda stage: None
        """Called with a stage's name before its block runs."""

    @contextmanager
    def span(self, stage: str) -> Iterator[None]:
        """Name the stage of a block. Left by an exception, the stage stays the current one."""
        self._settle(BETWEEN)
        self.stage = stage
        self._progress.report(
            Progress(at=time.time(), stage=stage, cycle=self.cycle, cycles=self._cycles, peak=self._peak)
        )
        self.on_enter(stage)
        yield
        self._settle(stage)
        if stage not in self._until_first:
            self._until_first[stage] = self._peak.allocated_bytes
        self.stage = BETWEEN

    def begin_cycle(self, index: int, warmup: bool) -> None:
        self.cycle, self._warmup, self._cycle_peak = index, warmup, Peak()

    def cycle_peak(self) -> Peak:
        """Highest memory of the cycle that is ending."""
        self._settle(BETWEEN)
        return self._cycle_peak

    def cycle_peak_place(self) -> tuple[str, int]:
        """Stage of the cycle's peak, and what the device held at its end beyond the allocator's memory."""
        return self._cycle_stage, self._beyond_allocator or 0

    def loaded(self) -> None:
        """Note what is in use once everything is built."""
        self._after_load = self._meter.allocated()

    def interrupted(self) -> None:
        """An exception left the current stage: take its peak into account."""
        self._settle(self.stage)

    def report(self, anatomy: Anatomy | None, why_none: str | None) -> MemoryReport:
        """`why_none` tells why there is no anatomy."""
        meter = self._meter
        return MemoryReport(
            meter=meter.name,
            zero_bytes=meter.zero_bytes,
            context_bytes=meter.context_bytes,
            limit_bytes=meter.limit_bytes,
            after_load_bytes=self._after_load,
            first_forward_bytes=self._until_first.get("student.forward"),
            first_backward_bytes=self._until_first.get("student.backward"),
            peak=self._peak,
            peak_stage=self._peak_stage,
            peak_cycle=self._peak_cycle,
            first_cycle=self._first,
            steady=self._steady,
            device_peak_bytes=self._device_peak,
            allocation_retries=meter.retries(),
            anatomy=anatomy,
            unmeasured=meter.unmeasured | ({"anatomy": why_none} if anatomy is None and why_none else {}),
        )

    def _settle(self, stage: str) -> None:
        peak = self._meter.peak()
        self._meter.reset()
        self._device_peak = larger(self._device_peak, self._meter.device_used())
        if (peak.allocated_bytes or 0) > (self._peak.allocated_bytes or 0):
            self._peak_stage, self._peak_cycle = stage, self.cycle
        self._peak = highest(self._peak, peak)
        if (peak.allocated_bytes or 0) > (self._cycle_peak.allocated_bytes or 0):
            self._cycle_stage, self._beyond_allocator = stage, self._meter.beyond_allocator()
        self._cycle_peak = highest(self._cycle_peak, peak)
        if stage == BETWEEN or "steady" in self._meter.unmeasured:
            return
        if self.cycle <= 1:
            self._first[stage] = highest(self._first.get(stage, Peak()), peak)
        elif not self._warmup:
            self._steady[stage] = highest(self._steady.get(stage, Peak()), peak)


def highest(first: Peak, second: Peak) -> Peak:
    """The larger of each field; None only where both are."""
    return Peak(
        allocated_bytes=larger(first.allocated_bytes, second.allocated_bytes),
        reserved_bytes=larger(first.reserved_bytes, second.reserved_bytes),
    )
