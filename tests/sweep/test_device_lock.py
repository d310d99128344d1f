"""Two sweeps that start at once on one device take turns."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.records.record import Record
from dmad_sweep.sweep import device_lock

ROOT = Path(__file__).parents[2]
CPU = PlannedDevice(kind="cpu", name="CPU")

HOLDER = """
    import time
    from dmad_sweep.records.plan import PlannedDevice
    from dmad_sweep.sweep import device_lock
    with device_lock.hold(PlannedDevice(kind="cpu", name="CPU")):
        print("held", flush=True)
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "dmad_sweep"


def test_sweeps_that_start_at_once_take_turns(tmp_path: Path) -> None:
    options = ["batch=1,2", "resolution=64", "schedule=quick", "device=cpu", "baseline=false"]
    sweeps = [
        subprocess.Popen(
            [sys.executable, "-m", "dmad_sweep", "-m", *options, f"outputs={tmp_path / name}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    said = [sweep.communicate(timeout=300)[1] for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], said
    trials = [
        read_json(Record, trial.record)
        for name in "ab"
        for sweep in OutputsFolder(tmp_path / name).sweeps()
        for trial in sweep.trials()
    ]
    spans = sorted((record.started_at, record.ended_at) for record in trials)
    assert len(spans) == 4
    for (_, ended), (started, _) in itertools.pairwise(spans):
        assert ended <= started


def test_a_lock_that_is_anothers_is_waited_for_and_dies_with_it() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    said = []

    def on_wait(text: str) -> None:
        said.append(text)
        holder.send_signal(signal.SIGKILL)

    with device_lock.hold(CPU, on_wait):
        assert said == ["waiting: another sweep measures on CPU"]
    holder.wait()


def test_other_users_can_take_it(lock_folder: Path) -> None:
    with device_lock.hold(CPU):
        assert lock_folder.stat().st_mode & 0o7777 == 0o777
        assert device_lock.lock_file(CPU).stat().st_mode & 0o777 == 0o666


def test_where_nothing_can_be_locked_a_trial_runs_all_the_same(lock_folder: Path) -> None:
    lock_folder.write_text("")
    said: list[str] = []
    with device_lock.hold(CPU, said.append):
        pass
    assert len(said) == 1
    assert "cannot be locked" in said[0]
    assert os.fspath(lock_folder) in said[0]
