"""Sweeps and trials in MLflow: a parent run for each sweep, a nested run for each trial."""

import logging
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmad_sweep.errors import RecordError, TrackingError
from dmad_sweep.records.codec import from_json, read_json
from dmad_sweep.records.files import OutputsFolder, SweepFolder, TrialFolder
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import Row
from dmad_sweep.tracking.client import connect, patiently
from dmad_sweep.tracking.location import is_server, redacted, resolve
from dmad_sweep.tracking.trial_run import KIND, ROW, SWEEP, TRIAL_ID, TrialRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

log = logging.getLogger(__name__)

PARENT = "mlflow.parentRunId"
PAGE = 1000
LOG_TAIL_BYTES = 2**20

SweepStatus = Literal["FINISHED", "FAILED", "KILLED"]


class Store:
    """One experiment of one MLflow store. Everything that writes may be called again without harm."""

    def __init__(self, client: "MlflowClient", uri: str, experiment: str, outputs: OutputsFolder) -> None:
        self._client, self._uri, self._experiment = client, uri, experiment
        self._outputs = outputs
        self._experiment_id: str | None = None
        self._sweep_runs: dict[str, str] = {}

    @classmethod
    def open(cls, uri: str | None, experiment: str, outputs: OutputsFolder) -> "Store":
        """The store at `uri`, or the SQLite file of the outputs folder. Raises TrackingError."""
        resolved = resolve(uri, outputs)
        return cls(connect(resolved, outputs), resolved, experiment, outputs)

    @patiently
    def begin_sweep(self, name: str) -> None:
        """Create the sweep's run, tagged with this process's command line, or find it."""
        if self._find_sweep(name) is None:
            tags = {KIND: "sweep", SWEEP: name, "dmad.command": redacted(shlex.join(sys.orig_argv))}
            run = self._client.create_run(self._writable_experiment(), tags=tags, run_name=name)
            self._sweep_runs[name] = run.info.run_id

    @patiently
    def log_trial(self, record: Record, folder: TrialFolder) -> None:
        """Write a trial's run whole. One that an earlier attempt left unfinished is completed."""
        parent = self._find_sweep(record.plan.sweep)
        if parent is None:
            raise TrackingError(f"sweep {record.plan.sweep} has no run in MLflow yet")
        trial = TrialRun(record)
        existing = self._search(f"tags.`{TRIAL_ID}` = '{record.plan.trial_id}'")
        run = next(existing, None)
        if run is not None and run.info.status != "RUNNING":
            return
        if run is None:
            run = self._client.create_run(
                self._writable_experiment(),
                start_time=round(record.started_at * 1000),
                tags={PARENT: parent, **trial.tags()},
                run_name=record.plan.label,
            )
        run_id = run.info.run_id
        self._client.log_batch(run_id, metrics=trial.metrics(), params=trial.params())
        self._client.log_artifact(run_id, str(folder.record))
        self._log_child_output(run_id, folder)
        # The status comes last: a run that is still RUNNING is one that was not written whole.
        self._client.set_terminated(run_id, trial.run_status(), end_time=round(record.ended_at * 1000))

    def import_records(self, sweep: SweepFolder) -> int:
        """Log every record of the sweep's folder that the store lacks; their number."""
        if self._find_sweep(sweep.name) is None:
            self.begin_sweep(sweep.name)
        known = {
            run.data.tags.get(TRIAL_ID)
            for run in self._search(f"tags.`{SWEEP}` = '{sweep.name}' and tags.`{KIND}` = 'trial'")
            if run.info.status != "RUNNING"
        }
        imported = 0
        for folder in sweep.trials():
            try:
                record = read_json(Record, folder.record)
            except RecordError as error:
                log.warning("not imported: %s", error)
                continue
            if record.plan.trial_id not in known:
                self.log_trial(record, folder)
                imported += 1
        return imported

    @patiently
    def end_sweep(self, name: str, status: SweepStatus) -> None:
        """Close the sweep's run."""
        run_id = self._find_sweep(name)
        if run_id is not None:
            self._client.set_terminated(run_id, status)

    def rows(self, sweep: str) -> list[Row]:
        """Rows of `latest`, of a sweep by name, or of `all`, by start of the sweep, then by index.

        Raises:
            TrackingError: nothing there; the message names the sweeps that are.
        """
        if sweep == "latest":
            latest = self.latest_sweep()
            if latest is None:
                raise TrackingError(self._nothing_here())
            sweep = latest
        condition = f"tags.`{KIND}` = 'trial'"
        if sweep != "all":
            condition += f" and tags.`{SWEEP}` = '{_quotable(sweep)}'"
        rows = [row for run in self._search(condition) if (row := _row_of(run)) is not None]
        if not rows:
            raise TrackingError(self._nothing_here() if sweep == "all" else self._no_such_sweep(sweep))
        first_start: dict[str, float] = {}
        for row in rows:
            first_start[row.sweep] = min(row.started_at, first_start.get(row.sweep, row.started_at))
        return sorted(rows, key=lambda row: (first_start[row.sweep], row.sweep, row.index))

    def latest_sweep(self) -> str | None:
        """Name of the sweep that started last."""
        return next(self._sweep_names(), None)

    def ui_command(self) -> str:
        """What opens MLflow's pages on this store."""
        if is_server(self._uri):
            return f"open {redacted(self._uri)} in a browser"
        return f"mlflow ui --workers 1 --backend-store-uri {shlex.quote(redacted(self._uri))}"

    def _find_sweep(self, name: str) -> str | None:
        if name not in self._sweep_runs:
            condition = f"tags.`{SWEEP}` = '{_quotable(name)}' and tags.`{KIND}` = 'sweep'"
            run = next(self._search(condition), None)
            if run is None:
                return None
            self._sweep_runs[name] = run.info.run_id
        return self._sweep_runs[name]

    def _sweep_names(self) -> Iterator[str]:
        """Names of all sweeps, the latest first."""
        for run in self._search(f"tags.`{KIND}` = 'sweep'"):
            yield run.data.tags[SWEEP]

    @patiently
    def _page(self, experiment_id: str, condition: str, token: str | None) -> tuple[list["Run"], str | None]:
        page = self._client.search_runs(
            [experiment_id], condition, max_results=PAGE, order_by=["start_time DESC"], page_token=token
        )
        return list(page), page.token

    def _search(self, condition: str) -> Iterator["Run"]:
        """All runs of the experiment that match, the latest first; none when there is no experiment."""
        experiment_id = self._known_experiment()
        token: str | None = None
        while experiment_id is not None:
            runs, token = self._page(experiment_id, condition, token)
            yield from runs
            if not token:
                return

    def _known_experiment(self) -> str | None:
        if self._experiment_id is None:
            experiment = self._client.get_experiment_by_name(self._experiment)
            if experiment is not None:
                if experiment.lifecycle_stage != "active":
                    raise TrackingError(
                        f"the MLflow experiment {self._experiment!r} was deleted; restore it there or choose "
                        "another with tracking.experiment=NAME"
                    )
                self._experiment_id = experiment.experiment_id
        return self._experiment_id

    def _writable_experiment(self) -> str:
        known = self._known_experiment()
        if known is not None:
            return known
        location = None if is_server(self._uri) else self._outputs.artifacts.absolute().as_uri()
        try:
            self._experiment_id = self._client.create_experiment(self._experiment, artifact_location=location)
        except Exception:
            # Another process may have created it in between.
            if self._known_experiment() is None:
                raise
        assert self._experiment_id is not None
        return self._experiment_id

    def _log_child_output(self, run_id: str, folder: TrialFolder) -> None:
        try:
            size = folder.log.stat().st_size
        except FileNotFoundError:
            return
        if size <= LOG_TAIL_BYTES:
            self._client.log_artifact(run_id, str(folder.log))
            return
        with tempfile.TemporaryDirectory() as temporary, folder.log.open("rb") as whole:
            whole.seek(size - LOG_TAIL_BYTES)
            tail = Path(temporary) / folder.log.name
            tail.write_bytes(f"… the last of {size} bytes\n".encode() + whole.read())
            self._client.log_artifact(run_id, str(tail))

    def _nothing_here(self) -> str:
        return (
            f"no sweep in experiment {self._experiment!r} of {redacted(self._uri)}; "
            "run one with: python -m dmad_sweep -m batch=1,2,4"
        )

    def _no_such_sweep(self, name: str) -> str:
        names = list(self._sweep_names())
        if name in names:
            return f"sweep {name} has no trial in MLflow yet"
        if not names:
            return self._nothing_here()
        close = get_close_matches(name, names, 3) or names[:5]
        return f"report.sweep={name}: there is no such sweep; choose one of {', '.join(close)}"


def _quotable(value: str) -> str:
    """MLflow's filters know no escape; a name that holds their quote can match nothing of ours."""
    return re.sub(r"['\"`\\]", "_", value)


def _row_of(run: "Run") -> Row | None:
    text = run.data.tags.get(ROW)
    if text is None:
        return None
    try:
        return from_json(Row, text, origin=f"tag {ROW} of run {run.info.run_id}")
    except RecordError as error:
        log.warning("left out: %s", error)
        return None
