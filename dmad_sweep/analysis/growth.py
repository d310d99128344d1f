"""What one step of one variable costs: each row as a multiple of the row above it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dmad_sweep.analysis.ratio import Ratio
from dmad_sweep.analysis.table_row import Growth, TableRow
from dmad_sweep.analysis.variation import only_difference
from dmad_sweep.records.row import Spread


def with_growth(rows: Sequence[TableRow]) -> tuple[TableRow, ...]:
    """The rows with their growth, where both came to their end and exactly one variable differs."""
    return (*rows[:1], *(replace(row, growth=_growth(row, above)) for above, row in pairwise(rows)))


def _growth(row: TableRow, above: TableRow) -> Growth | None:
    if row.status != "ok" or above.status != "ok":
        return None
    variable = only_difference(row, above)
    if variable is None:
        return None
    peaks = peaks_of(row), peaks_of(above)
    times = row.iteration_s, above.iteration_s
    return Growth(
        variable,
        peak=Ratio.of(peaks[0], peaks[1]) if peaks[0] and peaks[1] else None,
        time=Ratio.of(times[0], times[1]) if times[0] and times[1] else None,
    )


def peaks_of(row: TableRow) -> Spread | None:
    """The highest peak, as tables show it, within the range of the repeats' peaks."""
    peaks = [trial.peak_allocated_bytes for trial in row.trials if trial.peak_allocated_bytes is not None]
    return Spread(median=max(peaks), low=min(peaks), high=max(peaks)) if peaks else None
