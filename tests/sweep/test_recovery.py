"""What a killed sweep left without a record."""

from pathlib import Path

import pytest
from factories import make_record
from filelock import FileLock

from dmad_sweep.records.codec import read_json, write_json
from dmad_sweep.records.files import OutputsFolder, TrialFolder
from dmad_sweep.records.progress import Progress, ProgressWriter
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import Peak
from dmad_sweep.records.row import row_of
from dmad_sweep.sweep.recovery import recover
from plans import make_plan
from sweep.conftest import PROVENANCE


@pytest.fixture
def outputs(tmp_path: Path) -> OutputsFolder:
    return OutputsFolder(tmp_path)


def left_behind(outputs: OutputsFolder) -> TrialFolder:
    plan = make_plan(sweep="killed")
    trial = outputs.sweep("killed").trial_of(plan)
    trial.path.mkdir(parents=True)
    write_json(trial.plan, plan)
    return trial


def test_an_unfinished_trial_is_told_apart_with_the_stage_it_had_reached(outputs: OutputsFolder) -> None:
    trial = left_behind(outputs)
    peak = Peak(allocated_bytes=123, reserved_bytes=456)
    ProgressWriter(trial.progress).report(Progress(at=1.0, stage="gan.forward", cycle=2, cycles=3, peak=peak))
    assert recover(outputs, PROVENANCE) == 1
    row = row_of(read_json(Record, trial.record))
    assert (row.peak_allocated_bytes, row.peak_reserved_bytes) == (123, 456)
    assert (row.status, row.died_stage, row.died_cycle) == ("killed", "gan.forward", 2)
    assert row.explanation == "its sweep was killed while it was in gan.forward, cycle 2 of 3"


def test_a_result_is_a_result_though_nobody_watched_its_end(outputs: OutputsFolder) -> None:
    trial = left_behind(outputs)
    result = make_record().result
    write_json(trial.result, result)
    assert recover(outputs, PROVENANCE) == 1
    record = read_json(Record, trial.record)
    assert (record.status, record.result) == ("ok", result)


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "status": "o', "[]"])
def test_half_a_result_is_none(text: str, outputs: OutputsFolder) -> None:
    trial = left_behind(outputs)
    trial.result.write_text(text)
    assert recover(outputs, PROVENANCE) == 1
    assert read_json(Record, trial.record).status == "killed"


def test_a_trial_that_is_watched_is_left_alone(outputs: OutputsFolder) -> None:
    trial = left_behind(outputs)
    with FileLock(trial.running):
        assert recover(outputs, PROVENANCE) == 0
    assert not trial.record.exists()
    assert recover(outputs, PROVENANCE) == 1


def test_what_has_a_record_keeps_it_and_what_has_no_plan_stays(outputs: OutputsFolder) -> None:
    trial = left_behind(outputs)
    recover(outputs, PROVENANCE)
    before = trial.record.read_bytes()
    outputs.sweep("killed").trial(1).path.mkdir()
    broken = outputs.sweep("killed").trial(2)
    broken.path.mkdir()
    broken.plan.write_text("{")
    assert recover(outputs, PROVENANCE) == 0
    assert trial.record.read_bytes() == before
    assert not broken.record.exists()
