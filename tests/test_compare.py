"""Two sweeps side by side."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.compare import compared, render_comparison
from dmad_sweep.records.codec import write_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.plan import PlannedDevice
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.report import main
from dmad_sweep.tracking.store import Store
from dmad_sweep.units import GIB

OTHER = PlannedDevice(kind="cuda", name="NVIDIA L40S", uuid="GPU-2", total_bytes=48 * GIB)


def here(batch: int, index: int, **changes: object) -> Record:
    return make_record(replace(make_gpu_plan(batch, 512, index), sweep="here"), **changes)  # type: ignore[arg-type]


def there(batch: int, index: int, peak_gib: float) -> Record:
    plan = replace(make_gpu_plan(batch, 512, index), sweep="there", device=OTHER, trial_id=f"{index:015x}f")
    return make_record(plan, peak_gib=peak_gib)


HERE = [here(1, 0), here(2, 1, peak_gib=30.0), here(8, 2)]
THERE = [
    there(2, 0, 33.0),
    make_oom(replace(there(1, 1, 1.0).plan)),
    there(16, 2, 40.0),
]


def test_row_by_row_with_ratios_and_what_differs() -> None:
    comparison = compared(("here", "there"), map(row_of, HERE), map(row_of, THERE))
    shown = render_comparison(comparison, "terminal", width=120).splitlines()
    body = [line.split() for line in shown[shown.index(next(x for x in shown if x.startswith("──"))) + 1 :]]
    assert body[0][:5] == ["1", "512", "28.50", "28.50", "–"]
    assert body[0][-3:] == ["backward", "OOM", "(student.backward)"]
    assert body[1][:5] == ["2", "512", "30.00", "33.00", "×1.10"]
    assert "first: here; second: there" in shown
    assert "they differ in device: NVIDIA H200 with 140.00 GiB and NVIDIA L40S with 48.00 GiB" in shown
    assert any(line.startswith("the numbers do not transfer between machines") for line in shown)
    assert "left out: 1 combinations of the first and 1 of the second that the other lacks" in shown
    markdown = render_comparison(comparison, "markdown", language="zh")
    assert "| 2 | 512 | 30.00 | 33.00 | ×1.10 |" in markdown
    assert "数字不能在机器之间套用" in markdown


def test_another_commit_on_the_same_machine() -> None:
    rows = [row_of(record) for record in HERE]
    comparison = compared(("a", "b"), rows, [replace(row, code="beef") for row in rows])
    shown = render_comparison(comparison, "terminal", width=120)
    assert "they differ in code: c0de and beef" in shown
    assert "transfer" not in shown
    assert "left out" not in shown


def test_for_programs() -> None:
    comparison = compared(("here", "there"), map(row_of, HERE), map(row_of, THERE))
    first, second = csv.DictReader(io.StringIO(render_comparison(comparison, "csv")))
    assert (first["second_status"], first["peak_ratio"]) == ("oom", "")
    assert float(second["peak_ratio"]) == pytest.approx(1.1)
    assert json.loads(render_comparison(comparison, "json"))[1]["first_peak_allocated_gib"] == 30.0


def test_nothing_in_common() -> None:
    comparison = compared(("a", "b"), [row_of(HERE[0])], [row_of(THERE[2])])
    for style in ("terminal", "markdown"):
        assert "no combination is in both" in render_comparison(comparison, style)


def test_the_command_takes_names_and_run_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = OutputsFolder(tmp_path / "outputs")
    monkeypatch.setenv("DMAD_OUTPUTS", str(outputs.path))
    store = Store.open(None, "dmad_sweep", outputs)
    for record in HERE + THERE:
        store.begin_sweep(record.plan.sweep)
        folder = outputs.sweep(record.plan.sweep).trial(record.plan.index)
        folder.path.mkdir(parents=True)
        write_json(folder.record, record)
        store.log_trial(record, folder)
    assert main(["report.compare=here,there"]) == 0
    by_name = capsys.readouterr().out
    assert "first: here; second: there" in by_name
    assert main([f"report.compare={store._find_sweep('here')},there"]) == 0
    assert capsys.readouterr().out == by_name
    for arguments, code, said in (
        (["report.compare=here"], 2, "name two sweeps: report.compare=A,B"),
        (["report.compare=here,there,here"], 2, "name two sweeps: report.compare=A,B"),
        (["report.compare=here,nowhere"], 1, "there is no such sweep"),
        (["report.compare=here,there", "report.format=html"], 2, "terminal, markdown, csv and json"),
    ):
        assert main(arguments) == code
        assert said in capsys.readouterr().err
