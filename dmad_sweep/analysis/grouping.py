"""Which rows may stand in one table, and in which order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.text import gib
from dmad_sweep.records.row import Row

COMPARABLE: dict[str, Callable[[Row], str | None]] = {
    "model": lambda row: row.model,
    "recipe": lambda row: row.recipe,
    "phase": lambda row: row.phase,
    "data": lambda row: row.data,
    "student_update_freq": lambda row: str(row.student_update_freq),
    "precision": lambda row: row.precision,
    "device": lambda row: device_of(row),
    "driver": lambda row: row.driver,
    "torch": lambda row: row.torch,
    "code": lambda row: row.code,
}
"""What must agree for two numbers to be compared."""


R = TypeVar("R", bound=Row, covariant=True)


@dataclass(frozen=True)
class Group(Generic[R]):
    """Rows of one table and, where there are several tables, what sets this one apart."""

    rows: tuple[R, ...]
    apart: str | None


def device_of(row: Row) -> str:
    """The device's name, its size and the size that it emulates."""
    said = row.device_name
    if row.device_total_bytes is not None:
        said += tr(" with {size} GiB", size=gib(row.device_total_bytes))
    if row.memory_limit_bytes is not None:
        said += tr(" limited to {size} GiB", size=gib(row.memory_limit_bytes))
    return said


def grouped(rows: Iterable[Row]) -> list[Group[Row]]:
    """Tables in the order of their first rows; a trial that never saw torch joins those that agree else."""
    tables: list[tuple[dict[str, str | None], list[Row]]] = []
    for row in rows:
        key = {name: read(row) for name, read in COMPARABLE.items()}
        for known, members in tables:
            if all(_agree(key[name], known[name]) for name in COMPARABLE):
                members.append(row)
                known.update({name: value for name, value in key.items() if value is not None})
                break
        else:
            tables.append((key, [row]))
    differing = [name for name in COMPARABLE if len({key[name] for key, _ in tables}) > 1]
    return [
        Group(
            rows=tuple(sorted(members, key=_order)),
            apart=", ".join(f"{tr(name)} {key[name] or tr('unknown')}" for name in differing) or None,
        )
        for key, members in tables
    ]


def _agree(first: str | None, second: str | None) -> bool:
    return first is None or second is None or first == second


def _order(row: Row) -> tuple[int, int, int, int, int, str, int, int]:
    return (
        row.height * row.width,
        row.height,
        row.batch,
        row.accumulation,
        row.effective_batch,
        row.checkpointing,
        row.index,
        row.repeat,
    )


def heading(rows: Sequence[Row]) -> str:
    """What all rows of a table share."""
    row = rows[0]
    torch = next((r.torch for r in rows if r.torch), None)
    parts = [f"{row.model}, {row.recipe}, {row.phase}", device_of(row)]
    if torch:
        parts.append(f"torch {torch}")
    return " · ".join(parts)
