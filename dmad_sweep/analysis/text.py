"""How numbers, overflows and remarks of a row read."""

from dmad_sweep.records.row import Row, Spread
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

ABSENT = "–"

REMARKS = {
    "cpu_memory": "peak is the process's memory above its start: a CPU has no allocator to ask",
    "emulated": "on an emulated card: the allocator was limited, algorithms still saw the real device",
    "probable_oom": "probably out of memory: the library's error does not say so for certain",
    "allocation_retries": "the allocator had to free its cache and retry: times are not comparable",
    "batch_differs": "the tensors had another micro-batch than was asked for",
    "resolution_differs": "the tensors had another size than was asked for",
}


def gib(value: int | None) -> str:
    if value is None:
        return ABSENT
    size = bytes_to_gib(value)
    return f"{size:.2f}" if abs(size) >= 1 else f"{size:.3f}"


def ms(spread: Spread | None) -> str:
    """Median in milliseconds."""
    if spread is None:
        return ABSENT
    value = seconds_to_ms(spread.median)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ms_with_spread(spread: Spread | None) -> str:
    """Median in milliseconds and half the range, relative; one value has no range."""
    if spread is None or spread.low == spread.high:
        return ms(spread)
    return f"{ms(spread)} ±{100 * spread.relative:.0f}%"


def rate(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def overflow(row: Row) -> str:
    """`no`, or what ran out where: the class of the stage in the first cycle, else the cycle."""
    if row.status == "ok":
        return "no"
    where = f" ({row.died_stage})" if row.died_stage else ""
    if row.status != "oom":
        return row.status + where
    if row.died_cycle is not None and row.died_cycle > 1:
        return f"step-{row.died_cycle} OOM{where}"
    return f"{_stage_class(row)} OOM{where}"


def remarks(row: Row) -> list[str]:
    """Sentences on a row, most specific last."""
    said = [REMARKS.get(code, code) for code in row.remarks]
    if row.oom_requested_bytes is not None:
        said.append(f"asked for {amount(row.oom_requested_bytes)} more when memory ran out")
    if row.explanation is not None:
        said.append(" ".join(row.explanation.split()))
    return said


def amount(size: int) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} bytes"


def _stage_class(row: Row) -> str:
    """Every stage before backward counts as forward: scores, GAN and sampling run in it too."""
    stage = row.died_stage or ""
    if row.died_cycle == 0:
        return "load" if stage in ("load", "start") else stage
    kind = stage.rpartition(".")[2]
    return kind if kind in ("backward", "optimizer") else "forward"
