"""Children: fresh processes, forked or spawned; whatever happens to them is told; none is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.progress import ProgressReader
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Model, Resolution, Schedule
from dmad_sweep.sweep.devices import Nvml
from dmad_sweep.sweep.isolation import Child, ChildServer, IsolationError
from dmad_sweep.sweep.trial import run_trial
from plans import make_plan
from sweep.conftest import PROVENANCE, run_in


class Refusing:
    def ready(self) -> None:
        pass

    def start(self, folder: TrialFolder, task: str) -> Child:
        raise AssertionError("a process was started")

    def close(self) -> None:
        pass


ENDLESS = Schedule(warmup_cycles=2, measured_cycles=1_000_000)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_forked_and_spawned_children_are_fresh_and_agree(server: ChildServer, tmp_path: Path) -> None:
    spawning = ChildServer("spawn", tmp_path / "server.log")
    folders = [TrialFolder(tmp_path / name) for name in "abc"]
    records = [
        run_in(isolation, make_plan(), folder)
        for isolation, folder in zip((server, server, spawning), folders, strict=True)
    ]
    spawning.close()
    assert [record.status for record in records] == ["ok"] * 3
    pids = {record.ending.pid for record in records}
    assert len(pids) == 3
    assert os.getpid() not in pids
    results = [record.result for record in records]
    assert all(
        result and result.pid == record.ending.pid for result, record in zip(results, records, strict=True)
    )
    assert len({str(result.networks) for result in results if result}) == 1
    assert len({str(result.observed) for result in results if result}) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, "killed"), (signal.SIGSEGV, "failed")])
def test_a_child_ended_by_a_signal_is_told_with_its_stage(
    number: signal.Signals, status: str, server: ChildServer, folder: TrialFolder
) -> None:
    def kill_in_second_cycle(report: object) -> None:
        if report is not None and getattr(report, "cycle", 0) >= 2:
            children = psutil.Process().children(recursive=True)
            os.kill(max(children, key=lambda child: child.create_time()).pid, number)

    record = run_trial(make_plan(schedule=ENDLESS), folder, server, Nvml(), PROVENANCE, kill_in_second_cycle)
    assert record.status == status
    assert record.ending.signal == number.name
    assert record.ending.last_cycle is not None
    assert record.ending.last_cycle >= 2
    assert record.ending.last_report_at is not None
    assert record.started_at < record.ending.last_report_at < record.ended_at
    assert row_of(record).peak_allocated_bytes is not None
    assert "peak_before_the_end" in row_of(record).remarks
    assert record.ending.explanation is not None
    assert "it left no result" in record.ending.explanation
    if number == signal.SIGSEGV:
        assert "Fatal Python error: Segmentation fault" in (record.ending.log_tail or "")


def test_an_error_in_the_child_is_a_failed_trial_with_its_traceback(
    server: ChildServer, folder: TrialFolder
) -> None:
    (folder.path / "model" / "unet").mkdir(parents=True)
    (folder.path / "model" / "unet" / "config.json").write_text("{}")
    record = run_in(server, make_plan(model=Model("tiny", pretrained=str(folder.path / "model"))), folder)
    assert record.status == "failed"
    assert record.result is not None
    assert record.result.failure is not None
    assert record.result.failure.stage == "load"
    assert "Traceback" in record.result.failure.traceback
    assert "Traceback" in (record.ending.log_tail or "")


def test_a_folder_that_is_no_model_is_an_invalid_trial(server: ChildServer, folder: TrialFolder) -> None:
    record = run_in(server, make_plan(model=Model("tiny", pretrained=str(folder.path))), folder)
    assert record.status == "invalid"
    assert record.result is not None
    assert record.result.failure is not None
    assert "no unet/config.json there" in record.result.failure.message


def test_the_child_inherits_no_pipe_of_the_server(server: ChildServer, folder: TrialFolder) -> None:
    folder.path.mkdir()
    from dmad_sweep.records.codec import write_json

    write_json(folder.plan, make_plan(schedule=ENDLESS))
    child = server.start(folder, "measure")
    try:
        wait_until(lambda: ProgressReader(folder.progress).poll() is not None)
        open_files = [os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")]
        assert not [target for target in open_files if target.startswith("pipe:")]
    finally:
        assert child.kill().code == -signal.SIGKILL


def test_a_dead_server_is_started_again(tmp_path: Path) -> None:
    isolation = ChildServer("fork", tmp_path / "server.log")
    try:
        assert run_in(isolation, make_plan(), TrialFolder(tmp_path / "a")).status == "ok"

        def kill_server(report: object) -> None:
            if report is not None and getattr(report, "cycle", 0) >= 1:
                psutil.Process().children()[-1].kill()

        killed = run_trial(
            make_plan(schedule=ENDLESS),
            TrialFolder(tmp_path / "b"),
            isolation,
            Nvml(),
            PROVENANCE,
            kill_server,
        )
        assert killed.status == "killed"
        assert run_in(isolation, make_plan(), TrialFolder(tmp_path / "c")).status == "ok"
    finally:
        isolation.close()


def test_a_server_that_cannot_import_torch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "diffusers.py").write_text("raise ImportError('this diffusers is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    isolation = ChildServer("fork", tmp_path / "server.log")
    try:
        with pytest.raises(IsolationError, match="cannot be loaded: ImportError: this diffusers is broken"):
            run_in(isolation, make_plan(), TrialFolder(tmp_path / "a"))
    finally:
        isolation.close()


def test_the_server_leaves_out_what_initialises_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bitsandbytes does on a GPU, and diffusers imports it wherever it is installed."""
    distribution = tmp_path / "bitsandbytes-0.48.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: bitsandbytes\nVersion: 0.48.0\n")
    (tmp_path / "bitsandbytes.py").write_text(
        "import torch\ntorch.cuda.is_initialized = lambda: True\nprint('initialised')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    by_diffusers = [sys.executable, "-c", "import diffusers.quantizers"]
    assert "initialised" in subprocess.run(by_diffusers, capture_output=True, text=True).stdout
    isolation = ChildServer("fork", tmp_path / "server.log")
    try:
        assert run_in(isolation, make_plan(), TrialFolder(tmp_path / "a")).status == "ok"
    finally:
        isolation.close()


LAUNCHER = """
    import sys
    from pathlib import Path
    from dmad_sweep.records.files import TrialFolder
    from dmad_sweep.sweep.isolation import ChildServer
    from sweep.conftest import run_in
    from sweep.test_isolation import ENDLESS
    from plans import make_plan

    if __name__ == "__main__":
        folder = Path(sys.argv[1])
        isolation = ChildServer(sys.argv[2], folder / "log")
        run_in(isolation, make_plan(schedule=ENDLESS), TrialFolder(folder / "t"))
"""


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_orphan_is_left_when_the_launcher_is_killed(
    isolation: str, number: signal.Signals, tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "launcher.py").write_text(textwrap.dedent(LAUNCHER))
    launcher = subprocess.Popen(
        [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path), isolation],
        env=os.environ | {"PYTHONPATH": f"{root}:{root / 'tests'}"},
    )
    reader = ProgressReader(tmp_path / "t" / "progress.jsonl")
    wait_until(lambda: (report := reader.poll()) is not None and report.cycle >= 1)
    family = psutil.Process(launcher.pid).children(recursive=True)
    assert len(family) == 2  # the server and its child
    launcher.send_signal(number)
    launcher.wait(10)
    wait_until(lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], 10)


def test_an_impossible_combination_starts_no_process(folder: TrialFolder) -> None:
    plan = make_plan(model=Model("sd3_medium"), resolution=Resolution(504, 512))
    record = run_in(Refusing(), plan, folder)
    assert (record.status, record.result, record.ending.pid) == ("invalid", None, None)
    row = row_of(record)
    assert row.explanation is not None
    assert "sd3_medium takes multiples of 16 pixels" in row.explanation
    assert read_json(Record, folder.record) == record


def signal_once_begun(folder: TrialFolder, server: ChildServer, number: signal.Signals) -> threading.Thread:
    """Signals the measured process when it has reached its second cycle."""

    def wait_and_signal() -> None:
        progress = ProgressReader(folder.progress)
        wait_until(lambda: (told := progress.poll()) is not None and told.cycle > 1)
        (child,) = psutil.Process(server._process.pid).children()
        child.send_signal(number)

    thread = threading.Thread(target=wait_and_signal)
    thread.start()
    return thread


def test_a_trial_that_takes_too_long_is_ended(server: ChildServer, folder: TrialFolder) -> None:
    plan = make_plan(schedule=replace(ENDLESS, timeout_s=4.0))
    record = run_in(server, plan, folder)
    assert (record.status, record.ending.signal) == ("timeout", "SIGTERM")
    row = row_of(record)
    assert row.explanation is not None
    assert "it took more than schedule.timeout_s=4 seconds" in row.explanation
    assert row.died_stage is not None
    assert record.ending.wall_s < 30


def test_a_trial_that_reports_nothing_is_ended(server: ChildServer, folder: TrialFolder) -> None:
    thread = signal_once_begun(folder, server, signal.SIGSTOP)
    record = run_in(server, make_plan(schedule=replace(ENDLESS, stall_s=3.0)), folder)
    thread.join()
    assert record.status == "timeout"
    assert record.ending.explanation is not None
    assert "it reported no progress for schedule.stall_s=3 seconds" in record.ending.explanation
    assert record.ending.last_cycle is not None


def test_no_bound_ends_a_trial_that_goes_on(server: ChildServer, folder: TrialFolder) -> None:
    plan = make_plan(schedule=Schedule(warmup_cycles=2, measured_cycles=4, timeout_s=None, stall_s=None))
    assert run_in(server, plan, folder).status == "ok"
