"""Real out-of-memory in real children, on a CPU: the process is limited, the stage must be told."""

from dataclasses import replace
from pathlib import Path

import pytest

from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Batch, Model, Optimizer, Resolution
from dmad_sweep.sweep.isolation import ChildServer
from dmad_sweep.units import MIB
from plans import make_plan, save_model
from sweep.conftest import run_in


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Some 37 million parameters and next to no activations: gradients and Adam states are what counts."""
    folder = save_model(tmp_path_factory.mktemp("wide"), channels=(256, 512), layers=2)
    return make_plan(model=Model("tiny", pretrained=str(folder)))


@pytest.fixture(scope="module")
def unlimited(wide: Plan, server: ChildServer, tmp_path_factory: pytest.TempPathFactory) -> Record:
    return run_in(server, wide, TrialFolder(tmp_path_factory.mktemp("unlimited") / "trial"))


def limited(plan: Plan, limit: int) -> Plan:
    return replace(plan, device=replace(plan.device, memory_limit_bytes=limit))


def network_bytes(record: Record) -> tuple[int, int]:
    """Bytes of one UNet, and of all networks together."""
    assert record.result is not None
    sizes = record.result.networks
    return sizes["student"].parameter_bytes, sum(size.parameter_bytes for size in sizes.values())


def test_without_a_limit_it_fits(unlimited: Record) -> None:
    assert unlimited.status == "ok"
    unet, networks = network_bytes(unlimited)
    memory = unlimited.result.memory if unlimited.result else None
    assert memory is not None
    assert memory.after_load_bytes is not None
    assert 0.8 * networks < memory.after_load_bytes < 1.4 * networks
    assert memory.peak.allocated_bytes is not None
    # networks, gradients of one turn, and two Adam states for student, fake score and head
    assert memory.peak.allocated_bytes > networks + unet + 2 * (networks - unet)


@pytest.mark.parametrize(
    ("beyond_networks", "stage"),
    [(-1.5, "load"), (2.6, "student.optimizer")],
)
def test_the_stage_of_an_out_of_memory_is_told(
    beyond_networks: float,
    stage: str,
    wide: Plan,
    unlimited: Record,
    server: ChildServer,
    folder: TrialFolder,
) -> None:
    unet, networks = network_bytes(unlimited)
    record = run_in(server, limited(wide, int(networks + beyond_networks * unet)), folder)
    assert record.status == "oom"
    assert record.result is not None
    died = record.result.out_of_memory
    assert died is not None
    assert (died.stage, died.cycle) == (stage, 0 if stage == "load" else 1)
    assert died.certain
    assert died.requested_bytes is None or died.requested_bytes > 0
    row = row_of(record)
    assert row.peak_allocated_bytes is not None
    assert row.peak_allocated_bytes < networks + (beyond_networks + 1) * unet
    assert row.remarks == ["cpu_memory", "emulated"]


def test_gradients_run_out_in_a_backward(
    wide: Plan, unlimited: Record, server: ChildServer, tmp_path: Path
) -> None:
    """Without optimizer states; what lies between building and stepping is narrow, so several are tried."""
    unet, networks = network_bytes(unlimited)
    plan = replace(wide, optimizer=Optimizer(name="sgd"))
    stages = []
    for beyond in (1.1, 1.2, 1.4, 1.5):
        record = run_in(
            server, limited(plan, int(networks + beyond * unet)), TrialFolder(tmp_path / str(beyond))
        )
        if record.result is not None and record.result.out_of_memory is not None:
            stages.append(record.result.out_of_memory.stage)
    assert any(stage.endswith(".backward") for stage in stages), stages


def test_activations_run_out_in_the_forward(server: ChildServer, folder: TrialFolder) -> None:
    plan = make_plan(batch=Batch(8), resolution=Resolution(768, 768))
    record = run_in(server, limited(plan, 40 * MIB), folder)
    assert record.status == "oom"
    assert record.result is not None
    assert record.result.out_of_memory is not None
    assert record.result.out_of_memory.stage == "student.forward"


def test_a_child_that_leaves_no_room_for_the_next_harms_nobody(
    wide: Plan, server: ChildServer, tmp_path: Path
) -> None:
    """The limit belongs to one child: the next one of the same server has none."""
    assert run_in(server, limited(wide, 40 * MIB), TrialFolder(tmp_path / "a")).status == "oom"
    assert run_in(server, make_plan(), TrialFolder(tmp_path / "b")).status == "ok"
