"""Records and rows as real trials leave them, with whatever a test wants different."""

from dataclasses import replace
from typing import Any

from dmad_sweep.records.plan import Plan, PlannedDevice
from dmad_sweep.records.record import DeviceMemory, Ending, Provenance, Record
from dmad_sweep.records.result import (
    Anatomy,
    Cycle,
    Failure,
    MemoryReport,
    NetworkSize,
    Observed,
    OutOfMemory,
    Peak,
    Result,
    TurnTime,
)
from dmad_sweep.records.settings import Batch, Model, Precision, Resolution
from dmad_sweep.units import GIB, MIB
from plans import make_plan

CARD = PlannedDevice(
    kind="cuda", name="NVIDIA H200", uuid="GPU-1", total_bytes=140 * GIB, used_before_bytes=0
)


def make_gpu_plan(batch: int = 1, side: int = 512, index: int = 0, **changes: Any) -> Plan:
    return make_plan(
        trial_id=f"{index:016x}",
        index=index,
        model=Model("sd15"),
        batch=Batch(batch),
        resolution=Resolution(side, side),
        precision=Precision(),
        device=CARD,
        **changes,
    )


def make_record(plan: Plan | None = None, *, peak_gib: float = 28.5, **changes: Any) -> Record:
    """A trial that went well: two warm-up cycles and three measured ones of 300 and 320 ms."""
    plan = plan or make_gpu_plan()
    peak = round(peak_gib * GIB)
    cycles = [
        Cycle(
            index=index,
            warmup=index <= 2,
            turns=[
                TurnTime(
                    turn="student",
                    compute_s=student_s,
                    enqueue_s=student_s / 2,
                    device_s=student_s,
                    data_s=0.004,
                ),
                TurnTime(turn="fake_score", compute_s=0.320, enqueue_s=0.160, device_s=0.319, data_s=0.002),
            ],
            peak=Peak(allocated_bytes=peak, reserved_bytes=peak + GIB),
        )
        for index, student_s in enumerate((9.0, 0.5, 0.29, 0.3, 0.33), start=1)
    ]
    result = Result(
        status="ok",
        pid=4242,
        environment={"torch": "2.11.0+cu130"},
        networks={
            "student": NetworkSize(
                parameters=4, trained_parameters=4, parameter_bytes=16, gradient_bytes=16, state_bytes=32
            )
        },
        observed=Observed(
            micro_batch=plan.batch.size, height=plan.resolution.height, width=plan.resolution.width
        ),
        memory=MemoryReport(
            meter="cuda_allocator",
            context_bytes=527 * MIB,
            after_load_bytes=8 * GIB,
            first_forward_bytes=11 * GIB,
            first_backward_bytes=12 * GIB,
            peak=Peak(allocated_bytes=peak, reserved_bytes=peak + GIB),
            peak_stage="fake_score.optimizer",
            peak_cycle=2,
            device_peak_bytes=peak + 2 * GIB,
            allocation_retries=0,
            anatomy=Anatomy(
                stage="fake_score.optimizer",
                weight_bytes=8 * GIB,
                gradient_bytes=3 * GIB,
                state_bytes=13 * GIB,
                activation_bytes=peak - 24 * GIB - GIB // 4,
                allocated_bytes=peak,
                reserved_bytes=peak + GIB,
                context_bytes=3 * GIB // 4,
            ),
        ),
        cycles=cycles,
    )
    record = Record(
        status="ok",
        started_at=1_000_000.0 + plan.index,
        ended_at=1_000_010.0 + plan.index,
        plan=plan,
        result=result,
        ending=Ending(pid=4242, exit_code=0, signal=None, wall_s=10.0),
        device_memory=DeviceMemory(
            total_bytes=140 * GIB, used_before_bytes=0, peak_used_bytes=peak + 2 * GIB, samples=9
        ),
        provenance=Provenance(
            host="host", version="0", code_hash="c0de", commit="abc", dirty=True, driver="580.1"
        ),
    )
    return replace(record, **changes)


def make_cpu_record(plan: Plan | None = None) -> Record:
    """`tiny` on a CPU, where the process's memory is all that can be told."""
    record = make_record(plan or make_plan(), peak_gib=0.5)
    assert record.result is not None
    assert record.result.memory is not None
    memory = replace(
        record.result.memory,
        meter="process_rss",
        zero_bytes=GIB,
        context_bytes=None,
        peak=Peak(allocated_bytes=GIB // 2),
        device_peak_bytes=None,
        allocation_retries=None,
        unmeasured={"device_peak_bytes": "a CPU has no device memory"},
    )
    return replace(
        record,
        result=replace(record.result, memory=memory),
        device_memory=DeviceMemory(unmeasured={"peak_used_bytes": "a CPU has no device memory"}),
        provenance=replace(record.provenance, driver=None),
    )


def make_oom(
    plan: Plan | None = None, *, stage: str = "student.backward", cycle: int = 1, certain: bool = True
) -> Record:
    record = make_record(plan)
    assert record.result is not None
    died = OutOfMemory(
        stage=stage, cycle=cycle, requested_bytes=58 * MIB, certain=certain, message="CUDA out of memory."
    )
    assert record.result.memory is not None
    memory = replace(record.result.memory, anatomy=None)
    result = replace(record.result, status="oom", cycles=[], out_of_memory=died, memory=memory)
    return replace(record, status="oom", result=result)


def make_killed(plan: Plan | None = None) -> Record:
    ending = Ending(
        pid=4242,
        exit_code=None,
        signal="SIGKILL",
        wall_s=3.0,
        explanation="ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result",
        last_stage="gan.forward",
        last_cycle=2,
    )
    return make_record(plan, status="killed", result=None, ending=ending)


def make_failed(plan: Plan | None = None) -> Record:
    record = make_record(plan)
    assert record.result is not None
    failure = Failure(
        stage="load", cycle=0, kind="KeyError", message="'unet'\nsecond line", traceback="Traceback …"
    )
    result = replace(record.result, status="failed", cycles=[], memory=None, failure=failure)
    return replace(record, status="failed", result=result)
