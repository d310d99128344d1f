"""Whoever opens MLflow alone sees a sweep's answer, and nothing that keeps it away harms the sweep."""

from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.answer import answer_of
from dmad_sweep.analysis.table import render
from dmad_sweep.config.schema import Report
from dmad_sweep.errors import TrackingError
from dmad_sweep.records.codec import write_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Target
from dmad_sweep.report import keep, main
from dmad_sweep.tracking.store import ANSWER, DESCRIPTION, Store
from dmad_sweep.tracking.trial_run import TAG_LIMIT

RECORDS = [
    make_record(replace(make_gpu_plan(1, 512, 0), sweep="swept")),
    make_oom(replace(make_gpu_plan(2, 512, 1), sweep="swept")),
]
ROWS = [row_of(record) for record in RECORDS]
FILES = {
    "report.html",
    "table.md",
    "table.csv",
    *(
        f"plots/{name}.{style}"
        for name in ("peak_against_batch", "time_against_batch", "time_against_memory", "makeup_of_peaks")
        for style in ("png", "svg")
    ),
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    outputs = OutputsFolder(tmp_path / "outputs")
    monkeypatch.setenv("DMAD_OUTPUTS", str(outputs.path))
    store = Store.open(None, "dmad_sweep", outputs)
    store.begin_sweep("swept")
    for record in RECORDS:
        folder = outputs.sweep("swept").trial(record.plan.index)
        folder.path.mkdir(parents=True)
        write_json(folder.record, record)
        store.log_trial(record, folder)
    return store


def kept(store: Store, below: str = ANSWER) -> set[str]:
    found = set()
    run_id = store._find_sweep("swept")
    for item in store._client.list_artifacts(run_id, below):
        found |= kept(store, item.path) if item.is_dir else {item.path.removeprefix(f"{ANSWER}/")}
    return found


def description(store: Store) -> str | None:
    run = store._client.get_run(store._find_sweep("swept"))
    return run.data.tags.get(DESCRIPTION)


def test_the_run_of_the_sweep_has_table_page_plots_and_description(store: Store) -> None:
    for _ in range(2):  # again without harm
        assert keep(store, ROWS, [], Report(), Target())
        assert kept(store) == FILES
    assert description(store) == render(ROWS, "markdown", target=Target())


def test_the_reports_command_keeps_it_where_asked(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert kept(store) == set()
    assert main(["report.keep=true", "report.language=zh"]) == 0
    assert kept(store) == FILES
    assert "| 溢出 |" in (description(store) or "")
    capsys.readouterr()
    assert main(["report.keep=true", "report.sweep=all"]) == 2
    assert "report.keep=true needs one sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    "fault", [TrackingError("the store is down"), ImportError("no matplotlib"), KeyError(0)]
)
def test_what_goes_wrong_is_a_warning(
    fault: Exception, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise fault

    where = "dmad_sweep.tracking.store.Store.keep_answer"
    monkeypatch.setattr(
        where if isinstance(fault, TrackingError) else "dmad_sweep.analysis.answer.answer_of", fail
    )
    assert not keep(store, ROWS, [], Report(), Target())
    said = capsys.readouterr().err
    assert said.startswith(
        f"dmad_sweep: table and plots were not kept in MLflow ({fault}); once that is mended: "
    )
    assert said.count("\n") == 1


def test_a_description_too_long_for_a_tag_says_where_the_rest_is(store: Store, tmp_path: Path) -> None:
    (tmp_path / "answer").mkdir()
    store.keep_answer("swept", tmp_path / "answer", "a line\n" * 5000)
    said = description(store) or ""
    assert len(said) < TAG_LIMIT
    assert said.endswith("a line\n\n… cut off here; the whole is the artifact answer/table.md")


def test_the_files_of_an_answer_speak_its_language() -> None:
    answer = answer_of(ROWS, [], view="tradeoff", language="zh", target=Target())
    assert set(answer.files) == FILES
    assert "溢出" in answer.files["report.html"].decode()
    assert "backward OOM" in answer.files["table.csv"].decode()
