"""What the rules of advice look at: the rows of one table, the card they ran on, and what is wanted of it."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property

from dmad_sweep.analysis.fit import Family, Fit, family_of, fits_of
from dmad_sweep.analysis.grouping import Group, heading
from dmad_sweep.analysis.knobs import KNOBS
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import kind_of
from dmad_sweep.records.row import Row
from dmad_sweep.records.settings import Target
from dmad_sweep.units import GIB

KEPT_SHARE = 0.05
"""Of a card, kept free unless `target.headroom_gib` says how much: see docs/advice.md."""


@dataclass(frozen=True)
class Facts:
    """Training rows of one table; `everything` holds those of all tables, for what other regimes show."""

    rows: tuple[TableRow, ...]
    everything: tuple[TableRow, ...]
    target: Target

    @cached_property
    def heading(self) -> str:
        return f"{heading(self.rows)}, {self.rows[0].precision}"

    @cached_property
    def finished(self) -> list[TableRow]:
        return [row for row in self.rows if row.status == "ok" and row.peak_allocated_bytes is not None]

    @cached_property
    def fits(self) -> dict[Family, Fit]:
        return fits_of(self.rows)

    @cached_property
    def capacity_bytes(self) -> int | None:
        """Of the card, or of the one that is emulated; None on a CPU without a limit."""
        return self.rows[0].memory_limit_bytes or self.rows[0].device_total_bytes

    @cached_property
    def kept_bytes(self) -> int:
        """What must stay free."""
        if self.target.headroom_gib is not None:
            return round(self.target.headroom_gib * GIB)
        return round(KEPT_SHARE * (self.capacity_bytes or 0))

    def fit_for(self, row: Row) -> Fit | None:
        return self.fits.get(family_of(row))

    def like(self, row: Row) -> list[TableRow]:
        """Finished rows that differ from `row` in batch and resolution at most."""
        return [other for other in self.finished if family_of(other) == family_of(row)]

    def died(self, *kinds: str, cycles: Container[int]) -> list[TableRow]:
        """Rows that ran out of memory in such a stage of such a cycle, the smallest first."""
        found = [
            row
            for row in self.rows
            if row.status == "oom"
            and row.died_cycle is not None
            and row.died_cycle in cycles
            and (not kinds or (row.died_stage is not None and kind_of(row.died_stage) in kinds))
        ]
        return sorted(found, key=size_of)

    def label(self, row: Row) -> str:
        """The row by the axes in which this table's rows differ."""
        return self.label_of_cell(row, row.batch, row.resolution)

    def label_of_cell(self, row: Row, batch: int, resolution: str) -> str:
        """A cell with the settings of `row`."""
        said = tr("batch {batch} at {resolution}", batch=batch, resolution=resolution)
        if row.accumulation > 1:
            said += f", {tr('accumulation')} {row.accumulation}"
        for knob in KNOBS:
            if len({getattr(other, knob) for other in self.rows}) > 1:
                said += f", {tr(knob)} {getattr(row, knob)}"
        return said


def size_of(row: Row) -> int:
    """Pixels of a micro-batch."""
    return row.batch * row.height * row.width


def facts_of(groups: Sequence[Group[TableRow]], target: Target) -> list[Facts]:
    """One for each table of training rows."""
    tables = [tuple(row for row in group.rows if row.phase == "train") for group in groups]
    everything = tuple(row for rows in tables for row in rows)
    return [Facts(rows, everything, target) for rows in tables if rows]
