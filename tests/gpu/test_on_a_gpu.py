"""What only a CUDA device can show."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dmad_sweep.config.schema import Device
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import MemoryReport
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Batch, Phase, Precision, Resolution
from dmad_sweep.sweep.devices import Nvml, choose_device
from dmad_sweep.sweep.isolation import ForkIsolation, SpawnIsolation
from dmad_sweep.units import GIB, MIB
from plans import BF16, FP16, FP32, make_plan
from sweep.conftest import run_in

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(
        device=choose_device(Device(kind="cuda"), Nvml()), batch=Batch(4), resolution=Resolution(512, 512)
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkIsolation]:
    isolation = ForkIsolation(tmp_path_factory.mktemp("server") / "server.log")
    yield isolation
    isolation.close()


def memory_of(record: Record) -> MemoryReport:
    assert record.result is not None, record.ending
    assert record.result.memory is not None, record.result.failure
    return record.result.memory


def test_forked_and_spawned_children_measure_the_same_bytes(
    plan: Plan, server: ForkIsolation, tmp_path: Path
) -> None:
    forked = memory_of(run_in(server, plan, TrialFolder(tmp_path / "fork")))
    spawned = memory_of(run_in(SpawnIsolation(), plan, TrialFolder(tmp_path / "spawn")))
    assert forked.peak == spawned.peak
    assert forked.first_cycle == spawned.first_cycle
    assert forked.steady == spawned.steady


@pytest.mark.parametrize("precision", [FP32, BF16, FP16])
@pytest.mark.parametrize("phase", ["train", "inference"])
def test_levels_of_memory_are_in_their_order(
    precision: Precision, phase: str, plan: Plan, server: ForkIsolation, folder: TrialFolder
) -> None:
    record = run_in(server, replace(plan, precision=precision, phase=Phase(phase)), folder)
    assert record.status == "ok", record
    memory, row = memory_of(record), row_of(record)
    assert memory.peak.allocated_bytes is not None
    assert memory.peak.reserved_bytes is not None
    assert memory.context_bytes is not None
    assert 0 < memory.peak.allocated_bytes <= memory.peak.reserved_bytes
    assert row.device_peak_bytes is not None
    assert row.device_peak_bytes >= memory.peak.reserved_bytes + memory.context_bytes
    assert row.device_peak_bytes < memory.peak.reserved_bytes + memory.context_bytes + GIB
    assert row.headroom_bytes == (row.device_total_bytes or 0) - row.device_peak_bytes
    assert record.device_memory.samples > 0
    assert row.remarks == []


def test_a_limited_allocator_is_a_smaller_card(plan: Plan, server: ForkIsolation, tmp_path: Path) -> None:
    whole = row_of(run_in(server, plan, TrialFolder(tmp_path / "whole")))
    assert whole.device_peak_bytes is not None
    for name, limit, status in (
        ("room", whole.device_peak_bytes + 64 * MIB, "ok"),
        ("tight", whole.device_peak_bytes - 200 * MIB, "oom"),
    ):
        limited = replace(plan, device=replace(plan.device, memory_limit_bytes=limit))
        record = run_in(server, limited, TrialFolder(tmp_path / name))
        assert record.status == status, record
        row = row_of(record)
        assert row.headroom_bytes is not None
        assert row.headroom_bytes > -64 * MIB
        if status == "oom":
            assert record.result is not None
            assert record.result.out_of_memory is not None
            assert record.result.out_of_memory.certain
            assert record.result.out_of_memory.requested_bytes
