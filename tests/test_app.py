"""The main job, end to end: real commands, real children, a real store."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from dmad_sweep.records.codec import read_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.record import Record
from dmad_sweep.tracking.store import Store
from dmad_sweep.units import bytes_to_gib

QUICK = ["device=cpu", "resolution=64", "schedule=quick", "precision=fp32", "baseline=false"]
WITH_BASELINE = QUICK[:-1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user's with a name that needs quoting everywhere."""
    folder = tmp_path / "my 'project' = ü"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    return folder


def command(*arguments: str, module: str = "dmad_sweep") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run(folder: Path, *arguments: str, module: str = "dmad_sweep") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments, module=module),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"COLUMNS": "160"},
    )


def sweep_folders(project: Path) -> list[Path]:
    return sorted((project / "outputs" / "sweeps").iterdir())


def records(sweep: Path) -> list[Record]:
    return [read_json(Record, path) for path in sorted(sweep.glob("trials/*/record.json"))]


def trials(sweep: Path) -> list[Path]:
    return sorted((sweep / "trials").iterdir())


def test_the_main_job(project: Path) -> None:
    """The headline command at its real sizes."""
    arguments = ["batch=1,2,4", "resolution=512,768", "device=cpu", "schedule=quick", "baseline=false"]
    done = run(project, "-m", *arguments)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    measured = records(sweep)
    assert [(r.plan.batch.size, r.plan.resolution.label) for r in measured] == [
        (batch, size) for batch in (1, 2, 4) for size in ("512", "768")
    ]
    assert {r.status for r in measured} == {"ok"}
    pids = {r.ending.pid for r in measured}
    assert len(pids) == 6
    for record in measured:
        assert record.result is not None
        assert record.result.pid == record.ending.pid
        assert record.result.observed.micro_batch == record.plan.batch.size
        assert record.result.observed.height == record.plan.resolution.height
    # table: a line for each combination, in order
    assert re.findall(r"^(512|768) +(\d)", done.stdout, re.MULTILINE) == [
        (size, batch) for size in ("512", "768") for batch in ("1", "2", "4")
    ]
    # the command that shows it again does, from a subfolder too
    shown = re.search(r"show this table again: python -m dmad_sweep\.report (.+)", done.stdout)
    assert shown is not None
    (project / "deep" / "down").mkdir(parents=True)
    again = run(project / "deep" / "down", shown[1], "report.format=csv", module="dmad_sweep.report")
    assert again.stdout.count("\n") == 7, again.stderr
    assert "mlflow ui" in done.stdout
    # plain lines where there is no terminal
    assert "[6/6] batch 4, resolution 768, bf16: ok, peak" in done.stderr
    assert "\x1b[" not in done.stderr + done.stdout


def test_what_mlflow_holds(project: Path) -> None:
    assert run(project, "-m", "batch=1,3", *QUICK).returncode == 0
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    runs = list(store._search(""))
    (parent,) = [r for r in runs if r.data.tags["dmad.kind"] == "sweep"]
    trials = sorted(
        (r for r in runs if r.data.tags["dmad.kind"] == "trial"), key=lambda r: int(r.data.params["batch"])
    )
    assert parent.info.status == "FINISHED"
    assert "batch=1,3" in parent.data.tags["dmad.command"]
    assert [trial.data.tags["mlflow.parentRunId"] for trial in trials] == [parent.info.run_id] * 2
    trial = trials[1]
    assert trial.info.status == "FINISHED"
    assert trial.data.params == {
        "batch": "3",
        "resolution": "64",
        "precision": "fp32",
        "checkpointing": "none",
        "adapter": "full",
        "attention": "auto",
        "optimizer": "adamw",
        "ema": "none",
        "accumulation": "1",
        "effective_batch": "3",
        "model": "tiny",
        "recipe": "dmd2",
        "phase": "train",
        "data": "synthetic",
    }
    assert {
        "memory/peak_allocated_gib",
        "memory/after_load_gib",
        "memory/first_forward_gib",
        "memory/first_backward_gib",
        "time/iteration_ms",
        "time/student_turn_ms",
        "time/fake_score_turn_ms",
        "time/data_ms",
        "throughput/images_per_s",
    } <= set(trial.data.metrics)
    # a CPU cannot tell these, so they are absent, not zero
    assert not {"memory/peak_reserved_gib", "memory/device_peak_gib"} & set(trial.data.metrics)
    assert trial.data.tags["dmad.status"] == "ok"
    assert "dmad.stage" not in trial.data.tags
    history = store._client.get_metric_history(trial.info.run_id, "cycle/student_turn_ms")
    assert [point.step for point in history] == [1, 2, 3]
    artifacts = {artifact.path for artifact in store._client.list_artifacts(trial.info.run_id)}
    assert artifacts == {"record.json", "child.log"}


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_other_launchers_run_trials_in_children_too(launcher: str, project: Path) -> None:
    done = run(project, "-m", f"hydra/launcher={launcher}", "batch=1,2", *QUICK)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert [r.status for r in records(sweep)] == ["ok", "ok"]
    assert len({r.ending.pid for r in records(sweep)}) == 2
    assert len(re.findall(r"^64 ", done.stdout, re.MULTILINE)) == 2


def test_one_failing_combination_stops_no_other_and_sets_the_exit_code(project: Path) -> None:
    (project / "broken" / "unet").mkdir(parents=True)
    (project / "broken" / "unet" / "config.json").write_text("{}")
    done = run(project, "-m", "model=tiny", "model.pretrained=broken,null", *QUICK)
    assert done.returncode == 1
    (sweep,) = sweep_folders(project)
    assert [r.status for r in records(sweep)] == ["failed", "ok"]
    assert "failed (load)" in done.stdout


def test_an_out_of_memory_is_a_result(project: Path) -> None:
    done = run(
        project, "-m", "batch=1,16", "resolution=512", "device.memory_limit_gib=0.3", *QUICK[:1], *QUICK[2:]
    )
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert [r.status for r in records(sweep)] == ["ok", "oom"]
    assert "forward OOM" in done.stdout
    assert "(scores.forward)" in done.stdout


def test_fork_and_spawn_measure_the_same_work(project: Path) -> None:
    assert run(project, "-m", "isolation=fork,spawn", *QUICK).returncode == 0
    (sweep,) = sweep_folders(project)
    forked, spawned = (record.result for record in records(sweep))
    assert forked is not None
    assert spawned is not None
    assert forked.networks == spawned.networks
    assert forked.observed == spawned.observed


def test_a_sweep_may_be_launched_in_batches(project: Path) -> None:
    done = run(project, "-m", "hydra.sweeper.max_batch_size=1", "batch=1,2", *QUICK)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert [r.plan.batch.size for r in records(sweep)] == [1, 2]
    assert "[2/2] batch 2" in done.stderr


def test_a_folder_of_photographs(project: Path) -> None:
    (project / "my photos").mkdir()
    loaded = load_sample_images()
    for name, pixels in zip(loaded.filenames, loaded.images, strict=True):
        Image.fromarray(pixels).save(project / "my photos" / Path(name).name)
    (project / "my photos" / "broken.png").write_bytes(b"no picture")
    arguments = ["data=images", "data.root=my photos", "model=tiny", "batch=3", *QUICK]
    assert run(project, *arguments).returncode == 0
    (sweep,) = sweep_folders(project)
    (record,) = records(sweep)
    assert record.status == "ok"
    assert "broken.png: not a readable picture" in (sweep / "trials" / "000" / "child.log").read_text()
    assert len(list((project / "outputs" / "latents").iterdir())) == 2


def test_a_store_that_goes_away_costs_no_trial(project: Path) -> None:
    """The first trial cannot be logged; the sweep goes on and both are in the store at the end."""
    code = (
        "import sys; from dmad_sweep import app; from dmad_sweep.errors import TrackingError\n"
        "from dmad_sweep.tracking.store import Store; log = Store.log_trial; calls = []\n"
        "def flaky(self, record, folder):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 1: raise TrackingError('the store is away')\n"
        "    return log(self, record, folder)\n"
        "Store.log_trial = flaky\n"
        f"sys.exit(app.main({['-m', 'batch=1,2', *QUICK]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        "not in MLflow yet, tried again at the end; its record is on disk (the store is away)" in done.stderr
    )
    assert len(re.findall(r"^64 ", done.stdout, re.MULTILINE)) == 2


def test_a_store_that_stays_away_costs_no_row_of_the_table(project: Path) -> None:
    """From the first trial to the end; then the records wait for the next sweep, or for the command."""
    code = (
        "import os, sys; from dmad_sweep import app; from dmad_sweep.sweep.sweep import Sweep\n"
        "end = Sweep._finish_trial\n"
        "def away(self, record):\n"
        "    os.path.isdir('moved') or os.rename(self.store._outputs.database, 'moved')\n"
        "    os.makedirs(self.store._outputs.database, exist_ok=True)\n"
        "    self.store._client._tracking_client.store.engine.dispose()\n"
        "    end(self, record)\n"
        "Sweep._finish_trial = away\n"
        f"sys.exit(app.main({['-m', 'batch=1', *QUICK]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "not all of this is in MLflow yet" in done.stderr
    assert "Traceback" not in done.stderr
    assert re.findall(r"^64 +(\d)", done.stdout, re.MULTILINE) == ["1"]
    database = OutputsFolder(project / "outputs").database
    database.rmdir()
    (project / "moved").rename(database)
    shown = run(project, "report.import_records=true", "report.format=csv", module="dmad_sweep.report")
    assert shown.returncode == 0, shown.stderr
    assert "1 trials imported from" in shown.stderr
    assert shown.stdout.count("\n") == 2
    again = run(project, "report.import_records=true", "report.format=csv", module="dmad_sweep.report")
    assert "0 trials imported from" in again.stderr
    assert again.stdout == shown.stdout
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert "RUNNING" not in {run.info.status for run in store._search("")}


def test_sweeps_that_start_at_once_on_an_empty_store_lose_nothing(project: Path) -> None:
    """The first ones ever: each would create the store."""
    started = [
        subprocess.Popen(
            command("-m", "batch=1,2", "resume=false", *QUICK),
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in started:
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
        assert "locked" not in stderr
        assert "not in MLflow" not in stderr
        assert re.findall(r"^64 +(\d)", stdout, re.MULTILINE) == ["1", "2"]
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert sorted(row.batch for row in store.rows("all")) == [1, 1, 1, 2, 2, 2]
    assert [run.info.status for run in store._search("")] == ["FINISHED"] * 9


def test_an_installation_without_a_working_diffusers_says_so(project: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "diffusers.py").write_text("raise ImportError('half installed')")
    path = [str(tmp_path / "broken"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command("-m", "batch=1,2", *QUICK),
        cwd=project,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )
    assert done.returncode == 1
    assert "dmad_sweep: torch and diffusers cannot be loaded: ImportError: half installed" in done.stderr
    assert "Traceback" not in done.stderr
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert [run.info.status for run in store._search("")] == ["FAILED"]


@pytest.mark.parametrize("launcher", ["isolated", "basic", "joblib"])
def test_repeats_are_trials_of_their_own_and_one_row(launcher: str, project: Path) -> None:
    arguments = ["-m", f"hydra/launcher={launcher}", "batch=1,2", "schedule.repeats=2", *QUICK]
    done = run(project, *arguments)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert [(path.name, read_json(Record, path / "record.json").plan.repeat) for path in trials(sweep)] == [
        ("000", 0), ("000-1", 1), ("001", 0), ("001-1", 1),
    ]  # fmt: skip
    assert [r.status for r in records(sweep)] == ["ok"] * 4
    assert len({r.ending.pid for r in records(sweep)}) == len({r.plan.trial_id for r in records(sweep)}) == 4
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert [(row.index, row.repeat) for row in store.rows("latest")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert re.findall(r"^64 +(\d) .* ±", done.stdout, re.MULTILINE) == ["1", "2"]
    assert "\n2 repeats: the highest peaks" in done.stdout
    if launcher == "isolated":
        assert "[4/4] batch 2, resolution 64, fp32, repeat 2 of 2: ok, peak" in done.stderr


def test_inference_is_the_baseline(project: Path) -> None:
    assert run(project, "-m", "phase=train,inference", *QUICK).returncode == 0
    (sweep,) = sweep_folders(project)
    train, inference = (record.result for record in records(sweep))
    assert train is not None
    assert inference is not None
    assert set(inference.networks) == {"student"}
    assert inference.networks["student"].trained_parameters == 0
    assert [turn.turn for turn in inference.cycles[0].turns] == ["inference"]


def names(sweep: Path) -> list[str]:
    return [path.name for path in trials(sweep)]


def over_baseline(project: Path) -> list[tuple[str, float | None]]:
    """Phase and `over_baseline_gib` of each line of the latest sweep's report."""
    shown = run(project, "report.format=csv", module="dmad_sweep.report")
    return [
        (line["phase"], float(line["over_baseline_gib"]) if line["over_baseline_gib"] else None)
        for line in csv.DictReader(io.StringIO(shown.stdout))
    ]


@pytest.mark.parametrize("launcher", ["isolated", "basic"])
def test_training_is_seen_beside_a_baseline_that_is_measured_once(launcher: str, project: Path) -> None:
    arguments = ["-m", f"hydra/launcher={launcher}", *WITH_BASELINE]
    first = run(project, *arguments, "sweep.name=first", "batch=2,3", "checkpointing=trainable", "ema=cpu")
    assert first.returncode == 0, first.stderr
    folder = project / "outputs" / "sweeps" / "first"
    assert names(folder) == ["000", "001", "baseline-000"]
    *training, baseline = records(folder)
    assert {r.status for r in records(folder)} == {"ok"}
    assert baseline.started_at < min(record.started_at for record in training)
    plan = baseline.plan
    assert (plan.role, plan.index, plan.phase.name, plan.batch.size) == ("baseline", 0, "inference", 1)
    assert (plan.checkpointing.name, plan.ema.name) == ("none", "none")
    assert baseline.result is not None
    assert [turn.turn for turn in baseline.result.cycles[0].turns] == ["inference"]
    if launcher == "isolated":
        assert "[1/3] batch 1, resolution 64, fp32, inference, the baseline: ok, peak" in first.stderr
        assert "[3/3] batch 3" in first.stderr
    # a column of the training table, and a table of its own
    assert re.findall(r"^64 +(\d)", first.stdout, re.MULTILINE) == ["2", "3", "1"]
    assert "over" in first.stdout.partition("inference")[0].replace("overflow", "")
    *added, (phase, nothing) = over_baseline(project)
    assert (phase, nothing) == ("inference", None)
    for record, (_, over) in zip(training, added, strict=True):
        assert over == pytest.approx(peak_gib(record) - peak_gib(baseline))
    # a second sweep finds the first's, and adds one only for another kernel
    second = run(project, *arguments, "sweep.name=second", "batch=4", "attention=auto,math")
    assert second.returncode == 0, second.stderr
    assert names(project / "outputs" / "sweeps" / "second") == ["000", "001", "baseline-000"]
    (auto, _, other) = records(project / "outputs" / "sweeps" / "second")
    assert other.plan.attention.name == "math"
    (_, over), (_, over_math), (phase, _) = over_baseline(project)
    assert over == pytest.approx(peak_gib(auto) - peak_gib(baseline))
    assert over_math is not None
    assert phase == "inference"


def test_a_sweeps_own_inference_is_its_baseline(project: Path) -> None:
    done = run(project, "-m", "phase=inference,train", *WITH_BASELINE)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert names(sweep) == ["000", "001"]
    inference, training = records(sweep)
    assert dict(over_baseline(project)) == {
        "inference": None,
        "train": pytest.approx(peak_gib(training) - peak_gib(inference)),
    }


def test_no_baseline_where_none_is_wanted(project: Path) -> None:
    done = run(project, "batch=2", *QUICK)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert names(sweep) == ["000"]
    assert "over" not in done.stdout.replace("overflow", "")


def test_workers_of_other_launchers_add_no_baseline(project: Path) -> None:
    done = run(project, "-m", "hydra/launcher=joblib", "batch=1,2", *WITH_BASELINE)
    assert done.returncode == 0, done.stderr
    (sweep,) = sweep_folders(project)
    assert names(sweep) == ["000", "001"]


def test_a_baseline_that_fails_is_tried_once_and_stops_nothing(project: Path) -> None:
    (project / "broken" / "unet").mkdir(parents=True)
    (project / "broken" / "unet" / "config.json").write_text("{}")
    arguments = ["model=tiny", "model.pretrained=broken,null", "batch=1,2", *WITH_BASELINE]
    done = run(project, "-m", *arguments)
    assert done.returncode == 1
    (sweep,) = sweep_folders(project)
    assert [(path.name, read_json(Record, path / "record.json").status) for path in trials(sweep)] == [
        ("000", "failed"), ("001", "failed"), ("002", "ok"), ("003", "ok"),
        ("baseline-000", "failed"), ("baseline-001", "ok"),
    ]  # fmt: skip
    assert [over is not None for phase, over in over_baseline(project)].count(True) == 2


def test_a_baseline_is_measured_where_the_store_cannot_tell(project: Path) -> None:
    code = (
        "import sys; from dmad_sweep import app; from dmad_sweep.errors import TrackingError\n"
        "from dmad_sweep.tracking.store import Store\n"
        "def away(self): raise TrackingError('the store is away')\n"
        "Store.baselines = away\n"
        f"sys.exit(app.main({WITH_BASELINE!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "baselines of earlier sweeps cannot be read, measuring our own (the store is away)" in done.stderr
    (sweep,) = sweep_folders(project)
    assert names(sweep) == ["000", "baseline-000"]


def peak_gib(record: Record) -> float:
    assert record.result is not None
    assert record.result.memory is not None
    peak = record.result.memory.peak.allocated_bytes
    assert peak is not None
    return bytes_to_gib(peak)


REFUSED = [
    (["batch=0"], 2, "batch=0 is not allowed: give a positive integer, for instance batch=3"),
    (["batch=-1"], 2, "batch=-1 is not allowed: give a positive integer, for instance batch=3"),
    (["batch=two"], 2, "batch=two is not allowed: give a positive integer, for instance batch=3"),
    (["-m", "batch=1,0"], 2, "batch=0 is not allowed: give a positive integer, for instance batch=3"),
    (["resolution=100"], 2, "resolution=100 is not allowed: use a multiple of 8, such as 96 or 104"),
    (
        ["precision=fp99"],
        1,
        "Could not find 'precision/fp99'; choose one of bf16, bf16_pure, fp16, fp32, tf32",
    ),
    (["bacth=2"], 1, "Could not override 'bacth': Key 'bacth' not in 'Config'. Did you mean batch?"),
    (
        ["schedule.measurd_cycles=3"],
        1,
        "Could not override 'schedule.measurd_cycles': Key 'measurd_cycles' not in 'Schedule'. "
        "Did you mean schedule.measured_cycles?",
    ),
    (
        ["schedule.measured_cycles=abc"],
        1,
        "Error merging override schedule.measured_cycles=abc: "
        "Value 'abc' of type 'str' could not be converted to Integer",
    ),
    (["-m", "batch.size=1,0"], 2, "batch.size=0 is not allowed: give a number of at least 1"),
    (["schedule.repeats=0"], 2, "schedule.repeats=0 is not allowed: give a number of at least 1"),
    (["isolation=thread"], 2, "isolation=thread is not allowed: choose one of fork, spawn"),
    (
        ["data.root=~/pictures"],
        1,
        "data.root=~/pictures cannot be read; characters of Hydra's grammar need quotes: "
        "\"data.root='~/pictures'\"",
    ),
    (["batch"], 2, "batch is not allowed: give a positive integer, for instance batch=3"),
    (["data=images"], 2, "data=images needs data.root=FOLDER, a folder of pictures"),
    (
        ["data=images", "data.root=absent"],
        2,
        "data.root=absent is not allowed: there is no such folder",
    ),
    (
        ["batch=1,2"],
        2,
        "batch='1','2' gives several values: add -m to run one trial for each of them",
    ),
    (
        ["device.memory_limit_gib=nan"],
        2,
        "device.memory_limit_gib=nan is not allowed: give a positive number of GiB",
    ),
    (
        ["outputs=/proc/nowhere", *QUICK],
        2,
        "outputs: /proc/nowhere/sweeps/{sweep} cannot be written (No such file or directory)",
    ),
    (
        ["sweep.name=../up"],
        2,
        "sweep.name=../up is not allowed: use up to 100 letters, digits, '_', '-' and '.'",
    ),
    (
        ["--config-name", "absent"],
        1,
        "Cannot find primary config 'absent'. Check that it's in your config search path",
    ),
    (["--config-dir", "absent"], 1, "Additional config directory '{project}/absent' not found"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED, ids=lambda value: str(value))
def test_a_bad_value_is_refused_in_a_line_before_anything_starts(
    arguments: list[str], code: int, message: str, project: Path
) -> None:
    done = run(project, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    expected = re.escape(message.format(project=project, sweep="NAME")).replace("NAME", "[0-9a-f-]+")
    assert re.fullmatch(f"dmad_sweep: {expected}\n", done.stderr), done.stderr
    assert not (project / "outputs").exists()


def test_a_gpu_that_is_not_there_is_refused(project: Path) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command("device=cuda"), cwd=project, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dmad_sweep: device=cuda is not possible here: ")
    assert done.stderr.count("\n") == 1
    assert not (project / "outputs").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["batch=0"], ["--cfg", "job", "--resolve"]])
def test_help_and_refusals_import_nothing_slow(arguments: list[str], project: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dmad_sweep", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
    )
    imported = set(re.findall(r"^import time:.*\| +(\w+)", shown.stderr, re.MULTILINE))
    assert {"hydra", "dmad_sweep"} <= imported
    assert not imported & {"torch", "diffusers", "transformers", "mlflow", "pandas", "numpy", "matplotlib"}


def test_groups_are_browsable(project: Path) -> None:
    shown = run(project, "--help").stdout
    for line in (
        "batch: 1, 16, 2, 4, 8",
        "precision: bf16, bf16_pure, fp16, fp32, tf32",
        "phase: inference, train",
    ):
        assert line in shown
    completed = subprocess.run(
        command("-sc", "query=bash"),
        cwd=project,
        capture_output=True,
        text=True,
        env=os.environ | {"COMP_LINE": "dmad-sweep batch=", "COMP_POINT": "17"},
    )
    assert completed.stdout.split() == ["batch=1", "batch=16", "batch=2", "batch=4", "batch=8"]


def test_the_users_own_options_and_sweeps(project: Path) -> None:
    mine = project / "my conf"
    (mine / "batch").mkdir(parents=True)
    (mine / "batch" / "two.yaml").write_text("size: 2\n")
    (mine / "mine.yaml").write_text(
        "defaults:\n  - config\n  - override batch: 5\n  - override resolution: 64x128\n  - _self_\n"
        "hydra: {sweeper: {params: {batch: '1,3', checkpointing: 'none,trainable'}}}\n"
    )
    rest = [*QUICK[:1], *QUICK[2:]]
    assert run(project, "--config-dir", str(mine), "batch=two", *QUICK).returncode == 0
    done = run(project, "-m", "--config-dir", str(mine), "--config-name", "mine", *rest)
    assert done.returncode == 0, done.stderr
    named, swept = (records(sweep) for sweep in sweep_folders(project))
    assert [r.plan.batch.size for r in named] == [2]
    assert [(r.plan.batch.size, r.plan.checkpointing.name, r.plan.resolution.label) for r in swept] == [
        (1, "none", "64x128"),
        (1, "trainable", "64x128"),
        (3, "none", "64x128"),
        (3, "trainable", "64x128"),
    ]


def test_without_m_the_sweep_of_a_file_is_one_combination(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "swept.yaml").write_text(
        "defaults:\n  - config\n  - override batch: 5\n  - _self_\n"
        "hydra: {sweeper: {params: {batch: '1,3'}}}\n"
    )
    arguments = ["--config-dir", "mine", "--config-name", "swept", *QUICK]
    assert run(project, *arguments).returncode == 0
    (sweep,) = sweep_folders(project)
    assert [r.plan.batch.size for r in records(sweep)] == [5]


def test_a_file_that_takes_the_sweeps_name_away_is_refused(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "unnamed.yaml").write_text("defaults: [config, _self_]\nsweep: {name: null}\n")
    done = run(project, "--config-dir", "mine", "--config-name", "unnamed", *QUICK)
    assert done.returncode == 2
    assert done.stderr == "dmad_sweep: sweep.name=null is not allowed: leave it out, or give a name\n"
    assert not (project / "outputs").exists()


def test_a_sweep_of_a_known_name_is_refused_where_it_is_not_to_be_continued(project: Path) -> None:
    assert run(project, "sweep.name=mine", *QUICK).returncode == 0
    done = run(project, "sweep.name=mine", "resume=false", *QUICK)
    assert done.returncode == 2
    assert done.stderr.startswith("dmad_sweep: sweep.name=mine is not allowed: ")
    assert done.stdout == ""


@pytest.mark.parametrize("launcher", ["isolated", "basic"])
def test_a_sweep_that_ended_in_its_baseline_has_its_name_too(launcher: str, project: Path) -> None:
    (project / "outputs" / "sweeps" / "mine" / "trials" / "baseline-000").mkdir(parents=True)
    done = run(project, "-m", f"hydra/launcher={launcher}", "sweep.name=mine", "resume=false", *QUICK)
    assert done.returncode == 2
    assert "dmad_sweep: sweep.name=mine is not allowed: " in done.stderr
    assert done.stdout == ""


def test_the_same_command_takes_over_what_is_measured(project: Path) -> None:
    arguments = ["-m", "sweep.name=mine", *QUICK]
    assert run(project, *arguments, "batch=1,2").returncode == 0
    done = run(project, *arguments, "batch=2,3")
    assert done.returncode == 0, done.stderr
    assert "sweep mine is there already: continuing it as mine-2" in done.stderr
    assert "batch 2, resolution 64, fp32: ok, taken from sweep mine" in done.stderr
    assert "taken over from sweep mine, which measured it under the same conditions" in done.stdout
    first, second = (records(folder) for folder in sweep_folders(project))
    assert [record.reused_from is not None for record in second] == [True, False]
    assert second[0].result == first[1].result
    assert second[0].plan.trial_id != first[1].plan.trial_id
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert [row.batch for row in store.rows("mine-2")] == [2, 3]
    assert [row.batch for row in store.rows("all")] == [1, 2, 3]
    # once more: everything is there, and each names the sweep that measured it
    third = run(project, *arguments, "batch=2,3")
    assert third.returncode == 0, third.stderr
    taken = [record.reused_from for record in records(sweep_folders(project)[2])]
    assert [origin and origin.sweep for origin in taken] == ["mine", "mine-2"]


def test_what_changed_is_told_and_resume_can_be_left(project: Path) -> None:
    assert run(project, *QUICK).returncode == 0
    changed = subprocess.run(
        command(*QUICK),
        cwd=project,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
    )
    assert "measured again, changed since: environment " in changed.stderr
    assert "→ " in changed.stderr
    assert "PYTORCH_ALLOC_CONF=max_split_size_mb:64" in changed.stderr
    again = run(project, "resume=false", *QUICK)
    assert "taken" not in again.stderr
    assert [r.reused_from for folder in sweep_folders(project) for r in records(folder)] == [None] * 3


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def endless_sweep(project: Path) -> tuple["subprocess.Popen[str]", list[psutil.Process]]:
    """A sweep in its second trial, which has no end, and the processes below it."""
    endless = ["-m", "schedule.measured_cycles=1,1000000", "device=cpu", "resolution=64", "baseline=false"]
    process = subprocess.Popen(
        command(*endless),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: bool(list(project.glob("outputs/sweeps/*/trials/001/progress.jsonl"))))
    return process, psutil.Process(process.pid).children(recursive=True)


def test_ctrl_c_keeps_what_was_measured(project: Path) -> None:
    """One finished trial, one interrupted: both are told, nothing is left running."""
    process, family = endless_sweep(project)
    os.killpg(process.pid, signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    (sweep,) = sweep_folders(project)
    assert [r.status for r in records(sweep)] == ["ok", "killed"]
    assert "killed" in stdout
    assert "show this table again" in stdout
    wait_until(lambda: not any(child.is_running() for child in family), 10)
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert sorted(r.info.status for r in store._search("")) == ["FINISHED", "KILLED", "KILLED"]


def test_no_file_of_another_launcher_keeps_a_secret(project: Path) -> None:
    done = run(project, "-m", "hydra/launcher=basic", "tracking.uri=http://user:hunter2@127.0.0.1:9/", *QUICK)
    assert done.returncode == 1
    for file in project.rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file


def test_no_secret_of_a_tracking_uri_is_kept(project: Path) -> None:
    done = run(project, "tracking.uri=http://user:hunter2@127.0.0.1:9/", *QUICK)
    assert done.returncode == 1
    assert "no MLflow server answers there" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    for file in project.rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file


def test_records_are_plain_json(project: Path) -> None:
    assert run(project, *QUICK).returncode == 0
    (sweep,) = sweep_folders(project)
    for name in ("plan", "result", "record"):
        assert json.loads((sweep / "trials" / "000" / f"{name}.json").read_text())["schema_version"] == 1


def test_accumulation_is_verified(project: Path) -> None:
    done = run(
        project, "-m", "phase=verify_accumulation", "recipe=dmd2,fastgen", "batch=1", "accumulation=4", *QUICK
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" pass ") == 2
    assert "verdict" in done.stdout
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert [run.data.tags["dmad.verdict"] for run in store._tagged({"dmad.kind": "trial"})] == ["pass"] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_taken_as_ctrl_c(number: signal.Signals, project: Path) -> None:
    process, family = endless_sweep(project)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number, stderr
    assert "killed" in stdout
    assert "continue with:         " in stdout
    assert psutil.wait_procs(family, timeout=10)[1] == []
    (sweep,) = sweep_folders(project)
    assert [record.status for record in records(sweep)] == ["ok", "killed"]
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    assert [run.info.status for run in store._tagged({"dmad.kind": "sweep"})] == ["KILLED"]


def test_a_sweep_that_was_killed_is_closed_by_the_next(project: Path) -> None:
    """SIGKILL at once of command and children: what was measured is taken over, nothing stays open."""
    arguments = ["-m", "batch=1,2,3", *QUICK]
    process = subprocess.Popen(
        command(*arguments), cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: bool(list(project.glob("outputs/sweeps/*/trials/001/progress.jsonl"))))
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert psutil.wait_procs(family, timeout=30)[1] == []
    (killed,) = sweep_folders(project)
    done = run(project, *arguments)
    assert done.returncode == 0, done.stderr
    assert "1 trials of sweeps that were killed have a record now" in done.stderr
    assert f"sweep {killed.name} was not closed: closed now, 1 trials imported" in done.stderr
    assert f"ok, taken from sweep {killed.name}" in done.stderr
    assert [record.status for record in records(killed)] == ["ok", "killed"]
    store = Store.open(None, "dmad_sweep", OutputsFolder(project / "outputs"))
    states = {run.data.tags["dmad.sweep"]: run.info.status for run in store._tagged({"dmad.kind": "sweep"})}
    assert states[killed.name] == "KILLED"
    assert set(states.values()) == {"KILLED", "FINISHED"}
    assert [row.status for row in store.rows("latest")] == ["ok"] * 3
    # the trial that was killed is told apart, and measured by the second sweep
    assert [(row.batch, row.status) for row in store.rows("all")] == [
        (1, "ok"), (2, "killed"), (2, "ok"), (3, "ok")
    ]  # fmt: skip
