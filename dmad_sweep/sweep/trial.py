"""One trial: plan.json, a child process watched from outside, record.json."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from dmad_sweep.errors import RecordError
from dmad_sweep.records.capabilities import why_impossible
from dmad_sweep.records.codec import read_json, write_json
from dmad_sweep.records.files import TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.progress import Progress, ProgressReader
from dmad_sweep.records.record import DeviceMemory, Ending, Provenance, Record
from dmad_sweep.records.result import Result, Status
from dmad_sweep.sweep.child_log import ChildLog
from dmad_sweep.sweep.device_watch import DeviceWatch
from dmad_sweep.sweep.devices import Nvml
from dmad_sweep.sweep.isolation import Child, ChildEnd, Isolation
from dmad_sweep.sweep.oom_killer import OomKills

SAMPLING_PERIOD_S = 0.02
"""NVML's used memory is a staircase while the child lives, because the allocator keeps what it has."""

GRACE_S = 3.0
"""Between the request to end and the kill."""

RESERVE_BYTES = 2**20
"""For the record of a trial that fills the disk; one with 1000 cycles takes 434 KiB."""

OnProgress = Callable[[Progress | None], None]


def run_trial(
    plan: Plan,
    folder: TrialFolder,
    isolation: Isolation,
    nvml: Nvml,
    provenance: Provenance,
    on_progress: OnProgress = lambda _: None,
) -> Record:
    """Run a trial to its end, whatever that is, and leave record.json behind.

    A combination that is known to be impossible is recorded as `invalid`, and no process is started.

    Raises:
        IsolationError: no child can be started at all.
        OSError: the trial's folder cannot be written.
        KeyboardInterrupt: after the child was killed and the record written as `killed`.
    """
    started_at = time.time()
    folder.path.mkdir(parents=True, exist_ok=True)
    reason = why_impossible(plan)
    if reason is not None:
        record = _without_process(plan, reason, started_at, provenance)
        write_json(folder.plan, plan)
        write_json(folder.record, record)
        return record
    watch = _Watch(plan, folder, nvml, on_progress)
    _reserve(folder)
    write_json(folder.plan, watch.plan)
    interrupted: KeyboardInterrupt | None = None
    try:
        if plan.data.source == "images":
            watch.sample_before()
            watch.follow(isolation.start(folder, "encode"), reports=False)
        if not folder.result.exists():  # written by `encode` only when it failed
            watch.sample_before()
            write_json(folder.plan, watch.plan)
            watch.follow(isolation.start(folder, "measure"))
    except KeyboardInterrupt as interrupt:
        interrupted = interrupt
    result, explanation = _read_result(folder)
    if interrupted:
        explanation = "interrupted from the keyboard"
    record = watch.record(result, explanation, started_at, provenance)
    folder.reserve.unlink(missing_ok=True)
    write_json(folder.record, record)
    if interrupted:
        raise interrupted
    return record


class _Watch:
    """What the parent sees of a trial: progress, the device's memory, the end of the process."""

    def __init__(self, plan: Plan, folder: TrialFolder, nvml: Nvml, on_progress: OnProgress) -> None:
        self.plan = plan
        self._on_progress = on_progress
        self._device = DeviceWatch(plan.device, nvml)
        self._progress = ProgressReader(folder.progress)
        self._log = ChildLog(folder.log)
        self._oom_kills = OomKills.now()
        self._pid: int | None = None
        self._end: ChildEnd | None = None
        self._left_behind = 0
        self._wall_s = 0.0
        self._overdue: str | None = None
        """The bound that ended the trial, in words."""

    def sample_before(self) -> None:
        """Note what is in use, and who is there, before the measured process starts."""
        self.plan = replace(self.plan, device=self._device.begin())

    def follow(self, child: Child, *, reports: bool = True) -> None:
        """Watch a child until it ends; end it when it is overdue or this process is interrupted.

        A child that does not report progress is bounded by `schedule.timeout_s` alone.
        """
        self._pid, self._end = child.pid, None
        started = time.monotonic()
        try:
            self._end = self._until_its_end(child, reports)
            self._device.await_release(child.pid)
        except BaseException:
            self._end = self._end or child.kill()
            raise
        finally:
            self._progress.poll()
            self._wall_s += time.monotonic() - started
            self._left_behind += self._end.left_behind if self._end else 0

    def _until_its_end(self, child: Child, reports: bool) -> ChildEnd:
        started = moved = time.monotonic()
        last = self._progress.last
        while (end := child.wait(SAMPLING_PERIOD_S)) is None:
            self._device.sample(child.pid)
            self._log.bound()
            self._on_progress(self._progress.poll())
            if self._progress.last != last:
                last, moved = self._progress.last, time.monotonic()
            self._overdue = self._bound_passed(started, moved if reports else None)
            if self._overdue is not None:
                return child.terminate(GRACE_S)
        return end

    def record(
        self, result: Result | None, explanation: str | None, started_at: float, provenance: Provenance
    ) -> Record:
        ending = self._ending(explanation if result is None else None)
        status: Status
        if result is not None:
            status = result.status
        elif self._overdue is not None:
            status = "timeout"
        else:
            killed = ending.signal in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
            status = "killed" if killed else "failed"
        if status in ("failed", "killed", "timeout"):
            ending = replace(ending, log_tail=self._log.tail())
        return Record(
            status=status,
            started_at=started_at,
            ended_at=time.time(),
            plan=self.plan,
            result=result,
            ending=ending,
            device_memory=self._device.found(),
            provenance=provenance,
        )

    def _bound_passed(self, started: float, moved: float | None) -> str | None:
        bounds, now = self.plan.schedule, time.monotonic()
        if bounds.timeout_s is not None and now - started > bounds.timeout_s:
            return f"it took more than schedule.timeout_s={bounds.timeout_s:g} seconds"
        if bounds.stall_s is not None and moved is not None and now - moved > bounds.stall_s:
            return f"it reported no progress for schedule.stall_s={bounds.stall_s:g} seconds"
        return None

    def _ending(self, explanation: str | None) -> Ending:
        code = self._end.code if self._end else None
        name = _signal_name(-code) if code is not None and code < 0 else None
        last = self._progress.last
        if explanation is not None:
            how = f"by {name}" if name else f"with exit code {code}"
            where = (
                f" in {last.stage}, cycle {last.cycle} of {last.cycles}"
                if last
                else " before its first stage"
            )
            explanation = f"ended {how}{where}: {self._overdue or explanation}"
            if name == "SIGKILL" and self._overdue is None:
                explanation += f"; {self._oom_kills.explanation(OomKills.now())}"
        return Ending(
            pid=self._pid,
            exit_code=code if code is not None and code >= 0 else None,
            signal=name,
            wall_s=self._wall_s,
            explanation=explanation,
            last_stage=last.stage if last else None,
            last_cycle=last.cycle if last else None,
            last_report_at=last.at if last else None,
            peak_before=last.peak if last else None,
            left_behind=self._left_behind,
        )


def _without_process(plan: Plan, reason: str, started_at: float, provenance: Provenance) -> Record:
    not_started = "no process was started"
    return Record(
        status="invalid",
        started_at=started_at,
        ended_at=time.time(),
        plan=plan,
        result=None,
        ending=Ending(pid=None, exit_code=None, signal=None, wall_s=0.0, explanation=reason),
        device_memory=DeviceMemory(
            unmeasured={"peak_used_bytes": not_started, "process_peak_bytes": not_started}
        ),
        provenance=provenance,
    )


def _reserve(folder: TrialFolder) -> None:
    """Take the room that the record will need. Raises OSError where there is not even that."""
    try:
        folder.reserve.write_bytes(os.urandom(RESERVE_BYTES))  # zeros might take none
    except OSError:
        folder.reserve.unlink(missing_ok=True)
        raise


def _read_result(folder: TrialFolder) -> tuple[Result | None, str | None]:
    if not folder.result.exists():
        full = shutil.disk_usage(folder.path).free < RESERVE_BYTES
        return None, "it left no result" + (", and no space is left on the disk of outputs" if full else "")
    try:
        return read_json(Result, folder.result), None
    except RecordError as error:
        return None, f"its result cannot be read ({error})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
