"""One record as an MLflow run: params, metrics, series and tags."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dmad_sweep.errors import RecordError
from dmad_sweep.records.codec import to_json
from dmad_sweep.records.metrics import metrics_of, params_of
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param

KIND, SWEEP, TRIAL_ID, ROW = "dmad.kind", "dmad.sweep", "dmad.trial_id", "dmad.row"

KEY, COMBINATION = "dmad.key", "dmad.combination"
"""Digests of a trial's key, and of its settings alone."""

TAG_LIMIT = 8000
"""MLflow cuts tags off here (seen with MLflow 3.17)."""

LONGEST_TEXT = 1000
TEXT_LIMITS = {ROW: TAG_LIMIT}

LATEST = 2.0**36
"""Unix time that no trial ends after; a store keeps milliseconds."""

RUN_STATUS = {
    "ok": "FINISHED",
    "oom": "FINISHED",
    "invalid": "FINISHED",
    "timeout": "FAILED",
    "failed": "FAILED",
    "killed": "KILLED",
}


class TrialRun:
    """What of a record goes where."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._row = row_of(record)

    def run_status(self) -> str:
        return RUN_STATUS[self._record.status]

    def params(self) -> list["Param"]:
        from mlflow.entities import Param

        return [Param(key, str(value)) for key, value in params_of(self._row).items()]

    def metrics(self) -> list["Metric"]:
        """Headline metrics, and a point per cycle of turn times and peaks.

        The step of a point is its cycle; those up to the tag `dmad.warmup_cycles` are warm-up.
        """
        from mlflow.entities import Metric

        at = round(self._record.ended_at * 1000)
        points = [(name, value, 0) for name, value in metrics_of(self._row).items()]
        for cycle in self._record.result.cycles if self._record.result else []:
            for turn in cycle.turns:
                points.append((f"cycle/{turn.turn}_turn_ms", seconds_to_ms(turn.compute_s), cycle.index))
            data_s = sum(turn.data_s for turn in cycle.turns)
            points.append(("cycle/data_ms", seconds_to_ms(data_s), cycle.index))
            if cycle.peak.allocated_bytes is not None:
                peak = bytes_to_gib(cycle.peak.allocated_bytes)
                points.append(("cycle/peak_allocated_gib", peak, cycle.index))
        return [Metric(name, value, at, step) for name, value, step in points]

    def tags(self) -> dict[str, str]:
        record, row = self._record, self._row
        tags: dict[str, object] = {
            KIND: "trial",
            "dmad.status": record.status,
            SWEEP: record.plan.sweep,
            TRIAL_ID: record.plan.trial_id,
            "dmad.device": record.plan.device.name,
            "dmad.pid": record.ending.pid,
            "dmad.commit": _commit(record),
            "dmad.warmup_cycles": record.plan.schedule.warmup_cycles,
            "dmad.verdict": row.verdict,
            "dmad.stage": row.died_stage,
            "dmad.cycle": row.died_cycle,
            KEY: record.plan.key.digest if record.plan.key else None,
            COMBINATION: record.plan.key.combination if record.plan.key else None,
            "dmad.reused_from": record.reused_from.trial_id if record.reused_from else None,
            ROW: _compact(row),
        }
        return {name: str(value) for name, value in tags.items() if value is not None}


def require_storable(record: Record) -> None:
    """Raises RecordError for values that can be read and that no trial leaves: a store would refuse them."""
    for name in ("started_at", "ended_at"):
        if not 0 <= getattr(record, name) < LATEST:
            raise RecordError(f"{name}: not a time")
    try:
        trial = TrialRun(record)
        numbers = [metric.value for metric in trial.metrics()]
        texts = {"plan": record.plan.label, **trial.tags(), **{p.key: p.value for p in trial.params()}}
    except (ArithmeticError, ValueError, LookupError) as error:
        raise RecordError(f"its numbers cannot be computed with ({error})") from error
    if not all(map(math.isfinite, numbers)):
        raise RecordError("its numbers cannot be computed with (not finite)")
    for name, text in texts.items():
        if len(text) > TEXT_LIMITS.get(name, LONGEST_TEXT):
            raise RecordError(f"{name}: {len(text)} characters are too many for a store")


def _commit(record: Record) -> str | None:
    if record.provenance.commit is None:
        return None
    return record.provenance.commit + ("-dirty" if record.provenance.dirty else "")


def _compact(row: Row) -> str:
    text = to_json(row)
    if len(text) >= TAG_LIMIT and row.explanation is not None:
        text = to_json(replace(row, explanation=row.explanation[:100]))
    if len(text) >= TAG_LIMIT:
        raise RecordError(f"its row takes {len(text)} characters, and a store keeps {TAG_LIMIT}")
    return text
