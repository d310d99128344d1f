"""A line or an object for each trial, for other programs: all that a row holds, units in the names."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter

from dmad_sweep.analysis.remarks import remarks
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import overflow
from dmad_sweep.records.metrics import METRICS
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

BEFORE_METRICS = (
    "sweep",
    "trial_id",
    "role",
    "index",
    "repeat",
    "status",
    "model",
    "recipe",
    "student_update_freq",
    "phase",
    "data",
    "resolution",
    "height",
    "width",
    "batch",
    "accumulation",
    "effective_batch",
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


def _gib(size: int | None) -> float | None:
    return None if size is None else bytes_to_gib(size)


PARTS = ("weight", "gradient", "state", "activation", "fragmentation", "context")
"""Of a peak's anatomy."""


def _part(name: str, row: TableRow) -> float | None:
    return None if row.anatomy is None else _gib(getattr(row.anatomy, f"{name}_bytes"))


FIELDS: dict[str, Callable[[TableRow], object]] = {
    **{name: attrgetter(name) for name in BEFORE_METRICS},
    "device_total_gib": lambda row: _gib(row.device_total_bytes),
    "memory_limit_gib": lambda row: _gib(row.memory_limit_bytes),
    **{metric.name.rpartition("/")[2]: metric.value for metric in METRICS},
    "peak_ratio": lambda row: row.growth and row.growth.peak and row.growth.peak.value,
    "time_ratio": lambda row: row.growth and row.growth.time and row.growth.time.value,
    "grown_with": lambda row: row.growth and row.growth.variable,
    "over_baseline_gib": lambda row: _gib(row.over_baseline_bytes),
    "iteration_low_ms": lambda row: row.iteration_s and seconds_to_ms(row.iteration_s.low),
    "iteration_high_ms": lambda row: row.iteration_s and seconds_to_ms(row.iteration_s.high),
    "peak_stage": attrgetter("peak_stage"),
    **{f"{part}_gib": partial(_part, part) for part in PARTS},
    "peak_cycle": attrgetter("peak_cycle"),
    "overflow": overflow,
    "died_stage": attrgetter("died_stage"),
    "died_cycle": attrgetter("died_cycle"),
    "oom_requested_bytes": attrgetter("oom_requested_bytes"),
    "verdict": attrgetter("verdict"),
    "gradient_l2": attrgetter("gradient_l2"),
    "reused_from": attrgetter("reused_from"),
    "remarks": lambda row: "; ".join(remarks(row)),
}
"""Column of the file and what stands in it; None, not measured, is an empty cell."""

NOT_ESTIMATED = {"estimate_error": None, "extrapolated": None}
"""Largest relative error when each measured cell is left out, and whether the cell is larger than any."""


def as_csv(rows: Iterable[TableRow]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows([value(row) for value in FIELDS.values()] for row in rows)
    return buffer.getvalue()


def as_json(rows: Iterable[TableRow], estimates: Iterable[dict[str, object]] = ()) -> str:
    """A list of objects with the columns of the CSV and `origin`; what is not known is null.

    `origin` is `measured`, or `estimated` for cells that no trial answered; those stand last and know less.
    """
    lines = [
        {"origin": "measured"} | {name: value(row) for name, value in FIELDS.items()} | NOT_ESTIMATED
        for row in rows
    ]
    lines += [{"origin": "estimated"} | dict.fromkeys(FIELDS) | NOT_ESTIMATED | found for found in estimates]
    return json.dumps(lines, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
