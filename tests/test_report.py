"""The report's command: the table again, from the store alone."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.table import render
from dmad_sweep.config.schema import Report
from dmad_sweep.records.codec import write_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Phase, Target
from dmad_sweep.report import main, show
from dmad_sweep.tracking.store import Store

FIRST = [make_record(replace(make_gpu_plan(index=0), sweep="first"))]
SECOND = [
    make_record(replace(make_gpu_plan(1, 512, 1), sweep="second")),
    make_oom(replace(make_gpu_plan(2, 512, 2), sweep="second")),
]


def fill(store: Store, outputs: OutputsFolder, records: list[Record]) -> None:
    for record in records:
        folder = outputs.sweep(record.plan.sweep).trial(record.plan.index)
        folder.path.mkdir(parents=True)
        write_json(folder.record, record)
        store.begin_sweep(record.plan.sweep)
        store.log_trial(record, folder)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> OutputsFolder:
    """Two sweeps in a project's store."""
    project = tmp_path_factory.mktemp("project")
    (project / "pyproject.toml").touch()
    folder = OutputsFolder(project / "outputs")
    store = Store.open(None, "dmad_sweep", folder)
    fill(store, folder, FIRST)
    fill(store, folder, SECOND)
    return folder


@pytest.fixture
def project(outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is somewhere below the project."""
    monkeypatch.delenv("DMAD_OUTPUTS", raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    below = outputs.path.parent / "deep" / "down"
    below.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(below)
    return outputs.path.parent


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "records"),
    [
        ([], SECOND),
        (["report.sweep=latest"], SECOND),
        (["report.sweep=first"], FIRST),
        (["report.sweep=all"], FIRST + SECOND),
    ],
)
@pytest.mark.parametrize("style", ["terminal", "markdown", "csv"])
def test_any_sweep_in_any_format(
    arguments: list[str],
    records: list[Record],
    style: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = everything_in(project)
    assert main([*arguments, f"report.format={style}"]) == 0
    printed = capsys.readouterr()
    assert printed.out == render([row_of(record) for record in records], style, width=140, target=Target())
    assert printed.err == ""
    assert everything_in(project) == before


def test_baselines_of_other_sweeps_are_asked_for_where_the_shown_one_lacks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OutputsFolder(tmp_path / "outputs")
    store = Store.open(None, "dmad_sweep", folder)
    inference = make_record(
        replace(make_gpu_plan(index=9, phase=Phase("inference")), sweep="before"), peak_gib=3.25
    )
    fill(store, folder, [inference])
    fill(store, folder, SECOND)
    shown = io.StringIO()
    show(store, Report(format="markdown"), Target(), shown)
    assert shown.getvalue() == render(
        [row_of(record) for record in SECOND], "markdown", baselines=[row_of(inference)], target=Target()
    )
    assert "| 28.50 | 25.25 |" in shown.getvalue()
    written = Report(format="markdown", output=str(tmp_path / "table.md"))
    show(store, written, Target(), io.StringIO())
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == shown.getvalue()
    monkeypatch.setattr(store, "baselines", lambda: pytest.fail("all are there"))
    show(store, Report(sweep="all"), Target(), io.StringIO())


def test_to_a_file(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "table.md"
    assert main(["report.format=markdown", f"report.output={file}"]) == 0
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert file.read_text(encoding="utf-8") == render(
        [row_of(record) for record in SECOND], "markdown", target=Target()
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report.sweep=secnd"], 1, "report.sweep=secnd: there is no such sweep; choose one of second"),
        (["report.format=xml"], 2, "report.format=xml is not allowed: choose one of terminal, markdown, csv"),
        (["report.output=/proc/nowhere/table"], 2, "report.output=/proc/nowhere/table cannot be written"),
        (["tracking.experiment=dmad_swepe"], 1, "holds no such experiment; choose one of dmad_sweep"),
        (["tracking.uri=http://me:hunter2@127.0.0.1:9"], 1, "no MLflow server answers there"),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_line(
    arguments: list[str], code: int, message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything_in(project)
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert "hunter2" not in printed.err
    assert everything_in(project) == before


def test_where_nothing_was_measured_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DMAD_OUTPUTS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main([]) == 1
    assert "there is no MLflow store at sqlite:///" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_stream_of_the_callers(outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    show(Store.open(None, "dmad_sweep", outputs), Report(), Target(), stream)
    assert stream.getvalue() == render(
        [row_of(record) for record in SECOND], "terminal", width=80, target=Target()
    )
