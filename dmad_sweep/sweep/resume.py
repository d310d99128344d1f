"""Results that an earlier sweep measured under the same key, taken over instead of measured again."""

from collections.abc import Iterable
from dataclasses import replace

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Origin, Record
from dmad_sweep.records.result import RESULT_STATUSES
from dmad_sweep.records.row import Row


def measured_before(plan: Plan, earlier: Iterable[Row]) -> tuple[Row | None, list[str]]:
    """The latest row with the plan's key; else the parts of the key that changed since the nearest one.

    Out-of-memory and `invalid` are results; killed, timed out and failed trials are measured again. A result
    that was itself taken over is left out, because what it was taken from is among the rows as well.
    """
    assert plan.key is not None
    results = [
        row for row in earlier if row.status in RESULT_STATUSES and row.key and row.reused_from is None
    ]
    same = [row for row in results if row.key == plan.key]
    if same:
        return max(same, key=lambda row: row.started_at), []
    changes = [plan.key.changed_since(row.key) for row in results if row.key]
    return None, min(changes, key=len, default=[])


def taken_over(record: Record, plan: Plan) -> Record:
    """An earlier record as a trial of the plan's sweep."""
    origin = Origin(sweep=record.plan.sweep, trial_id=record.plan.trial_id)
    own = replace(record.plan, trial_id=plan.trial_id, sweep=plan.sweep, index=plan.index)
    return replace(record, plan=own, reused_from=record.reused_from or origin)
