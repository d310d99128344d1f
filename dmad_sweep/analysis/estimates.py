"""Cells that no trial answered, for other programs: as objects with names of the spreadsheet's columns."""

from collections.abc import Sequence

from dmad_sweep.analysis.fit import unmeasured
from dmad_sweep.analysis.grouping import Group
from dmad_sweep.analysis.repeats import merged
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

SHARED = (
    "model",
    "recipe",
    "student_update_freq",
    "phase",
    "data",
    "precision",
    "checkpointing",
    "adapter",
    "attention",
    "optimizer",
    "ema",
    "device_name",
    "torch",
    "driver",
    "code",
)
"""What a cell has in common with the rows that it is estimated from."""


def estimated(groups: Sequence[Group[TableRow]]) -> list[dict[str, object]]:
    """One object for each cell of the tables' grids that has no row. Errors are shares of the peak."""
    found = []
    for group in groups:
        trials = [trial for row in group.rows for trial in row.trials]
        for fit, estimate in unmeasured(merged(trials)):
            device, time = estimate.device_peak_bytes, estimate.iteration_s
            found.append(
                {name: getattr(fit.row, name) for name in SHARED}
                | {
                    "batch": estimate.cell.batch,
                    "height": estimate.cell.height,
                    "width": estimate.cell.width,
                    "resolution": estimate.cell.resolution,
                    "accumulation": estimate.accumulation,
                    "effective_batch": estimate.effective_batch,
                    "peak_allocated_gib": bytes_to_gib(estimate.peak_bytes),
                    "peak_stage": estimate.stage,
                    "device_peak_gib": None if device is None else bytes_to_gib(device),
                    "iteration_ms": None if time is None else seconds_to_ms(time),
                    "images_per_s": estimate.images_per_s,
                    "estimate_error": estimate.error,
                    "extrapolated": estimate.extrapolated,
                }
            )
    return found
