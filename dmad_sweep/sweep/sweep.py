"""All trials of one command, in the process that launched them, and of one combination elsewhere."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import monotonic

from filelock import FileLock

from dmad_sweep.config.schema import Config
from dmad_sweep.errors import OutputsError, RecordError, TrackingError
from dmad_sweep.records.capabilities import why_impossible
from dmad_sweep.records.codec import read_json, write_json
from dmad_sweep.records.files import OutputsFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import RESULT_STATUSES
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.sweep.baseline import Baselines, baseline_settings
from dmad_sweep.sweep.catching_up import catch_up, mark_waiting
from dmad_sweep.sweep.display import Display
from dmad_sweep.sweep.resume import measured_before, taken_over
from dmad_sweep.sweep.runner import TrialRunner, name_taken, sweep_folder
from dmad_sweep.tracking.location import redacted
from dmad_sweep.tracking.store import Store, SweepStatus

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 600.0
"""How long a store that failed is left alone; each failure doubles it."""


class Sweep:
    """Trials one after the other; each is on disk, then in the store, before the next begins."""

    def __init__(self, settings: Config) -> None:
        self.settings = settings
        self._total: int | None = None
        self._runner: TrialRunner | None = None
        self._display: Display | None = None
        self._baselines = Baselines(self._earlier_baselines)
        self.folder = sweep_folder(settings)
        self._running = FileLock(self.folder.running)
        self.store_error: TrackingError | None = None
        """Why not all of the sweep is in the store, after `finish`."""
        self._pause_s, self._paused_until = FIRST_PAUSE_S, 0.0

    @property
    def begun(self) -> bool:
        """Whether this process has started a trial."""
        return self._display is not None

    def expect(self, combinations: Sequence[Config], first: int) -> None:
        """Check combinations `first`, `first` + 1, … before one of them starts. Raises ConfigError."""
        self._require_new_name()
        trials = sum(settings.schedule.repeats for settings in combinations)
        self._total = (self._total or 0) + trials
        if self._display:
            self._display.expect(trials)
        self._runner = self._runner or TrialRunner(self.folder.name)
        for index, settings in enumerate(combinations, start=first):
            self._runner.plan(settings, index)

    def run(self, settings: Config, index: int) -> list[Record]:
        """Every repeat of one combination, after its baseline if that is lacking."""
        runner = self._open(settings, index)
        if settings.baseline and settings.phase.name == "train":
            self._add_baseline(runner, baseline_settings(settings))
        plans = [runner.plan(settings, index, repeat) for repeat in range(settings.schedule.repeats)]
        return [self._take_over(settings, plan) or self._run(runner, settings, plan) for plan in plans]

    def _take_over(self, settings: Config, plan: Plan) -> Record | None:
        """What an earlier sweep measured under the same key, as a trial of this one; else None."""
        assert self._display is not None
        if not settings.resume:
            return None
        if self._paused:
            self._display.say(f"{plan.label}: measured without a look at earlier results, the store is away")
            return None
        assert plan.key is not None
        try:
            row, changed = measured_before(plan, self.store.measured(plan.key.combination))
            record = self._earlier_record(row) if row else None
        except (TrackingError, RecordError) as error:
            self._display.say(f"{plan.label}: measured again, earlier results cannot be read ({error})")
            if isinstance(error, TrackingError):
                self._pause()
            return None
        if record is None:
            if changed:
                self._display.say(f"{plan.label}: measured again, changed since: {', '.join(changed)}")
            return None
        own, folder = taken_over(record, plan), self.folder.trial_of(plan)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            write_json(folder.record, own)  # first: a plan without one would be taken for a killed trial's
            write_json(folder.plan, own.plan)
        except OSError as error:
            raise OutputsError(folder.path, error) from error
        self._display.begin(plan)
        self._finish_trial(own)
        return own

    def _earlier_record(self, row: Row) -> Record:
        """From disk, where it still is, else from the store. Raises RecordError or TrackingError."""
        sweep = OutputsFolder(Path(self.settings.outputs)).sweep(row.sweep)
        try:
            record = read_json(Record, sweep.trial(row.index, row.repeat, row.role).record)
        except RecordError:
            return self.store.record(row.trial_id)
        return record if record.plan.trial_id == row.trial_id else self.store.record(row.trial_id)

    def _add_baseline(self, runner: TrialRunner, settings: Config) -> None:
        plan = runner.plan(settings, self._baselines.claimed, role="baseline")
        if why_impossible(plan) is None and self._baselines.claim(runner.conditions(plan)):
            assert self._display is not None
            self._display.expect(1)
            self._run(runner, settings, plan)

    def _earlier_baselines(self) -> list[Row]:
        try:
            return self.store.baselines()
        except TrackingError as error:
            assert self._display is not None
            self._display.say(f"baselines of earlier sweeps cannot be read, measuring our own ({error})")
            return []

    def _run(self, runner: TrialRunner, settings: Config, plan: Plan) -> Record:
        """One trial: measured, recorded, logged."""
        assert self._display is not None
        record = runner.run(
            settings, plan, self._display.begin, self._display.progress, on_wait=self._display.wait
        )
        self._finish_trial(record)
        return record

    def _finish_trial(self, record: Record) -> None:
        """Show and log what is on disk already."""
        assert self._display is not None
        self._display.end(record)
        self._baselines.note(row_of(record))
        if self._paused:
            return
        try:
            self.store.log_trial(record, self.folder.trial_of(record.plan))
        except TrackingError as error:
            self._pause()
            self._display.say(f"not in MLflow yet, tried again at the end; its record is on disk ({error})")
        except RecordError as error:
            self._display.say(f"not in MLflow: {error}; its record is on disk")

    @property
    def _paused(self) -> bool:
        return monotonic() < self._paused_until

    def _pause(self) -> None:
        """Leave a store that failed alone for a while: retries would cost every trial a minute."""
        self.store.patience_s = 0.0
        self._paused_until = monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def baselines(self) -> list[Row]:
        """Of all sweeps, where the store can tell."""
        try:
            return [] if self.store_error else self.store.baselines()
        except TrackingError:
            return []

    def rows(self) -> list[Row]:
        """What the sweep found, from its records, whatever became of the store."""
        found = []
        for trial in self.folder.trials():
            try:
                found.append(row_of(read_json(Record, trial.record)))
            except RecordError:
                continue
        return found

    def finish(self, *, interrupted: bool) -> list[bool]:
        """Import what workers left, close everything; for each trial begun, whether it has its answer."""
        if self._runner:
            self._runner.close()
        if self._display:
            self._display.close()
        try:
            return self._close(interrupted)
        finally:
            self._running.release()

    def _close(self, interrupted: bool) -> list[bool]:
        if not self.folder.trials():
            if "store" in vars(self):  # else it could not be opened, which was told
                self.store.end_sweep(self.folder.name, "FAILED")
            return []
        answers = [_answers(trial.record) for trial in self.folder.trials()]
        ended_as: SweepStatus = "KILLED" if interrupted else "FINISHED" if all(answers) else "FAILED"
        try:
            with suppress(OutputsError):  # on a disk that cannot be written the mark of the start stays
                mark_waiting(self.folder, self._place, ended_as)
            self.store.begin_sweep(self.folder.name)
            self.store.import_records(self.folder)
            self.store.end_sweep(self.folder.name, ended_as)
            with suppress(OSError):  # then the next sweep finds nothing that the store lacks
                self.folder.waiting.unlink(missing_ok=True)
        except TrackingError as error:
            self.store_error = error
        return answers

    @property
    def _place(self) -> str:
        return f"{redacted(self.store.uri)} {self.settings.tracking.experiment}"

    @cached_property
    def store(self) -> Store:
        return open_store(self.settings)

    def _hold_folder(self) -> None:
        try:
            self._running.acquire()
        except OSError as error:
            raise OutputsError(self.folder.path, error) from error

    def _require_new_name(self) -> None:
        """A sweep that ended during its first baseline has none of the trials that plans look for."""
        if not self.begun and self.folder.trials():
            raise name_taken(self.folder)

    def _open(self, settings: Config, index: int) -> TrialRunner:
        """On the first trial: the server of children loads while MLflow is imported."""
        if self._runner is None:
            self._runner = TrialRunner(self.folder.name)
        if self._display is None:
            self._require_new_name()
            plan = self._runner.plan(settings, index)
            self._runner.prepare(settings)
            self._display = Display(self._total)
            self._display.say(f"sweep {self.folder.name}: model {plan.model.name}, {plan.device.name}")
            self._display.say(f"records and logs in {self.folder.path}")
            if settings.isolation == "fork":
                self._display.say("loading torch and diffusers, once for all trials …")
            self._hold_folder()
            if left := self._runner.recover(settings):
                self._display.say(f"{left} trials of sweeps that were killed have a record now")
            # before the mark: our own sweep is not one to catch up with
            catch_up(OutputsFolder(Path(settings.outputs)), self.store, self._place, self._display.say)
            mark_waiting(self.folder, self._place)
            self.store.begin_sweep(self.folder.name)
        return self._runner


def run_elsewhere(settings: Config, index: int) -> list[Record]:
    """One combination in a worker process of another launcher: fresh interpreters, records on disk.

    With a server the worker also writes to MLflow. A SQLite store loses runs to many writers, so there
    the launching process imports the records at the end. Workers add no baselines: none knows of the others.
    """
    settings = replace(settings, isolation="spawn")
    runner = TrialRunner(sweep_folder(settings).name)
    try:
        records = [
            runner.run(settings, runner.plan(settings, index, repeat))
            for repeat in range(settings.schedule.repeats)
        ]
    finally:
        runner.close()
    uri = settings.tracking.uri
    if uri is not None and uri.startswith(("http://", "https://")):
        folder = sweep_folder(settings)
        store = open_store(settings)
        with FileLock(folder.lock):  # one worker creates the sweep's run
            store.begin_sweep(folder.name)
        for record in records:
            store.log_trial(record, folder.trial_of(record.plan))
    return records


def open_store(settings: Config) -> Store:
    return Store.open(
        settings.tracking.uri, settings.tracking.experiment, OutputsFolder(Path(settings.outputs))
    )


def _answers(path: Path) -> bool:
    """Whether a trial came to a result, and not to one that fails its check."""
    try:
        row = row_of(read_json(Record, path))
    except RecordError:
        return False
    return row.status in RESULT_STATUSES and row.verdict != "fail"
