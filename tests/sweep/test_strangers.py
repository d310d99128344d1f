"""Others on the GPU: refused, remarked or noticed while a trial runs. NVML is played by `Driver`."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
from factories import make_gpu_plan

from dmad_sweep.config.schema import Config, Device, Sweep
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.record import IDLE_BYTES, Record, Stranger
from dmad_sweep.records.row import row_of
from dmad_sweep.sweep import device_watch
from dmad_sweep.sweep.devices import GpuProcess, Nvml
from dmad_sweep.sweep.runner import TrialRunner
from dmad_sweep.sweep.trial import run_trial
from dmad_sweep.units import GIB, MIB
from sweep.conftest import PROVENANCE

CHILD, FOREIGN, OTHER = 4_000_001, 4_000_002, 4_000_003
"""PIDs that no process here has: by default Linux stays below them."""


def process(pid: int | None, used_bytes: int | None = GIB) -> Any:
    """As the binding returns it."""
    return SimpleNamespace(pid=pid, usedGpuMemory=used_bytes)


@dataclass
class Driver:
    """What NVML says of the one GPU."""

    used_bytes: int = 4 * MIB
    compute: list[Any] = field(default_factory=list)
    graphics: list[Any] = field(default_factory=list)
    error: Exception | None = None

    def listed(self, processes: list[Any]) -> list[Any]:
        if self.error:
            raise self.error
        return processes


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(
            total=140 * GIB, used=driver.used_bytes, reserved=0
        ),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: driver.listed(driver.compute),
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: driver.listed(driver.graphics),
    }.items():
        monkeypatch.setattr(pynvml, name, answer)
    return driver


@pytest.fixture
def own() -> Iterator[int]:
    """The PID of a process that descends from this one."""
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield started.pid
    started.communicate()


def plan_first(outputs: Path, *, require_idle: bool = True, kind: str = "cuda", index: int = 0) -> None:
    device = Device(kind=kind, require_idle=require_idle)
    settings = Config(device=device, outputs=str(outputs), sweep=Sweep(name="s"))
    TrialRunner("s").plan(settings, index)


def test_a_process_of_somebody_else_is_refused_by_name(driver: Driver, tmp_path: Path) -> None:
    parent = psutil.Process(os.getppid())
    driver.compute = [process(parent.pid, 3 * GIB)]
    driver.graphics = [process(OTHER, None), process(parent.pid, 3 * GIB)]
    driver.used_bytes = 3100 * MIB
    with pytest.raises(ConfigError) as refused:
        plan_first(tmp_path)
    assert str(refused.value) == (
        f"device.require_idle=true is not allowed now: NVIDIA H200 is used by {parent.name()} "
        f"(pid {parent.pid}, 3072 MiB), a process (pid {OTHER}), 3100 MiB in all; wait until it is free, "
        "choose another with device.index, or leave require_idle out and read the rows' remarks"
    )
    plan_first(tmp_path, require_idle=False)
    plan_first(tmp_path, kind="cpu")


@pytest.mark.parametrize("listed", [[], [process(None)], [process(0)], [process(7, 1 << 60)]])
def test_where_nvml_lists_nobody_the_memory_in_use_decides(
    listed: list[Any], driver: Driver, tmp_path: Path
) -> None:
    driver.compute, driver.used_bytes = listed, IDLE_BYTES
    plan_first(tmp_path)
    driver.used_bytes = IDLE_BYTES + MIB
    with pytest.raises(ConfigError, match="processes that NVML does not list here, 513 MiB in all"):
        plan_first(tmp_path)


def test_a_sweep_that_has_begun_is_not_refused_for_what_its_own_trials_hold(
    driver: Driver, own: int, tmp_path: Path
) -> None:
    driver.compute = [process(own), process(os.getpid())]
    plan_first(tmp_path)
    driver.compute = [process(FOREIGN)]
    with pytest.raises(ConfigError):
        plan_first(tmp_path)
    (tmp_path / "sweeps/s/trials/000").mkdir(parents=True)
    plan_first(tmp_path, index=1)


@dataclass
class Child:
    """Each poll of a child of this PID takes the next step, before it is looked at; then it ends."""

    steps: list[Callable[[], None]]
    pid: int = CHILD

    def wait(self, timeout_s: float) -> int | None:
        if not self.steps:
            return 0
        self.steps.pop(0)()
        return None

    def ready(self) -> None: ...

    def start(self, folder: TrialFolder, task: str) -> "Child":
        return self

    def close(self) -> None: ...


Watch = Callable[..., Record]


@pytest.fixture
def watch(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Run a trial during which NVML lists, one after the other, these sets of processes."""
    monkeypatch.setattr(device_watch, "PROCESS_SAMPLING_PERIOD_S", 0.0)

    def watch(*listings: list[Any]) -> Record:
        steps = [lambda listing=listing: setattr(driver, "compute", listing) for listing in listings]
        folder = TrialFolder(tmp_path / "trial")
        record = run_trial(make_gpu_plan(), folder, Child(steps), Nvml(), PROVENANCE)
        assert read_json(Record, folder.record) == record
        return record

    return watch


def test_a_device_that_is_used_before_a_trial_is_remarked(driver: Driver, watch: Watch) -> None:
    driver.graphics = [process(OTHER, 30 * MIB)]
    record = watch([process(CHILD), process(OTHER, 30 * MIB)])
    assert record.device_memory.strangers == [Stranger(seen="before", pid=OTHER, used_bytes=30 * MIB)]
    assert row_of(record).remarks == ["device_in_use"]


def test_memory_that_is_used_before_a_trial_is_remarked(driver: Driver, watch: Watch) -> None:
    driver.used_bytes = IDLE_BYTES
    assert row_of(watch([process(CHILD)])).remarks == []
    driver.used_bytes += MIB
    row = row_of(watch([process(CHILD)]))
    assert (row.remarks, row.used_before_bytes) == (["device_in_use"], 513 * MIB)


def test_a_stranger_that_appears_is_noticed_and_kept(watch: Watch) -> None:
    record = watch(
        [process(OTHER, GIB)],  # before the child has a context
        [process(CHILD, 5 * GIB), process(OTHER, 2 * GIB)],
        [process(CHILD, 6 * GIB)],
    )
    assert record.device_memory.strangers == [Stranger(seen="during", pid=OTHER, used_bytes=2 * GIB)]
    assert record.device_memory.process_peak_bytes == 6 * GIB
    assert row_of(record).remarks == ["stranger"]


def test_the_child_and_its_descendants_are_no_strangers(own: int, watch: Watch) -> None:
    record = watch([], [process(CHILD)], [process(CHILD), process(own), process(os.getpid())])
    assert record.device_memory.strangers == []
    assert "strangers" not in record.device_memory.unmeasured


def test_under_pids_of_the_host_one_that_appears_is_the_child(watch: Watch) -> None:
    record = watch([process(FOREIGN)], [process(FOREIGN)])
    assert record.device_memory.strangers == []
    assert record.device_memory.process_peak_bytes is None
    assert "strangers" not in record.device_memory.unmeasured
    assert row_of(record).remarks == []


def test_under_pids_of_the_host_others_are_counted(driver: Driver, watch: Watch) -> None:
    driver.compute = [process(7 + OTHER)]  # was there before
    record = watch([process(7 + OTHER), process(FOREIGN)], [process(OTHER), process(FOREIGN)])
    assert [(s.seen, s.pid) for s in record.device_memory.strangers] == [
        ("before", 7 + OTHER),
        ("during", None),
    ]
    assert row_of(record).remarks == ["device_in_use", "stranger"]


@pytest.mark.parametrize("listing", [[], [process(None, None)]])
def test_where_not_even_the_child_is_listed_strangers_are_unmeasured(
    listing: list[Any], watch: Watch
) -> None:
    record = watch(listing)
    assert record.device_memory.strangers == []
    assert "others may be hidden" in record.device_memory.unmeasured["strangers"]


@pytest.mark.parametrize(
    "error", [pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED), RuntimeError("not of this version")]
)
def test_an_error_of_nvml_ends_neither_the_check_nor_a_trial(
    error: Exception, driver: Driver, watch: Watch, tmp_path: Path
) -> None:
    driver.error = error
    plan_first(tmp_path)
    record = watch([process(CHILD)])
    assert record.device_memory.peak_used_bytes == driver.used_bytes
    assert "strangers" in record.device_memory.unmeasured


def test_a_process_that_psutil_cannot_read_is_a_stranger_without_a_name(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(pid: int) -> psutil.Process:
        raise RuntimeError("line 'btime' not found in /proc/stat")

    monkeypatch.setattr(psutil, "Process", broken)
    found = watch([process(CHILD), process(1)]).device_memory.strangers
    assert found == [Stranger(seen="during", pid=1, used_bytes=GIB)]


def test_a_name_cannot_move_a_terminal_nor_break_a_record(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = SimpleNamespace(name=lambda: "\x1b[2Jevil\udcff", parents=list)
    monkeypatch.setattr(psutil, "Process", lambda pid: named)
    found = watch([process(CHILD), process(1)]).device_memory.strangers
    assert [stranger.name for stranger in found] == ["?[2Jevil?"]


def test_the_list_that_holds_the_drivers_lock_is_left_alone_while_a_trial_runs(driver: Driver) -> None:
    driver.compute, driver.graphics = [process(CHILD)], [process(OTHER, 0)]
    assert Nvml().processes("GPU-1") == [GpuProcess(pid=CHILD, used_bytes=GIB)]
    assert Nvml().processes("GPU-1", graphics=True)[1] == GpuProcess(pid=OTHER, used_bytes=None)
