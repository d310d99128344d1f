"""How numbers and overflows of a row read."""

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.ratio import Ratio
from dmad_sweep.records.row import Row, Spread
from dmad_sweep.units import GIB, MIB, bytes_to_gib, seconds_to_ms

ABSENT = "–"
"""A cell that was not measured."""


def gib(value: int | None) -> str:
    if value is None:
        return ABSENT
    size = bytes_to_gib(value)
    return f"{size:.2f}" if abs(size) >= 1 else f"{size:.3f}"


def gib_with_spread(value: int | None, half_range: float | None) -> str:
    """GiB and how far repeats differ; what two decimals of a GiB would hide is told in MiB."""
    if value is None or half_range is None:
        return gib(value)
    hidden = 0 < half_range < GIB / 100
    spread = f"{half_range / MIB:.2g} MiB" if hidden else f"{bytes_to_gib(half_range):.2f}"
    return f"{gib(value)} ±{spread}"


def unexplained(row: Row) -> str:
    """What the parts of a peak leave of the device's peak, as a share of it."""
    if row.unexplained_bytes is None or not row.device_peak_bytes:
        return ABSENT
    return f"{100 * row.unexplained_bytes / row.device_peak_bytes:.1f}%"


def gradient_l2(row: Row) -> str:
    return ABSENT if row.gradient_l2 is None else f"{row.gradient_l2:.1e}"


def ms_of(seconds: float) -> str:
    """Seconds as milliseconds."""
    value = seconds_to_ms(seconds)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ms(spread: Spread | None) -> str:
    """Median in milliseconds."""
    return ABSENT if spread is None else ms_of(spread.median)


def ms_with_spread(spread: Spread | None) -> str:
    """Median in milliseconds and half the range, relative; one value has no range."""
    if spread is None or spread.low == spread.high:
        return ms(spread)
    return f"{ms(spread)} ±{100 * spread.relative:.0f}%"


def ratio(value: Ratio | None) -> str:
    """A multiple with its uncertainty, where it has any that two decimals can show."""
    if value is None:
        return ABSENT
    spread = f" ±{value.half_range:.2f}" if value.half_range >= 0.005 else ""
    return f"×{value.value:.2f}{spread}"


def rate(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def amount(size: int) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def overflow(row: Row) -> str:
    """`no`, or what ran out where: the class of the stage in the first cycle, else the cycle."""
    if row.status == "ok":
        return tr("no")
    if row.status != "oom":
        return _in_stage(tr(row.status), row)
    if row.died_cycle == 0:
        return tr("load OOM") if row.died_stage == "load" else _in_stage(tr("load OOM"), row)
    if row.died_cycle is not None and row.died_cycle > 1:
        return _in_stage(tr("step-{cycle} OOM", cycle=row.died_cycle), row)
    if row.died_stage is None:
        return "OOM"
    return _in_stage(tr(f"{kind_of(row.died_stage)} OOM"), row)


def kind_of(stage: str) -> str:
    """`backward`, `optimizer`, or `forward`: scores, GAN and sampling run before backward too."""
    kind = stage.rpartition(".")[2]
    return kind if kind in ("backward", "optimizer") else "forward"


def _in_stage(what: str, row: Row) -> str:
    return what if row.died_stage is None else f"{what} ({row.died_stage})"
