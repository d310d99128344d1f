"""What training adds: each training row beside the inference row of the same conditions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dmad_sweep.analysis.repeats import combination
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.records.baseline import Conditions, conditions_of, is_baseline
from dmad_sweep.records.row import Row


def lack_baseline(rows: Iterable[Row]) -> bool:
    """Whether some training row has a peak and no baseline among the others."""
    rows = list(rows)
    known = _by_conditions(rows)
    return any(_trained(row) and conditions_of(row) not in known for row in rows)


def over_baseline(rows: Iterable[TableRow], known: Iterable[Row]) -> tuple[TableRow, ...]:
    """`rows` with their peaks over those of their baselines, wherever `known` has one.

    Of several baselines the one of the same sweep counts, else the latest; of its repeats, the highest peak.
    """
    baselines = _by_conditions(known)
    return tuple(
        replace(row, over_baseline_bytes=_over(row, baselines[conditions_of(row)]))
        if _trained(row) and conditions_of(row) in baselines
        else row
        for row in rows
    )


def _by_conditions(rows: Iterable[Row]) -> dict[Conditions, list[Row]]:
    found: dict[Conditions, list[Row]] = {}
    for row in rows:
        if is_baseline(row):
            found.setdefault(conditions_of(row), []).append(row)
    return found


def _trained(row: Row) -> bool:
    return row.phase == "train" and row.peak_allocated_bytes is not None


def _over(row: Row, baselines: Sequence[Row]) -> int:
    nearest = max(baselines, key=lambda baseline: (baseline.sweep == row.sweep, baseline.started_at))
    repeats = [baseline for baseline in baselines if combination(baseline) == combination(nearest)]
    return (row.peak_allocated_bytes or 0) - max(repeat.peak_allocated_bytes or 0 for repeat in repeats)
