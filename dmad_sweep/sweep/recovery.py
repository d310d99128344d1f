"""Trials that a dead process left without a record get one: what the child had found, or `killed`."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from dmad_sweep.errors import RecordError
from dmad_sweep.records.codec import read_json, write_json
from dmad_sweep.records.files import OutputsFolder, TrialFolder
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.progress import ProgressReader
from dmad_sweep.records.record import DeviceMemory, Ending, Provenance, Record
from dmad_sweep.records.result import Result

NOT_WATCHED = "the process that watched the trial was gone before its end"


def recover(outputs: OutputsFolder, provenance: Provenance) -> int:
    """Complete the trials that no process watches any more, in all sweeps; their number."""
    left = (trial for sweep in outputs.sweeps() for trial in sweep.trials() if _is_left(trial))
    return sum(_complete(trial, provenance) for trial in left)


def _is_left(trial: TrialFolder) -> bool:
    return trial.plan.exists() and not trial.record.exists()


def _complete(trial: TrialFolder, provenance: Provenance) -> bool:
    with suppress(Timeout, RecordError, OSError), FileLock(trial.running, timeout=0):
        if _is_left(trial):  # it may have ended in the meantime
            record = _record(trial, provenance)
            trial.reserve.unlink(missing_ok=True)
            write_json(trial.record, record)
            return True
    return False


def _record(trial: TrialFolder, provenance: Provenance) -> Record:
    plan = read_json(Plan, trial.plan)
    last = ProgressReader(trial.progress).poll()
    result: Result | None = None
    with suppress(RecordError):
        result = read_json(Result, trial.result)
    started_at = trial.plan.stat().st_mtime
    ended_at = max(file.stat().st_mtime for file in _files(trial))
    where = f"in {last.stage}, cycle {last.cycle} of {last.cycles}" if last else "before its first stage"
    if plan.key is not None and plan.key.code != provenance.code_hash:
        provenance = replace(provenance, code_hash=plan.key.code, commit=None, dirty=None)
    return Record(
        status=result.status if result else "killed",
        started_at=started_at,
        ended_at=ended_at,
        plan=plan,
        result=result,
        ending=Ending(
            pid=result.pid if result else None,
            exit_code=None,
            signal=None,
            wall_s=ended_at - started_at,
            explanation=None if result else f"its sweep was killed while it was {where}",
            last_stage=last.stage if last else None,
            last_cycle=last.cycle if last else None,
            last_report_at=last.at if last else None,
            peak_before=last.peak if last else None,
        ),
        device_memory=DeviceMemory(
            total_bytes=plan.device.total_bytes,
            used_before_bytes=plan.device.used_before_bytes,
            unmeasured={"peak_used_bytes": NOT_WATCHED, "process_peak_bytes": NOT_WATCHED},
        ),
        provenance=provenance,
    )


def _files(trial: TrialFolder) -> Iterator[Path]:
    return (file for file in (trial.plan, trial.progress, trial.result) if file.exists())
