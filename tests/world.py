"""A card and a training whose stages follow known laws, so that a test knows what advice is true."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.facts import Facts, facts_of
from dmad_sweep.analysis.table import tables
from dmad_sweep.records.plan import Plan, PlannedDevice
from dmad_sweep.records.record import DeviceMemory, Record
from dmad_sweep.records.result import Cycle, NetworkSize, Peak, TurnTime
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Accumulation, Target
from dmad_sweep.units import GIB

CONTEXT, FRAGMENTS = GIB // 2, GIB // 4

LAW = {
    "load": (4.0, 0.0),
    "student.forward": (6.0, 6.0),
    "student.backward": (7.0, 8.0),
    "student.optimizer": (11.0, 0.0),
    "fake_score.forward": (9.0, 6.0),
    "fake_score.backward": (10.0, 9.0),
    "fake_score.optimizer": (13.0, 0.0),
}
"""Of each stage, GiB that live through it and GiB for each million pixels of a micro-batch."""

NETWORKS = {
    name: NetworkSize(
        parameters=GIB // 2,
        trained_parameters=GIB // 2,
        parameter_bytes=2 * GIB,
        gradient_bytes=2 * GIB,
        state_bytes=4 * GIB,
    )
    for name in ("student", "fake_score")
}


def card(gib: float) -> PlannedDevice:
    return PlannedDevice(
        kind="cuda", name="Card", uuid="GPU-1", total_bytes=round(gib * GIB), used_before_bytes=0
    )


def stage_peaks(batch: int, side: int, law: dict[str, tuple[float, float]] = LAW) -> dict[str, int]:
    pixels = batch * side**2 / 1e6
    return {stage: round((constant + slope * pixels) * GIB) for stage, (constant, slope) in law.items()}


def plan_of(batch: int, side: int, card_gib: float, accumulation: int = 1, **changes: Any) -> Plan:
    index = changes.pop("index", batch * 10_000 + side)
    changes |= {"accumulation": Accumulation(accumulation), "device": card(card_gib)}
    return replace(make_gpu_plan(batch, side, index), **changes)


def measured(
    batch: int,
    side: int = 512,
    *,
    card_gib: float = 24,
    law: dict[str, tuple[float, float]] = LAW,
    turn_s: float | None = None,
    data_s: float = 0.001,
    enqueue_share: float = 0.5,
    **plan: Any,
) -> Record:
    """A trial that came to its end: its peaks by the law, its turns 100 ms and 400 ms a million pixels."""
    made = plan_of(batch, side, card_gib, **plan)
    steps = made.accumulation.steps
    seconds = turn_s or steps * (0.1 + 0.4 * batch * side**2 / 1e6)
    by_stage = stage_peaks(batch, side, law)
    stage = max(by_stage, key=lambda name: by_stage[name])
    peak = Peak(allocated_bytes=by_stage[stage], reserved_bytes=by_stage[stage] + FRAGMENTS)
    device_peak = by_stage[stage] + FRAGMENTS + CONTEXT
    record = make_record(made)
    assert record.result is not None
    assert record.result.memory is not None
    memory = replace(
        record.result.memory,
        peak=peak,
        peak_stage=stage,
        first_cycle={name: Peak(allocated_bytes=size) for name, size in by_stage.items()},
        device_peak_bytes=device_peak,
        anatomy=None,
    )
    turns = [
        TurnTime(turn=turn, compute_s=seconds, enqueue_s=enqueue_share * seconds, data_s=data_s)
        for turn in ("student", "fake_score")
    ]
    cycles = [Cycle(index=n, warmup=n <= 2, turns=turns, peak=peak) for n in range(1, 6)]
    return replace(
        record,
        result=replace(record.result, memory=memory, cycles=cycles, networks=NETWORKS),
        device_memory=DeviceMemory(
            total_bytes=round(card_gib * GIB), used_before_bytes=0, peak_used_bytes=device_peak, samples=9
        ),
    )


def ran_out(
    batch: int, side: int = 512, *, stage: str, cycle: int = 1, card_gib: float = 24, **plan: Any
) -> Record:
    """A trial that died of memory in a stage of a cycle, its allocator full of tensors."""
    made = plan_of(batch, side, card_gib, **plan)
    died = make_oom(made, stage=stage, cycle=cycle)
    assert died.result is not None
    assert died.result.memory is not None
    full = Peak(allocated_bytes=round((card_gib - 1) * GIB), reserved_bytes=round((card_gib - 0.75) * GIB))
    networks = NETWORKS if cycle > 0 else {}
    return replace(
        died,
        result=replace(died.result, memory=replace(died.result.memory, peak=full), networks=networks),
        device_memory=DeviceMemory(total_bytes=round(card_gib * GIB), used_before_bytes=0),
    )


def rows_of(records: Sequence[Record]) -> list[Row]:
    return [row_of(record) for record in records]


def facts(*records: Record, target: Target | None = None) -> Facts:
    """Of records that make one table."""
    [found] = facts_of(tables(rows_of(records), whole=True), target or Target())
    return found
