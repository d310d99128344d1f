"""What was not measured, from what was: peaks of stages, each linear in micro-batch × pixels.

A trial's peak is the highest of its stages' peaks. Each stage's is a constant (what lives through it) and a
part that grows with micro-batch × tokens, that is with micro-batch × pixels; with the math kernel attention
adds a part that grows with micro-batch × pixels squared. The maximum over stages bends where another stage
takes over, so stages are fitted and never their maximum. How good a fit is, leaving each cell out in turn
and estimating it from the others tells.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.variation import BEHIND
from dmad_sweep.records.row import Row

Family = tuple[object, ...]
"""Everything that rows of one fit share; see `family_of`."""


UNCHECKED_ERROR = 0.05
"""Of an estimate whose fit has too few cells to be checked. Where it could be, on 36 cells measured on an
H200, leaving each out was wrong by 3.2 % at most (docs/advice.md)."""


@dataclass(frozen=True)
class Cell:
    """A micro-batch and the pixels of one sample."""

    batch: int
    height: int
    width: int

    @property
    def resolution(self) -> str:
        return str(self.height) if self.height == self.width else f"{self.height}x{self.width}"

    @property
    def pixels(self) -> int:
        return self.height * self.width


@dataclass(frozen=True)
class Estimate:
    """What a fit says of a cell."""

    cell: Cell
    accumulation: int
    peak_bytes: int
    stage: str
    """That holds the peak."""
    device_peak_bytes: int | None
    """Peak and what the device held beyond it in the measured cells, at most."""
    iteration_s: float | None
    error: float | None
    """Largest relative error of the peak when each measured cell is left out; None for too few cells."""
    extrapolated: bool
    """The cell has more micro-batch × pixels than any that was measured."""
    bound: bool = False
    """The peak is at most this: a set of gradients was added to stages whose accumulation nobody measured."""

    @property
    def effective_batch(self) -> int:
        return self.cell.batch * self.accumulation

    @property
    def images_per_s(self) -> float | None:
        return self.effective_batch / self.iteration_s if self.iteration_s else None

    @property
    def careful_device_peak_bytes(self) -> int | None:
        """With the fit's own error on top; None where the device cannot tell."""
        if self.device_peak_bytes is None:
            return None
        error = UNCHECKED_ERROR if self.error is None else self.error
        return self.device_peak_bytes + round(error * self.peak_bytes)


def family_of(row: Row) -> Family:
    """Rows of one table that differ in batch and resolution alone, and in how far they accumulate."""
    return (
        row.precision,
        row.checkpointing,
        row.adapter,
        row.attention,
        row.optimizer,
        row.ema,
        row.accumulation > 1,
        *(read(row) for read in BEHIND.values()),
        *sorted(row.settings.items()),
    )


class Fit:
    """Of the rows of one family that came to their end. `rows` hold at least two different sizes."""

    def __init__(self, rows: Sequence[TableRow]) -> None:
        self.rows = tuple(rows)
        self.row = rows[0]

    @cached_property
    def error(self) -> float | None:
        """Largest relative error of a peak that all other cells estimate; None for fewer than three."""
        errors = []
        for left_out in self.rows:
            others = [row for row in self.rows if cell_of(row) != cell_of(left_out)]
            if not _fittable(others):
                return None
            measured = max(left_out.stage_peaks.values())
            errors.append(abs(Fit(others).peak(cell_of(left_out))[0] / measured - 1))
        return max(errors)

    def at(self, cell: Cell, accumulation: int | None = None) -> Estimate:
        """Of a cell with as many micro-steps as the family's rows have, or with `accumulation` of them.

        Where only trials without accumulation were measured, a whole set of gradients is added to every stage
        but the optimizer's: from the second micro-step on it lives beside the activations.
        """
        steps = accumulation or self.row.accumulation
        bound = steps > 1 and self.row.accumulation == 1
        peak, stage = self.peak(cell, self._gradient_set() if bound else 0)
        beyond = self._beyond_allocated
        return Estimate(
            cell=cell,
            accumulation=steps,
            peak_bytes=round(peak),
            stage=stage,
            device_peak_bytes=None if beyond is None else round(peak) + beyond,
            iteration_s=self._iteration_s(cell, steps),
            error=self.error,
            extrapolated=_size(cell) > max(_size(cell_of(row)) for row in self.rows),
            bound=bound,
        )

    def peak(self, cell: Cell, gradients: int = 0) -> tuple[float, str]:
        """Bytes, and the stage that holds them."""
        peaks = {
            stage: float(_terms(cell, self._squared) @ coefficients)
            + (0 if stage.endswith(".optimizer") else gradients)
            for stage, coefficients in self._stages.items()
        }
        stage = max(peaks, key=lambda name: peaks[name])
        return peaks[stage], stage

    def per_sample(self, cell: Cell, stage: str | None = None) -> float:
        """Bytes that one more sample of the micro-batch adds to a stage, or to the peak."""
        one_more = replace(cell, batch=cell.batch + 1)
        coefficients = self._stages[stage or self.peak(one_more)[1]]
        return float((_terms(one_more, self._squared) - _terms(cell, self._squared)) @ coefficients)

    @property
    def _squared(self) -> bool:
        return self.row.attention == "math"

    @cached_property
    def _stages(self) -> Mapping[str, NDArray[np.float64]]:
        names = [name for name in self.row.stage_peaks if all(name in row.stage_peaks for row in self.rows)]
        terms = np.stack([_terms(cell_of(row), self._squared) for row in self.rows])
        return {
            name: _least_squares(terms, np.array([row.stage_peaks[name] for row in self.rows], np.float64))
            for name in names
        }

    @cached_property
    def _beyond_allocated(self) -> int | None:
        """Most device memory beyond the allocated peak: context, cache and rounding, others left out."""
        beyond = [
            row.device_peak_bytes - (row.used_before_bytes or 0) - row.peak_allocated_bytes
            for row in self.rows
            if row.device_peak_bytes is not None and row.peak_allocated_bytes is not None
        ]
        return max(beyond, default=None)

    def _gradient_set(self) -> int:
        return max((row.floor.gradient_set_bytes for row in self.rows if row.floor), default=0)

    def _iteration_s(self, cell: Cell, steps: int) -> float | None:
        """`steps` times that of a micro-step: a constant and a part that grows with its pixels."""
        timed = [row for row in self.rows if row.iteration_s is not None]
        if not _fittable(timed):
            return None
        terms = np.stack([_terms(cell_of(row), False) for row in timed])
        per_step = [row.iteration_s.median / row.accumulation for row in timed if row.iteration_s]
        coefficients = _least_squares(terms, np.array(per_step, np.float64))
        return steps * float(_terms(cell, False) @ coefficients)


def fits_of(rows: Iterable[TableRow]) -> dict[Family, Fit]:
    """A fit for each family of a table with enough cells; inference and verification are not fitted."""
    families: dict[Family, dict[Cell, TableRow]] = {}
    for row in rows:
        if row.status == "ok" and row.phase == "train" and row.stage_peaks:
            families.setdefault(family_of(row), {}).setdefault(cell_of(row), row)
    return {name: Fit([*cells.values()]) for name, cells in families.items() if _fittable([*cells.values()])}


def unmeasured(rows: Sequence[TableRow]) -> list[tuple[Fit, Estimate]]:
    """Estimates of the cells that a table's batches and resolutions make up and no trial has answered.

    A cell that ran out of memory or cannot be is answered.
    """
    found = []
    for family, fit in fits_of(rows).items():
        members = [row for row in rows if row.phase == "train" and family_of(row) == family]
        answered = {cell_of(row) for row in members if row.status in ("ok", "oom", "invalid")}
        batches = sorted({row.batch for row in members})
        sizes = sorted({(row.height, row.width) for row in members}, key=lambda size: size[0] * size[1])
        for (height, width), batch in product(sizes, batches):
            cell = Cell(batch, height, width)
            if cell not in answered:
                found.append((fit, fit.at(cell)))
    return found


def cell_of(row: Row) -> Cell:
    return Cell(row.batch, row.height, row.width)


def _fittable(rows: Sequence[TableRow]) -> bool:
    """Two sizes determine a line; the math kernel's curve takes three, of two resolutions."""
    cells = {cell_of(row) for row in rows}
    sizes = {_size(cell) for cell in cells}
    if rows and rows[0].attention == "math":
        return len(sizes) > 2 and len({cell.pixels for cell in cells}) > 1
    return len(sizes) > 1


def _size(cell: Cell) -> int:
    return cell.batch * cell.pixels


MEGA = 1e6
"""Pixels are counted in millions, which keeps the columns of a fit alike in size."""


def _terms(cell: Cell, squared: bool) -> NDArray[np.float64]:
    pixels = cell.pixels / MEGA
    terms = [1.0, cell.batch * pixels]
    return np.array([*terms, cell.batch * pixels**2] if squared else terms)


def _least_squares(terms: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients with the least relative errors; nothing shrinks with the batch, so none is negative."""
    weights = 1 / np.maximum(measured, 1e-12)
    kept = list(range(terms.shape[1]))
    coefficients = np.zeros(terms.shape[1])
    while kept:
        solution = np.linalg.lstsq(terms[:, kept] * weights[:, None], measured * weights, rcond=None)[0]
        if (solution >= 0).all():
            coefficients[kept] = solution
            break
        kept.pop(int(solution.argmin()))
    return coefficients
