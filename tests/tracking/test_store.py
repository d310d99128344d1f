"""A real store: SQLite in a folder, and a real server over one."""

import multiprocessing
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from factories import make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.errors import TrackingError
from dmad_sweep.records.codec import write_json
from dmad_sweep.records.files import OutputsFolder, SweepFolder, TrialFolder
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.tracking.location import redacted, resolve
from dmad_sweep.tracking.store import Store
from dmad_sweep.tracking.trial_run import TAG_LIMIT, TrialRun


@pytest.fixture
def outputs(tmp_path: Path) -> OutputsFolder:
    return OutputsFolder(tmp_path / "out puts")


@pytest.fixture
def store(outputs: OutputsFolder) -> Store:
    return Store.open(None, "dmad_sweep", outputs)


def on_disk(record: Record, outputs: OutputsFolder) -> TrialFolder:
    folder = outputs.sweep(record.plan.sweep).trial(record.plan.index)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(folder.record, record)
    folder.log.write_text("a line\n")
    return folder


def log(store: Store, record: Record, outputs: OutputsFolder) -> None:
    store.begin_sweep(record.plan.sweep)
    store.log_trial(record, on_disk(record, outputs))


def test_rows_come_back_as_they_went_in(store: Store, outputs: OutputsFolder) -> None:
    records = [
        make(make_gpu_plan(index=index))
        for index, make in enumerate((make_record, make_oom, make_killed, make_failed))
    ]
    for record in reversed(records):
        log(store, record, outputs)
    assert store.rows("test") == [row_of(record) for record in records]
    assert store.rows("latest") == store.rows("all") == store.rows("test")
    statuses = {run.data.tags.get("dmad.status"): run.info.status for run in store._search("")}
    assert statuses == {
        None: "RUNNING",  # the sweep's own run
        "ok": "FINISHED",
        "oom": "FINISHED",
        "killed": "KILLED",
        "failed": "FAILED",
    }


def test_logging_twice_changes_nothing(store: Store, outputs: OutputsFolder) -> None:
    for _ in range(2):
        log(store, make_record(), outputs)
    assert len(list(store._search("tags.`dmad.kind` = 'trial'"))) == 1
    assert len(list(store._search("tags.`dmad.kind` = 'sweep'"))) == 1


def test_a_run_left_half_written_is_completed(
    store: Store, outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_record()
    folder = on_disk(record, outputs)
    store.begin_sweep("test")
    with monkeypatch.context() as patch:
        patch.setattr(store._client, "log_artifact", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(TrackingError, match="disk full"):
            store.log_trial(record, folder)
    store.log_trial(record, folder)
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    assert run.info.status == "FINISHED"
    assert {artifact.path for artifact in store._client.list_artifacts(run.info.run_id)} == {
        "record.json",
        "child.log",
    }


def test_import_adds_what_the_store_lacks(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(make_gpu_plan(index=0)), outputs)
    on_disk(make_record(make_gpu_plan(index=1)), outputs)
    broken = outputs.sweep("test").trial(2)
    broken.path.mkdir()
    broken.record.write_text('{"schema_version": 1')
    assert store.import_records(outputs.sweep("test")) == 1
    assert store.import_records(outputs.sweep("test")) == 0
    assert [row.index for row in store.rows("test")] == [0, 1]


def test_the_last_mebibyte_of_a_long_log_is_kept(
    store: Store, outputs: OutputsFolder, tmp_path: Path
) -> None:
    record = make_record()
    folder = on_disk(record, outputs)
    folder.log.write_bytes(b"x" * 3 * 2**20 + b"the end")
    store.begin_sweep("test")
    store.log_trial(record, folder)
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    kept = Path(store._client.download_artifacts(run.info.run_id, "child.log", str(tmp_path))).read_bytes()
    assert kept.endswith(b"the end")
    assert kept.startswith("… the last of 3145735 bytes\n".encode())
    assert len(kept) < 2**20 + 100


def test_foreign_runs_and_damaged_tags_are_left_out(
    store: Store, outputs: OutputsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    log(store, make_record(), outputs)
    experiment = store._writable_experiment()
    store._client.create_run(experiment, run_name="someone else's")
    store._client.create_run(
        experiment, tags={"dmad.kind": "trial", "dmad.sweep": "test", "dmad.row": "[" * 5000}
    )
    assert len(store.rows("test")) == 1
    assert "left out" in caplog.text


def test_latest_is_the_sweep_that_started_last(store: Store, outputs: OutputsFolder) -> None:
    for index, sweep in enumerate(("first", "second")):
        log(store, make_record(replace(make_gpu_plan(index=index), sweep=sweep)), outputs)
        time.sleep(0.01)
    assert store.latest_sweep() == "second"
    assert [row.sweep for row in store.rows("all")] == ["first", "second"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("frist", "report.sweep=frist: there is no such sweep; choose one of first"),
        ("a'b\"c`d", "there is no such sweep; choose one of first"),
    ],
)
def test_a_sweep_that_is_not_there(sweep: str, message: str, store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(replace(make_gpu_plan(), sweep="first")), outputs)
    with pytest.raises(TrackingError, match=message):
        store.rows(sweep)


def test_an_empty_store_says_what_to_do(store: Store) -> None:
    for sweep in ("latest", "all", "some"):
        with pytest.raises(TrackingError, match="run one with: python -m dmad_sweep"):
            store.rows(sweep)


def test_a_deleted_experiment_is_told(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(), outputs)
    store._client.delete_experiment(store._writable_experiment())
    again = Store.open(None, "dmad_sweep", outputs)
    with pytest.raises(TrackingError, match="was deleted"):
        again.rows("latest")


def test_a_long_explanation_still_fits_into_the_tag() -> None:
    record = make_killed()
    record = replace(record, ending=replace(record.ending, explanation="x" * 20_000))
    assert len(TrialRun(record).tags()["dmad.row"]) < TAG_LIMIT


def test_the_users_environment_leads_nowhere(outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.setenv(name, "1234")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    store = Store.open(None, "dmad_sweep", outputs)
    log(store, make_record(), outputs)
    assert len(store.rows("test")) == 1


def _open_and_log(folder: str, index: int) -> None:
    outputs = OutputsFolder(Path(folder))
    log(Store.open(None, "dmad_sweep", outputs), make_record(make_gpu_plan(index=index)), outputs)


def test_processes_that_open_an_empty_store_at_once_all_work(outputs: OutputsFolder) -> None:
    outputs.path.mkdir()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_open_and_log, args=(str(outputs.path), i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(Store.open(None, "dmad_sweep", outputs).rows("all")) == 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`mlflow server` over SQLite on a free port."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
            "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/server.db",
            "--artifacts-destination", str(folder / "artifacts"),
        ],
        env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{uri}/health", timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the server did not start"
            assert process.poll() is None
            time.sleep(0.2)
    yield uri
    os.killpg(process.pid, 15)
    process.wait(20)


def test_a_server_holds_the_same(server: str, outputs: OutputsFolder, tmp_path: Path) -> None:
    store = Store.open(server, "dmad_sweep", outputs)
    for index in range(2):
        log(store, make_record(make_gpu_plan(index=index)), outputs)
    store.end_sweep("test", "FINISHED")
    assert not outputs.database.exists()
    fresh = Store.open(server, "dmad_sweep", OutputsFolder(tmp_path / "elsewhere"))
    assert [row.index for row in fresh.rows("latest")] == [0, 1]
    run = next(fresh._search("tags.`dmad.kind` = 'trial'"))
    saved = fresh._client.download_artifacts(run.info.run_id, "record.json", str(tmp_path))
    assert '"schema_version": 1' in Path(saved).read_text()
    assert fresh.ui_command() == f"open {server} in a browser"


def test_a_server_that_is_not_there(outputs: OutputsFolder) -> None:
    with pytest.raises(TrackingError, match=r"//\*\*\*@127.0.0.1:9 cannot be used: no MLflow server"):
        Store.open("http://user:secret@127.0.0.1:9", "dmad_sweep", outputs)


def test_a_file_that_is_no_database(outputs: OutputsFolder) -> None:
    outputs.path.mkdir()
    outputs.database.write_text("not a database " * 1000)
    with pytest.raises(TrackingError, match="file is not a database"):
        Store.open(None, "dmad_sweep", outputs)


def test_locations_are_absolute_and_told_without_secrets(
    outputs: OutputsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(None, outputs) == f"sqlite:///{outputs.database}"
    assert resolve("sqlite:///here.db", outputs) == f"sqlite:///{tmp_path}/here.db"
    assert resolve("sqlite:////there.db", outputs) == "sqlite:////there.db"
    assert redacted("see postgresql://me:pw@host/db now") == "see postgresql://***@host/db now"


def test_sweep_folders_list_their_trials_in_order(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    for index in (2, 0, 11, 1000):
        sweep.trial(index).path.mkdir(parents=True)
    assert [folder.path.name for folder in sweep.trials()] == ["000", "002", "011", "1000"]
