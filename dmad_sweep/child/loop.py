"""The measuring loop: load, warm-up cycles, measured cycles; every way it can end becomes a result."""

import logging
import os
import time
import traceback
from collections.abc import Callable

import torch

from dmad_sweep.child.environment import describe
from dmad_sweep.child.exhaustion import Exhaustion, recognise
from dmad_sweep.child.memory import MemoryMeter
from dmad_sweep.child.stages import StageRecorder
from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.progress import ProgressWriter
from dmad_sweep.records.result import Cycle, Failure, Observed, OutOfMemory, Result, Status, TurnTime
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.protocol import Workload

log = logging.getLogger(__name__)


class Measurement:
    """One trial in this process."""

    def __init__(
        self, plan: Plan, device: torch.device, meter: MemoryMeter, progress: ProgressWriter
    ) -> None:
        self._plan, self._device, self._meter = plan, device, meter
        self._total = plan.schedule.warmup_cycles + plan.schedule.measured_cycles
        self._stages = StageRecorder(meter, progress, self._total)
        self._workload: Workload = create_workload(plan, device, self._stages.span)
        self._cycles: list[Cycle] = []
        self._synchronize: Callable[[], None] = (
            torch.cuda.synchronize if device.type == "cuda" else lambda: None
        )

    def run(self) -> Result:
        """Never raises: out of memory, a refused combination and any error are results."""
        try:
            with self._stages.span("load"):
                self._workload.load()
            self._stages.loaded()
            for index in range(1, self._total + 1):
                self._cycles.append(self._cycle(index))
            return self._result("ok")
        except Exception as error:
            # Only the text is kept: the traceback's frames hold the tensors that filled the memory.
            text = traceback.format_exc()
            self._meter.lift_limit()
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
        self._workload.run(cycle, turn)
        self._synchronize()
        return TurnTime(turn=turn, compute_s=time.perf_counter() - fetched, data_s=fetched - started)

    def _result(
        self, status: Status, *, out_of_memory: OutOfMemory | None = None, failure: Failure | None = None
    ) -> Result:
        loaded = self._stages.cycle > 0
        return Result(
            status=status,
            pid=os.getpid(),
            environment=describe(self._device),
            networks=self._workload.sizes() if loaded else {},
            observed=self._workload.observed() if loaded else Observed(),
            memory=self._stages.report(),
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
