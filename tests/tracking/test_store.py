"""A real store: SQLite in a folder, and a real server over one."""

import multiprocessing
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.errors import TrackingError
from dmad_sweep.records.codec import write_json
from dmad_sweep.records.files import OutputsFolder, SweepFolder, TrialFolder
from dmad_sweep.records.metrics import metrics_of, params_of
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Phase
from dmad_sweep.tracking.faults import told
from dmad_sweep.tracking.location import database_file, redacted, resolve
from dmad_sweep.tracking.store import Store
from dmad_sweep.tracking.trial_run import TAG_LIMIT, TrialRun
from servers import mlflow_server, postgresql


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's migrations take seconds: made once, copied for each test."""
    outputs = OutputsFolder(tmp_path_factory.mktemp("empty"))
    Store.open(None, "dmad_sweep", outputs)
    return outputs.database


@pytest.fixture
def outputs(tmp_path: Path) -> OutputsFolder:
    return OutputsFolder(tmp_path / "out puts")


@pytest.fixture
def store(outputs: OutputsFolder, empty_database: Path) -> Store:
    outputs.path.mkdir()
    shutil.copy(empty_database, outputs.database)
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


def test_what_a_trial_leaves_in_mlflow(store: Store, outputs: OutputsFolder) -> None:
    record = make_oom(stage="gan.forward", cycle=3)
    ok = make_record(make_gpu_plan(index=1))
    log(store, record, outputs)
    log(store, ok, outputs)
    (parent,) = store._search("tags.`dmad.kind` = 'sweep'")
    runs = {run.data.tags["dmad.trial_id"]: run for run in store._search("tags.`dmad.kind` = 'trial'")}
    oom, measured = runs[record.plan.trial_id], runs[ok.plan.trial_id]
    assert oom.info.run_name == "batch 1, resolution 512, bf16"
    assert (oom.info.start_time, oom.info.end_time) == (1_000_000_000, 1_000_010_000)
    tags = {name: value for name, value in oom.data.tags.items() if name != "dmad.row"}
    assert tags == {
        "mlflow.parentRunId": parent.info.run_id,
        "mlflow.runName": "batch 1, resolution 512, bf16",
        "dmad.kind": "trial",
        "dmad.status": "oom",
        "dmad.sweep": "test",
        "dmad.trial_id": record.plan.trial_id,
        "dmad.device": "NVIDIA H200",
        "dmad.pid": "4242",
        "dmad.commit": "abc-dirty",
        "dmad.warmup_cycles": "2",
        "dmad.stage": "gan.forward",
        "dmad.cycle": "3",
    }
    assert not any(name.startswith(("time/", "throughput/")) for name in oom.data.metrics)
    headline = {name: value for name, value in measured.data.metrics.items() if "cycle/" not in name}
    assert headline == metrics_of(row_of(ok))
    history = store._client.get_metric_history(measured.info.run_id, "cycle/student_turn_ms")
    assert [(point.step, point.value) for point in history] == [
        (1, 9000), (2, 500), (3, 290), (4, 300), (5, 330),
    ]  # fmt: skip
    assert {name for name in measured.data.metrics if "cycle/" in name} == {
        "cycle/student_turn_ms",
        "cycle/fake_score_turn_ms",
        "cycle/data_ms",
        "cycle/peak_allocated_gib",
    }


def test_more_cycles_than_one_batch_of_metrics(store: Store, outputs: OutputsFolder) -> None:
    record = make_record()
    assert record.result is not None
    cycle = record.result.cycles[-1]
    cycles = [replace(cycle, index=index, warmup=index <= 2) for index in range(1, 401)]
    log(store, replace(record, result=replace(record.result, cycles=cycles)), outputs)
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    assert len(store._client.get_metric_history(run.info.run_id, "cycle/data_ms")) == 400


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
    history = store._client.get_metric_history(run.info.run_id, "cycle/data_ms")
    assert [point.step for point in history] == [1, 2, 3, 4, 5]


def test_a_trial_without_a_log_has_its_record(store: Store, outputs: OutputsFolder) -> None:
    folder = on_disk(make_record(), outputs)
    folder.log.unlink()
    store.begin_sweep("test")
    store.log_trial(make_record(), folder)
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    assert [artifact.path for artifact in store._client.list_artifacts(run.info.run_id)] == ["record.json"]


def test_a_call_that_fails_in_passing_is_repeated_without_a_double(
    store: Store, outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst case: the run was created, but the answer was lost."""
    create_run, calls = store._client.create_run, []

    def answer_lost(*args: Any, **kwargs: Any) -> Any:
        run = create_run(*args, **kwargs)
        calls.append(run)
        if len(calls) <= 2:
            raise OSError("Connection aborted")
        return run

    monkeypatch.setattr(store._client, "create_run", answer_lost)
    log(store, make_record(), outputs)
    assert len(list(store._search(""))) == len(calls) == 2
    assert len(store.rows("test")) == 1


def test_a_locked_store_is_waited_for(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(), outputs)
    with closing(sqlite3.connect(outputs.database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        ending = threading.Thread(target=store.end_sweep, args=("test", "KILLED"))
        ending.start()
        time.sleep(1)
        assert ending.is_alive()
        other.rollback()
    ending.join(30)
    assert next(store._search("tags.`dmad.kind` = 'sweep'")).info.status == "KILLED"


def test_a_fault_of_ours_is_not_blamed_on_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_find_sweep", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.begin_sweep("test")


def test_import_adds_what_the_store_lacks(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(make_gpu_plan(index=0)), outputs)
    on_disk(make_record(make_gpu_plan(index=1)), outputs)
    broken = outputs.sweep("test").trial(2)
    broken.path.mkdir()
    broken.record.write_text('{"schema_version": 1')
    assert store.import_records(outputs.sweep("test")) == 1
    assert store.import_records(outputs.sweep("test")) == 0
    assert [row.index for row in store.rows("test")] == [0, 1]


def test_what_is_not_imported_is_told_and_a_trial_that_never_began_is_none(
    store: Store, outputs: OutputsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    on_disk(make_record(), outputs)
    sweep = outputs.sweep("test")
    sweep.trial(1).path.mkdir()
    strange = sweep.trial(2)
    strange.path.mkdir()
    write_json(strange.record, make_record(replace(make_gpu_plan(index=2), sweep="another")))
    assert store.import_records(sweep) == 1
    assert [line.getMessage() for line in caplog.records if "not imported" in line.getMessage()] == [
        f"not imported: {strange.record} is of sweep another, not test"
    ]
    assert len(store.rows("all")) == 1


def test_a_sweep_that_is_imported_late_is_not_the_latest(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(), outputs)
    on_disk(make_record(replace(make_gpu_plan(index=1), sweep="older")), outputs)
    assert store.import_records(outputs.sweep("older")) == 1
    assert store.import_records(outputs.sweep("never begun")) == 0
    assert store.latest_sweep() == "test"
    with pytest.raises(TrackingError, match="choose one of test, older"):
        store.rows("zzz")


def test_baselines_are_found_in_all_sweeps(store: Store, outputs: OutputsFolder) -> None:
    inference = Phase("inference")
    records = [
        make_record(replace(make_gpu_plan(index=0), sweep="first")),
        make_record(replace(make_gpu_plan(index=1, phase=inference), sweep="first", role="baseline")),
        make_record(replace(make_gpu_plan(2, 512, 2, phase=inference), sweep="second")),
        make_oom(replace(make_gpu_plan(index=3, phase=inference), sweep="second")),
        make_record(replace(make_gpu_plan(index=4, phase=inference), sweep="second")),
    ]
    for record in records:
        log(store, record, outputs)
    assert {row.trial_id for row in store.baselines()} == {records[i].plan.trial_id for i in (1, 4)}


def test_baselines_stand_behind_combinations(store: Store, outputs: OutputsFolder) -> None:
    for plan in (replace(make_gpu_plan(index=7), role="baseline", index=0), make_gpu_plan(index=1)):
        log(store, make_record(plan), outputs)
    assert [(row.role, row.index) for row in store.rows("test")] == [("combination", 1), ("baseline", 0)]


def test_the_command_is_kept_without_secrets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "dmad_sweep", "batch=2"])
    store.begin_sweep("one", command="dmad tracking.uri=http://me:p@ss@host:5000/ " + "x" * 9000)
    store.begin_sweep("two")
    commands = {run.data.tags["dmad.sweep"]: run.data.tags["dmad.command"] for run in store._search("")}
    assert commands["one"].startswith("dmad tracking.uri=http://***@host:5000/ xxx")
    assert len(commands["one"]) < TAG_LIMIT
    assert commands["two"] == "python -m dmad_sweep batch=2"


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a`b\\c", "both ' and \"", "ü\nnew line", "a%b_c"])
def test_any_name_is_found_again(name: str, store: Store, outputs: OutputsFolder) -> None:
    store.begin_sweep(name)
    folder = on_disk(make_record(), outputs)
    record = make_record(replace(make_gpu_plan(), sweep=name))
    again = Store.open(None, "dmad_sweep", outputs)
    again.begin_sweep(name)
    again.log_trial(record, folder)
    assert len(list(again._search(""))) == 2
    assert [row.sweep for row in again.rows(name)] == [name]


def test_paging_is_complete(store: Store, outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmad_sweep.tracking.store.PAGE", 2)
    for index in range(5):
        log(store, make_record(make_gpu_plan(index=index)), outputs)
    assert [row.index for row in store.rows("test")] == [0, 1, 2, 3, 4]


def test_a_trial_that_is_there_twice_counts_once(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(), outputs)
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    store._client.create_run(run.info.experiment_id, tags=run.data.tags)
    assert len(store.rows("test")) == 1


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
    store._client.create_run(experiment, tags={"dmad.kind": "sweep"})
    store._client.create_run(
        experiment, tags={"dmad.kind": "trial", "dmad.sweep": "test", "dmad.row": "[" * 5000}
    )
    assert len(store.rows("latest")) == len(store.rows("test")) == 1
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


def test_an_experiment_that_is_not_there(store: Store, outputs: OutputsFolder) -> None:
    log(store, make_record(), outputs)
    other = Store.open(None, "dmad_swepe", outputs)
    for sweep in ("latest", "all", "some"):
        with pytest.raises(TrackingError, match="holds no such experiment; choose one of dmad_sweep"):
            other.rows(sweep)


def test_a_store_that_is_not_there_is_told_not_made(outputs: OutputsFolder) -> None:
    for uri in (None, "sqlite:///elsewhere.db"):
        with pytest.raises(TrackingError, match=r"there is no MLflow store at sqlite:///.*run a sweep first"):
            Store.open(uri, "dmad_sweep", outputs, create=False)
    assert not outputs.path.exists()


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


def test_the_users_environment_leads_nowhere(
    store: Store, outputs: OutputsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.setenv(name, "1234")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    again = Store.open(None, "dmad_sweep", outputs)
    log(again, make_record(), outputs)
    assert len(again.rows("test")) == 1
    (run,) = store._search("tags.`dmad.kind` = 'trial'")
    assert run.info.status == "FINISHED"
    assert set(run.data.params) == set(params_of(row_of(make_record())))
    assert run.data.metrics


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


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`mlflow server` over either database."""
    folder = tmp_path_factory.mktemp("server")
    with ExitStack() as stack:
        backend = f"sqlite:///{folder}/server.db"
        if request.param == "postgresql":
            backend = stack.enter_context(postgresql())
        yield stack.enter_context(mlflow_server(backend, folder))


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
    assert fresh.ui_command() == server


def test_logging_to_a_server_twice_changes_nothing(server: str, outputs: OutputsFolder) -> None:
    store = Store.open(server, "twice", outputs)
    for _ in range(2):
        log(store, make_record(), outputs)
    assert store.import_records(outputs.sweep("test")) == 0
    on_disk(make_record(make_gpu_plan(index=1)), outputs)
    assert store.import_records(outputs.sweep("test")) == 1
    assert len(list(store._search("tags.`dmad.kind` = 'trial'"))) == 2
    assert len(list(store._search("tags.`dmad.kind` = 'sweep'"))) == 1


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a`b\\c", "ü\nnew line", "a%b_c"])
def test_a_server_finds_any_name_again(name: str, server: str, outputs: OutputsFolder) -> None:
    record = make_record(replace(make_gpu_plan(), sweep=name))
    folder = on_disk(make_record(), outputs)
    for _ in range(2):
        store = Store.open(server, f"names of {outputs.path.parent.name}", outputs)
        store.begin_sweep(name)
        store.log_trial(record, folder)
    assert [row.sweep for row in store.rows(name)] == [name]


def test_a_sweep_writes_to_a_server(server: str, tmp_path: Path) -> None:
    """The command, its table, and the same command again, which takes all over through the server."""
    arguments = ["-m", "batch=1,2", "device=cpu", "resolution=64", "schedule=quick", "baseline=false"]
    command = [sys.executable, "-m", "dmad_sweep", *arguments, f"tracking.uri={server}"]
    tracked = [*command, "tracking.experiment=real", f"outputs={tmp_path / 'out puts'}"]
    for taken in (0, 2):
        done = subprocess.run(tracked, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("taken from sweep") == taken
        assert f"open it in MLflow:     {server}" in done.stdout
    store = Store.open(server, "real", OutputsFolder(tmp_path / "elsewhere"))
    assert [row.batch for row in store.rows("all")] == [1, 2]
    assert [run.info.status for run in store._search("")] == ["FINISHED"] * 6
    assert store.record(store.rows("all")[0].trial_id).status == "ok"
    assert not (tmp_path / "out puts" / "artifacts").exists()


def test_a_server_that_is_not_there(outputs: OutputsFolder) -> None:
    with pytest.raises(TrackingError, match=r"//\*\*\*@127.0.0.1:9 cannot be used: no MLflow server"):
        Store.open("http://user:secret@127.0.0.1:9", "dmad_sweep", outputs)


def test_a_file_that_is_no_database(outputs: OutputsFolder) -> None:
    outputs.path.mkdir()
    outputs.database.write_text("not a database " * 1000)
    before = time.monotonic()
    with pytest.raises(TrackingError, match="file is not a database"):
        Store.open(None, "dmad_sweep", outputs)
    outputs.database.unlink()
    outputs.database.mkdir()
    with pytest.raises(TrackingError, match="unable to open database file"):
        Store.open(None, "dmad_sweep", outputs)
    assert time.monotonic() - before < 5


def test_an_outputs_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingError, match=r"cannot be used: .*Not a directory"):
        Store.open(None, "dmad_sweep", OutputsFolder(tmp_path / "file" / "outputs"))


def test_a_database_of_another_mlflow(store: Store, outputs: OutputsFolder) -> None:
    with closing(sqlite3.connect(outputs.database)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        connection.commit()
    copied = outputs.database.rename(outputs.path / "copied.db")  # MLflow remembers stores that it has opened
    with pytest.raises(TrackingError) as caught:
        Store.open(f"sqlite:///{copied}", "dmad_sweep", outputs)
    assert f"if an older one, make a backup and run: mlflow db upgrade 'sqlite:///{copied}'" in str(
        caught.value
    )


def test_no_secret_is_left_in_what_an_error_says() -> None:
    uri = "http://user:p@ss@127.0.0.1:9"
    with pytest.raises(TrackingError) as caught, told(uri):
        raise OSError(f"API request to {uri}/api failed")
    assert "ss@" not in "".join(traceback.format_exception(caught.value))


def test_locations_are_absolute(
    outputs: OutputsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(None, outputs) == f"sqlite:///{outputs.database}"
    assert resolve("sqlite:///here.db?timeout=5", outputs) == f"sqlite:///{tmp_path}/here.db?timeout=5"
    for uri in ("sqlite:////there.db", "sqlite:///:memory:", "http://host:5000", "postgresql://host/db"):
        assert resolve(uri, outputs) == uri
    assert database_file("sqlite:////a%20b/c.db?timeout=5") == Path("/a b/c.db")
    assert database_file("postgresql://host/db") is None


@pytest.mark.parametrize("name", ["100%", "what?"])
def test_a_folder_that_no_uri_can_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="choose another folder with outputs=FOLDER"):
        resolve(None, OutputsFolder(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see postgresql://me:pw@host/db now", "see postgresql://***@host/db now"),
        ("http://me:p@ss@host/a@b", "http://***@host/a@b"),
        ("postgresql://host/db?user=me&password=pw&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("postgresql://me:p/w@host/db", "postgresql://***@host/db"),
        ("postgresql://me:p/w@x@host/db", "postgresql://***@host/db"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("https://host/?api_token=t&SslPassword=p&x=1", "https://host/?api_token=***&SslPassword=***&x=1"),
        ("http://host, mail me@host", "http://host, mail me@host"),
    ],
)
def test_uris_are_told_without_secrets(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_sweep_folders_list_their_trials_in_order(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    sweep.trial(0, role="baseline").path.mkdir(parents=True)
    for index, repeat in ((2, 0), (0, 0), (11, 10), (11, 0), (1000, 0), (11, 2)):
        sweep.trial(index, repeat).path.mkdir()
    (tmp_path / "trials" / "notes of mine").mkdir()
    names = ["000", "002", "011", "011-2", "011-10", "1000", "baseline-000"]
    assert [folder.path.name for folder in sweep.trials()] == names
