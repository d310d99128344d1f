"""A disk that is really full, because a child filled it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.record import Record
from faults.misbehaviour import Misbehaviour


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_costs_no_finished_trial_and_is_told(small_disk: Path, tmp_path: Path) -> None:
    filler = small_disk / "filler"
    misbehaviour = Misbehaviour(tmp_path)
    misbehaviour.start(
        "def fill():\n"
        f"    with open({str(filler)!r}, 'wb') as file:\n"
        "        while True: file.write(bytes(2**20)); file.flush()\n"
        "on_cycle(2, fill)"
    )
    outputs = OutputsFolder(small_disk / "outputs")
    command = [
        *(sys.executable, "-m", "dmad_sweep", "-m", "batch=1,2", "resolution=64", "schedule=quick"),
        *("device=cpu", "baseline=false", f"outputs={outputs.path}"),
    ]
    environment = os.environ | misbehaviour.environment
    full = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert full.returncode == 1
    assert "cannot be written (No space left on device); what was measured is kept" in full.stderr
    assert "Traceback" not in full.stderr
    (sweep,) = outputs.sweeps()
    record = read_json(Record, sweep.trial(0).record)
    assert record.status == "failed"
    assert "it left no result, and no space is left on the disk of outputs" in (
        record.ending.explanation or ""
    )
    assert not list(sweep.path.rglob(".reserve"))

    filler.unlink()
    misbehaviour.stop()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert again.returncode == 0, again.stderr
    records = [read_json(Record, trial.record) for trial in outputs.sweeps()[-1].trials()]
    assert [record.status for record in records] == ["ok", "ok"]
