"""What only a CUDA device can show."""

import json
import os
import pickle
import subprocess
import sys
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
from dmad_sweep.records.settings import Batch, Memory, Model, Optimizer, Phase, Precision, Recipe, Resolution
from dmad_sweep.sweep.devices import Nvml, choose_device
from dmad_sweep.sweep.isolation import ChildServer
from dmad_sweep.units import GIB, MIB
from plans import BF16, FP16, FP32, make_plan
from sweep.conftest import run_in

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(
        device=choose_device(Device(kind="cuda"), Nvml()), batch=Batch(4), resolution=Resolution(512, 512)
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildServer]:
    isolation = ChildServer("fork", tmp_path_factory.mktemp("server") / "server.log")
    yield isolation
    isolation.close()


def memory_of(record: Record) -> MemoryReport:
    assert record.result is not None, record.ending
    assert record.result.memory is not None, record.result.failure
    return record.result.memory


def test_forked_and_spawned_children_measure_the_same_bytes(
    plan: Plan, server: ChildServer, tmp_path: Path
) -> None:
    forked = memory_of(run_in(server, plan, TrialFolder(tmp_path / "fork")))
    spawning = ChildServer("spawn", tmp_path / "server.log")
    spawned = memory_of(run_in(spawning, plan, TrialFolder(tmp_path / "spawn")))
    spawning.close()
    assert forked.peak == spawned.peak
    assert forked.first_cycle == spawned.first_cycle
    assert forked.steady == spawned.steady


@pytest.mark.parametrize("precision", [FP32, BF16, FP16])
@pytest.mark.parametrize("phase", ["train", "inference"])
def test_levels_of_memory_are_in_their_order(
    precision: Precision, phase: str, plan: Plan, server: ChildServer, folder: TrialFolder
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


def test_a_limited_allocator_is_a_smaller_card(plan: Plan, server: ChildServer, tmp_path: Path) -> None:
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


KNOWN_TENSOR = """
import json, sys
import torch
from dmad_sweep.child.memory import CudaMeter
from dmad_sweep.config.schema import Device
from dmad_sweep.sweep.devices import Nvml, choose_device

nvml = Nvml()
planned = choose_device(Device(kind="cuda"), nvml)
meter = CudaMeter(planned, torch.device("cuda", 0))

def reading():
    meter.reset()
    return meter.allocated(), meter.peak().reserved_bytes, nvml.used_bytes(planned.uuid)

before = reading()
tensor = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(json.dumps([after - first for after, first in zip(reading(), before)]))
"""


@pytest.mark.parametrize("size", [64 * MIB + 512, 3 * GIB])
def test_a_known_tensor_shows_to_the_byte(size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KNOWN_TENSOR, str(size)], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    allocated, reserved, used = json.loads(done.stdout)
    print(f"{size} bytes: allocated {allocated}, reserved {reserved}, used by NVML {used}")
    assert allocated == size
    assert 0 <= reserved - size < 2 * MIB  # blocks above 10 MiB are cut in steps of 2 MiB
    assert abs(used - reserved) <= 4 * MIB


CELLS = [
    ("sd15", "dmd2", 1, 512),
    ("sd15", "dmd2", 4, 768),
    ("sd15", "fastgen", 2, 512),
    ("sd15", "sft", 4, 512),
    ("pixart_sigma", "fastgen", 2, 512),
]


@pytest.fixture(scope="module", params=CELLS, ids=lambda cell: "-".join(map(str, cell)))
def whole(
    request: pytest.FixtureRequest,
    plan: Plan,
    server: ChildServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Record:
    """A cell with the whole device to itself."""
    model, recipe, batch, side = request.param
    cell = replace(
        plan,
        model=Model(model),
        recipe=Recipe(name=recipe),
        batch=Batch(batch),
        resolution=Resolution(side, side),
        precision=BF16,
    )
    return run_in(server, cell, TrialFolder(tmp_path_factory.mktemp("whole")))


def test_a_hundredth_decides(whole: Record, server: ChildServer, tmp_path: Path) -> None:
    """1 % below what must fit runs out of memory in a stage; 1 % above what was held passes."""
    memory = memory_of(whole)
    allocated, reserved = memory.peak.allocated_bytes, memory.peak.reserved_bytes
    assert allocated is not None
    assert reserved is not None
    assert memory.anatomy is not None
    context = memory.anatomy.context_bytes
    said = {}
    for name, limit in (("below", 0.99 * (allocated + context)), ("above", 1.01 * (reserved + context))):
        device = replace(whole.plan.device, memory_limit_bytes=int(limit))
        said[name] = run_in(server, replace(whole.plan, device=device), TrialFolder(tmp_path / name))
    below, above = said["below"], said["above"]
    assert below.result is not None
    died = below.result.out_of_memory
    print(
        f"{whole.plan.model.name} {whole.plan.label}: peak {allocated / GIB:.3f}, "
        f"reserved {reserved / GIB:.3f}, context {context / GIB:.3f} GiB; "
        f"1 % below: {below.status} in {died and died.stage}, cycle {died and died.cycle}; "
        f"1 % above: {above.status}"
    )
    assert (below.status, above.status) == ("oom", "ok")
    assert died is not None
    assert died.certain
    assert died.stage.partition(".")[0] in ("student", "scores", "gan", "fake_score")


def test_the_parts_of_a_peak_explain_it(whole: Record) -> None:
    row, anatomy = row_of(whole), memory_of(whole).anatomy
    assert anatomy is not None
    assert whole.result is not None
    sizes = whole.result.networks.values()
    assert anatomy.weight_bytes == sum(size.parameter_bytes + size.buffer_bytes for size in sizes)
    assert anatomy.state_bytes == sum(size.state_bytes for size in sizes)
    assert anatomy.gradient_bytes <= sum(size.gradient_bytes for size in sizes)
    assert row.unexplained_bytes is not None
    assert row.device_peak_bytes is not None
    assert abs(row.unexplained_bytes) <= 0.02 * row.device_peak_bytes


def test_a_snapshot_is_kept_of_the_peak_and_of_the_end_of_memory(
    plan: Plan, server: ChildServer, tmp_path: Path
) -> None:
    for name, limit, status in (("peak", None, "ok"), ("oom", 4 * GIB, "oom")):
        folder = TrialFolder(tmp_path / name)
        asked = replace(
            plan,
            model=Model("sd15"),
            memory=Memory(snapshot=True),
            device=replace(plan.device, memory_limit_bytes=limit),
        )
        record = run_in(server, asked, folder)
        assert record.status == status, record
        with folder.snapshot.open("rb") as stream:
            snapshot = pickle.load(stream)
        actions = {event["action"] for event in snapshot["device_traces"][0]}
        assert ("oom" in actions) == (status == "oom")
        assert any(event["frames"] for event in snapshot["device_traces"][0])
        assert "snapshot" in row_of(record).remarks


def test_eight_bit_adamw_keeps_two_bytes_of_state_for_a_weight(
    plan: Plan, server: ChildServer, folder: TrialFolder
) -> None:
    pytest.importorskip("bitsandbytes")
    asked = replace(plan, model=Model("sd15"), recipe=Recipe(name="sft"), precision=BF16)
    record = run_in(server, replace(asked, optimizer=Optimizer(name="adamw_8bit")), folder)
    assert record.status == "ok", record
    assert record.result is not None
    assert record.result.observed.optimizer_states == {"student": True}
    size = record.result.networks["student"]
    # small tensors keep float32 states, large ones a scale for each block
    assert 2 * size.parameters <= size.state_bytes < 2.2 * size.parameters
