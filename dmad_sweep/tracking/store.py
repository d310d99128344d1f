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
from dmad_sweep.records.baseline import is_baseline
from dmad_sweep.records.codec import from_json, read_json
from dmad_sweep.records.files import OutputsFolder, SweepFolder, TrialFolder
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import Row
from dmad_sweep.tracking.artifacts import capped
from dmad_sweep.tracking.client import connect
from dmad_sweep.tracking.faults import RETRY_FOR_S, patiently
from dmad_sweep.tracking.location import is_server, redacted, resolve
from dmad_sweep.tracking.trial_run import (
    COMBINATION,
    KIND,
    ROW,
    SWEEP,
    TAG_LIMIT,
    TRIAL_ID,
    TrialRun,
    require_storable,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

log = logging.getLogger(__name__)

RECORD_FILE = "record.json"
"""As trials' folders and artifacts have it."""

PARENT = "mlflow.parentRunId"
PAGE = 1000

RUN_ID = re.compile(r"[0-9a-f]{32}")

ANSWER = "answer"
"""Folder of a sweep's artifacts with what a report says of it."""

DESCRIPTION = "mlflow.note.content"
"""Tag that MLflow's pages show, as Markdown, on top of a run."""

SweepStatus = Literal["FINISHED", "FAILED", "KILLED"]


class Store:
    """One experiment of one MLflow store. Everything that writes may be called again without harm.

    Every method raises TrackingError when the store cannot be used.
    """

    def __init__(self, client: "MlflowClient", uri: str, experiment: str, outputs: OutputsFolder) -> None:
        self.uri = uri
        self.patience_s = RETRY_FOR_S
        self._client, self._experiment, self._outputs = client, experiment, outputs
        self._experiment_id: str | None = None
        self._sweep_runs: dict[str, str] = {}

    @classmethod
    def open(
        cls, uri: str | None, experiment: str, outputs: OutputsFolder, *, create: bool = True
    ) -> "Store":
        """The store at `uri`, or the SQLite file of the outputs folder.

        Without `create` a SQLite file that is not there raises TrackingError, and nothing is written.
        """
        resolved = resolve(uri, outputs)
        return cls(connect(resolved, outputs, create=create), resolved, experiment, outputs)

    @patiently
    def begin_sweep(self, name: str, *, command: str | None = None) -> None:
        """Create the sweep's run, or find it. `command` is how to repeat it, by default how we were run."""
        self._begin_sweep(name, command or shlex.join(sys.orig_argv))

    @patiently
    def log_trial(self, record: Record, folder: TrialFolder) -> None:
        """Write a trial's run whole. One that an earlier attempt left unfinished is completed."""
        parent = self._find_sweep(record.plan.sweep)
        if parent is None:
            raise TrackingError(f"sweep {record.plan.sweep} has no run in MLflow yet")
        trial = TrialRun(record)
        run = next(self._tagged({KIND: "trial", TRIAL_ID: record.plan.trial_id}), None)
        if run is not None and run.info.status != "RUNNING":
            return
        if run is None:
            run = self._client.create_run(
                self._writable_experiment(),
                start_time=_milliseconds(record.started_at),
                tags={PARENT: parent, **trial.tags()},
                run_name=record.plan.label,
            )
        run_id = run.info.run_id
        # By itself MLflow asks the environment whether to wait.
        self._client.log_batch(run_id, metrics=trial.metrics(), params=trial.params(), synchronous=True)
        self._client.log_artifact(run_id, str(folder.record))
        if folder.snapshot.exists():
            self._client.log_artifact(run_id, str(folder.snapshot))
        if folder.log.exists():
            with capped(folder.log) as text:
                self._client.log_artifact(run_id, str(text))
        # The status comes last: a run that is still RUNNING is one that was not written whole.
        self._client.set_terminated(run_id, trial.run_status(), end_time=_milliseconds(record.ended_at))

    @patiently
    def import_records(self, sweep: SweepFolder) -> int:
        """Log every record of the sweep's folder that the store lacks; their number."""
        whole = {
            run.data.tags.get(TRIAL_ID)
            for run in self._tagged({KIND: "trial", SWEEP: sweep.name})
            if run.info.status != "RUNNING"
        }
        found = list(_readable_records(sweep))
        if found and self._find_sweep(sweep.name) is None:
            started_at = min(record.started_at for record, _ in found)
            self._begin_sweep(sweep.name, shlex.join(sys.orig_argv), started_at)
        lacking = [(record, folder) for record, folder in found if record.plan.trial_id not in whole]
        for record, folder in lacking:
            self.log_trial(record, folder)
        return len(lacking)

    @patiently
    def end_sweep(self, name: str, status: SweepStatus) -> None:
        """Close the sweep's run."""
        run_id = self._find_sweep(name)
        if run_id is not None:
            self._client.set_terminated(run_id, status)

    @patiently
    def keep_answer(self, name: str, folder: Path, summary: str) -> None:
        """Log the files of `folder` as artifacts of the sweep's run, and the Markdown as its description."""
        run_id = self._find_sweep(name)
        if run_id is None:
            raise TrackingError(self._no_such_sweep(name))
        self._client.log_artifacts(run_id, str(folder), ANSWER)
        self._client.set_tag(run_id, DESCRIPTION, _cut(summary))

    @patiently
    def rows(self, sweep: str) -> list[Row]:
        """Rows of `latest`, of a sweep by name, or of `all`: by start of the sweep, then by index and repeat.

        Baselines that a sweep added stand behind its combinations.

        Raises:
            TrackingError: nothing there; the message names what is.
        """
        if sweep == "latest":
            latest = next(self._sweep_names(), None)
            if latest is None:
                raise TrackingError(self._nothing_here())
            sweep = latest
        tags = {KIND: "trial"} if sweep == "all" else {KIND: "trial", SWEEP: sweep}
        found = [row for run in self._tagged(tags) if (row := _row_of(run)) is not None]
        if sweep == "all":  # what a sweep took over stands in the sweep that measured it
            found = [row for row in found if row.reused_from is None]
        rows = {row.trial_id: row for row in found}.values()
        if not rows:
            raise TrackingError(self._nothing_here() if sweep == "all" else self._no_such_sweep(sweep))
        first_start: dict[str, float] = {}
        for row in rows:
            first_start[row.sweep] = min(row.started_at, first_start.get(row.sweep, row.started_at))
        return sorted(
            rows,
            key=lambda r: (first_start[r.sweep], r.sweep, r.role == "baseline", r.index, r.repeat),
        )

    @patiently
    def baselines(self) -> list[Row]:
        """Rows of all sweeps that training rows can be compared with."""
        runs = self._tagged({KIND: "trial"}, "params.phase = 'inference'", "params.effective_batch = '1'")
        return [row for run in runs if (row := _row_of(run)) is not None and is_baseline(row)]

    @patiently
    def measured(self, combination: str) -> list[Row]:
        """Rows of trials with these settings, in whichever sweep; see records.key."""
        runs = self._tagged({KIND: "trial", COMBINATION: combination})
        return [row for run in runs if (row := _row_of(run)) is not None]

    @patiently
    def record(self, trial_id: str) -> Record:
        """A trial's whole record. Raises RecordError when it is there and cannot be read."""
        run = next(self._tagged({KIND: "trial", TRIAL_ID: trial_id}), None)
        if run is None:
            raise TrackingError(f"trial {trial_id} is not in MLflow")
        with tempfile.TemporaryDirectory() as folder:
            path = self._client.download_artifacts(run.info.run_id, RECORD_FILE, folder)
            return read_json(Record, Path(path))

    @patiently
    def sweep_name(self, name_or_run: str) -> str:
        """`latest`, a sweep's name, or the id of its MLflow run or of a trial's, as a name."""
        if name_or_run == "latest":
            latest = next(self._sweep_names(), None)
            if latest is None:
                raise TrackingError(self._nothing_here())
            return latest
        if RUN_ID.fullmatch(name_or_run):
            run = next(self._search(f"attributes.run_id = '{name_or_run}'"), None)
            if run is not None and SWEEP in run.data.tags:
                return run.data.tags[SWEEP]
        return name_or_run

    @patiently
    def latest_sweep(self) -> str | None:
        """Name of the sweep that started last."""
        return next(self._sweep_names(), None)

    @patiently
    def open_sweeps(self) -> list[str]:
        """Names of sweeps whose run was begun and not ended: they run, or were killed."""
        runs = self._tagged({KIND: "sweep"}, "attributes.status = 'RUNNING'")
        return [run.data.tags[SWEEP] for run in runs if SWEEP in run.data.tags]

    def ui_command(self) -> str:
        """What opens MLflow's pages on this store: a shell command, or a server's address."""
        if is_server(self.uri):
            return redacted(self.uri)
        return f"mlflow ui --workers 1 --backend-store-uri {shlex.quote(redacted(self.uri))}"

    def _begin_sweep(self, name: str, command: str, started_at: float | None = None) -> None:
        if self._find_sweep(name) is not None:
            return
        run = self._client.create_run(
            self._writable_experiment(),
            start_time=None if started_at is None else _milliseconds(started_at),
            tags={KIND: "sweep", SWEEP: name, "dmad.command": redacted(command)[: TAG_LIMIT - 1]},
            run_name=name,
        )
        self._sweep_runs[name] = run.info.run_id

    def _find_sweep(self, name: str) -> str | None:
        if name not in self._sweep_runs:
            run = next(self._tagged({KIND: "sweep", SWEEP: name}), None)
            if run is None:
                return None
            self._sweep_runs[name] = run.info.run_id
        return self._sweep_runs[name]

    def _sweep_names(self) -> Iterator[str]:
        """Names of all sweeps, the latest first."""
        for run in self._tagged({KIND: "sweep"}):
            if SWEEP in run.data.tags:
                yield run.data.tags[SWEEP]

    def _tagged(self, tags: dict[str, str], *conditions: str) -> Iterator["Run"]:
        """Runs with all of these tags. MLflow's filters cannot express every value, so they only narrow."""
        clauses = [f"tags.`{name}` = {quoted}" for name, value in tags.items() if (quoted := _quoted(value))]
        for run in self._search(" and ".join([*clauses, *conditions])):
            if tags.items() <= run.data.tags.items():
                yield run

    def _search(self, condition: str) -> Iterator["Run"]:
        """All runs of the experiment that match, the latest first; none when there is no experiment."""
        experiment_id = self._known_experiment()
        token: str | None = None
        while experiment_id is not None:
            page = self._client.search_runs(
                [experiment_id], condition, max_results=PAGE, order_by=["start_time DESC"], page_token=token
            )
            yield from page
            token = page.token
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
        location = None if is_server(self.uri) else self._outputs.artifacts.absolute().as_uri()
        try:
            self._experiment_id = self._client.create_experiment(self._experiment, artifact_location=location)
        except Exception:
            # Another process may have created it in between.
            if self._known_experiment() is None:
                raise
        assert self._experiment_id is not None
        return self._experiment_id

    def _nothing_here(self) -> str:
        where = redacted(self.uri)
        if self._known_experiment() is None:
            others = [e.name for e in self._client.search_experiments() if e.name != "Default"]
            if others:
                return (
                    f"tracking.experiment={self._experiment}: {where} holds no such experiment; "
                    f"choose one of {', '.join(_likely(self._experiment, others))}"
                )
        return (
            f"no sweep in experiment {self._experiment!r} of {where}; "
            "run one with: python -m dmad_sweep -m batch=1,2,4"
        )

    def _no_such_sweep(self, name: str) -> str:
        names = list(self._sweep_names())
        if name in names:
            return f"sweep {name} has no trial in MLflow yet"
        if not names:
            return self._nothing_here()
        return f"report.sweep={name}: there is no such sweep; choose one of {', '.join(_likely(name, names))}"


def _cut(summary: str) -> str:
    """Whole lines of it, with a word on the rest where there is one."""
    if len(summary) < TAG_LIMIT:
        return summary
    rest = f"\n\n… cut off here; the whole is the artifact {ANSWER}/table.md"
    return summary[: TAG_LIMIT - 1 - len(rest)].rpartition("\n")[0] + rest


def _likely(name: str, names: list[str]) -> list[str]:
    """Names that `name` may have meant, else the first five."""
    return get_close_matches(name, names, 3) or names[:5]


def _quoted(value: str) -> str | None:
    """As a literal of MLflow's filters, which know no escape; None when it cannot be one."""
    return next((f"{quote}{value}{quote}" for quote in "'\"" if quote not in value), None)


def _readable_records(sweep: SweepFolder) -> Iterator[tuple[Record, TrialFolder]]:
    for folder in sweep.trials():
        if not folder.record.exists():
            continue  # it never began (a full disk), or it runs: there is nothing to import yet
        try:
            record = read_json(Record, folder.record)
        except RecordError as error:
            log.warning("not imported: %s", error)
            continue
        try:
            require_storable(record)
        except RecordError as error:
            log.warning("not imported: %s: %s", folder.record, error)
            continue
        if record.plan.sweep != sweep.name:
            log.warning(
                "not imported: %s is of sweep %s, not %s", folder.record, record.plan.sweep, sweep.name
            )
            continue
        yield record, folder


def _row_of(run: "Run") -> Row | None:
    text = run.data.tags.get(ROW)
    if text is None:
        return None
    try:
        return from_json(Row, text, origin=f"tag {ROW} of run {run.info.run_id}")
    except RecordError as error:
        log.warning("left out: %s", error)
        return None


def _milliseconds(at: float) -> int:
    """Unix time as MLflow counts it."""
    return round(at * 1000)
