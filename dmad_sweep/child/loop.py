"""The measuring loop: load, warm-up cycles, measured cycles; every way it can end becomes a result."""

import contextlib
import logging
import os
import time
import traceback
from collections.abc import Callable

import torch

from dmad_sweep.child.anatomy import Recording
from dmad_sweep.child.environment import describe
from dmad_sweep.child.exhaustion import Exhaustion, recognise
from dmad_sweep.child.memory import MemoryMeter
from dmad_sweep.child.snapshot import SnapshotFile
from dmad_sweep.child.stages import StageRecorder
from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.progress import ProgressWriter
from dmad_sweep.records.result import Anatomy, Cycle, Failure, Observed, OutOfMemory, Result, Status, TurnTime
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.protocol import Workload

log = logging.getLogger(__name__)


class Measurement:
    """One trial in this process: the schedule's cycles and, on a GPU, one more to look into the peak."""

    def __init__(self, plan: Plan, device: torch.device, meter: MemoryMeter, folder: TrialFolder) -> None:
        self._plan, self._device, self._meter = plan, device, meter
        self._on_gpu = device.type == "cuda"
        self._scheduled = plan.schedule.warmup_cycles + plan.schedule.measured_cycles
        self._stages = StageRecorder(
            meter, ProgressWriter(folder.progress), self._scheduled + int(self._on_gpu)
        )
        self._snapshot = SnapshotFile(folder.snapshot) if self._on_gpu and plan.memory.snapshot else None
        self._anatomy: Anatomy | None = None
        self._why_no_anatomy = "the trial ended before the cycle that looks into the peak"
        self._workload: Workload = create_workload(plan, device, self._stages.span)
        self._cycles: list[Cycle] = []
        self._synchronize: Callable[[], None] = torch.cuda.synchronize if self._on_gpu else lambda: None

    def run(self) -> Result:
        """Never raises: out of memory, a refused combination and any error are results."""
        try:
            with self._stages.span("load"):
                self._workload.load()
            self._stages.loaded()
            for index in range(1, self._scheduled + 1):
                self._cycles.append(self._cycle(index))
            self._look_into_the_peak()
            return self._result("ok")
        except Exception as error:
            # Only the text is kept: the traceback's frames hold the tensors that filled the memory.
            text = traceback.format_exc()
            self._meter.lift_limit()
            with contextlib.suppress(RuntimeError):  # after some CUDA errors nothing can be read any more
                self._stages.interrupted()
            log.error("%s", text)
            exhaustion = recognise(error)
            if exhaustion is not None:
                return self._result("oom", out_of_memory=self._out_of_memory(exhaustion, error))
            unsupported = isinstance(error, UnsupportedError) or "No available kernel" in str(error)
            status: Status = "invalid" if unsupported else "failed"
            return self._result(status, failure=self._failure(error, text))

    def _cycle(self, index: int) -> Cycle:
        warmup = index <= self._plan.schedule.warmup_cycles
        self._stages.begin_cycle(index, warmup)
        turns = [self._turn(index, turn) for turn in self._workload.turns]
        return Cycle(index=index, warmup=warmup, turns=turns, peak=self._stages.cycle_peak())

    def _turn(self, cycle: int, turn: str) -> TurnTime:
        self._synchronize()
        started = time.perf_counter()
        with self._stages.span("data"):
            self._workload.fetch(cycle, turn)
        self._synchronize()
        fetched = time.perf_counter()
        begun = self._mark()
        self._workload.run(cycle, turn)
        enqueued = time.perf_counter()
        ended = self._mark()
        self._synchronize()
        finished = time.perf_counter()
        return TurnTime(
            turn=turn,
            compute_s=finished - fetched,
            enqueue_s=enqueued - fetched,
            device_s=begun.elapsed_time(ended) / 1000 if begun and ended else None,
            data_s=fetched - started,
        )

    def _mark(self) -> torch.cuda.Event | None:
        """A point in the device's work."""
        if not self._on_gpu:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _look_into_the_peak(self) -> None:
        if not self._on_gpu:
            self._why_no_anatomy = "a CPU has no allocator to ask"
            return
        stacks = self._snapshot is not None
        with Recording(self._device, self._workload.inventory(), stacks=stacks) as recording:
            self._stages.on_enter = recording.entering
            peak = self._cycle(self._scheduled + 1).peak.allocated_bytes
            assert peak is not None
            try:
                self._anatomy = recording.anatomy(*self._stages.cycle_peak_place(), allocated_bytes=peak)
            except Exception as error:  # a peak that cannot be explained is still a measured one
                self._why_no_anatomy = str(error)
            if self._snapshot is not None:
                self._snapshot.write()

    def _result(
        self, status: Status, *, out_of_memory: OutOfMemory | None = None, failure: Failure | None = None
    ) -> Result:
        loaded = self._stages.cycle > 0
        return Result(
            status=status,
            pid=os.getpid(),
            environment=describe(self._device),
            networks=self._workload.inventory().sizes() if loaded else {},
            observed=self._workload.inventory().observed() if loaded else Observed(),
            memory=self._stages.report(self._anatomy, self._why_no_anatomy),
            cycles=self._cycles,
            out_of_memory=out_of_memory,
            failure=failure,
        )

    def _out_of_memory(self, exhaustion: Exhaustion, error: Exception) -> OutOfMemory:
        exact = self._meter.requested_when_exhausted()
        return OutOfMemory(
            stage=self._stages.stage,
            cycle=self._stages.cycle,
            requested_bytes=exact if exact is not None else exhaustion.requested_bytes,
            certain=exhaustion.certain,
            message=str(error)[:2000],
        )

    def _failure(self, error: Exception, text: str) -> Failure:
        return Failure(
            stage=self._stages.stage,
            cycle=self._stages.cycle,
            kind=type(error).__name__,
            message=str(error)[:2000],
            traceback=text[-20000:],
        )
