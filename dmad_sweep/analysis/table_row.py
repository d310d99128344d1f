"""A line of a table, with what tables add to the rows of trials."""

from collections import Counter
from dataclasses import dataclass

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.ratio import Ratio
from dmad_sweep.analysis.text import overflow
from dmad_sweep.records.row import Row


@dataclass(frozen=True)
class Growth:
    """Against the row above, from which a row differs in `variable` alone."""

    variable: str
    peak: Ratio | None
    time: Ratio | None


@dataclass(frozen=True, kw_only=True)
class TableRow(Row):
    """A line of a table: what its trials, one or several repeats, say together."""

    trials: tuple[Row, ...]
    over_baseline_bytes: int | None = None
    """Peak allocated less that of the baseline; None where there is none. See analysis/baseline.py."""
    growth: Growth | None = None
    """Against the row above; see analysis/growth.py."""

    @property
    def peak_half_range_bytes(self) -> float | None:
        """Half the range of peak allocated over the repeats that came to their end; None for fewer than two.

        A repeat that died has the peak up to its death, which says nothing about how well peaks agree.
        """
        peaks = [t.peak_allocated_bytes for t in self.trials if t.status == "ok" and t.peak_allocated_bytes]
        return (max(peaks) - min(peaks)) / 2 if len(peaks) > 1 else None

    @property
    def overflow(self) -> str:
        """`no`, or what ended repeats early, with their number where others ended otherwise."""
        deaths = Counter(overflow(trial) for trial in self.trials if trial.status != "ok")
        said = [
            what
            if count == len(self.trials)
            else tr("{what}, {count} of {all}", what=what, count=count, all=len(self.trials))
            for what, count in deaths.items()
        ]
        return "; ".join(said) or tr("no")
