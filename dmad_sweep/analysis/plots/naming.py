"""What rows of one plot are called: by the variables in which they differ."""

from collections.abc import Iterable, Sequence

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.variation import AXES

LONGEST = 60
"""Characters of a name: what stands beside a plot must leave room for it."""


def name_of(row: TableRow, varying: Iterable[str]) -> str:
    """`512, batch 2, checkpointing none`: as short as tells it from the others."""
    names = sorted((name for name in AXES if name in set(varying)), key=lambda name: name != "resolution")
    said = ", ".join(
        AXES[name](row) if name == "resolution" else f"{tr(name)} {AXES[name](row)}" for name in names
    )
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def varying(rows: Sequence[TableRow]) -> list[str]:
    """Variables with a column in which the rows differ; batch always, so that every row has a name."""
    return [name for name, read in AXES.items() if name == "batch" or len({read(row) for row in rows}) > 1]


def series_of(rows: Sequence[TableRow]) -> dict[str, list[TableRow]]:
    """Rows that differ in the batch alone, by name, in the order of the table."""
    others = [name for name in AXES if name != "batch"]
    keys = dict.fromkeys(tuple(AXES[name](row) for name in others) for row in rows)
    shown = [name for name in varying(rows) if name != "batch"]
    found: dict[str, list[TableRow]] = {}
    for key in keys:
        members = [row for row in rows if tuple(AXES[name](row) for name in others) == key]
        name = name_of(members[0], shown) or AXES["resolution"](members[0])
        found.setdefault(name, []).extend(sorted(members, key=lambda row: row.batch))
    return found
