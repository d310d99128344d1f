"""The trade-off table: one row for each combination, in the format that is asked for."""

from collections.abc import Sequence

from dmad_sweep.analysis.grouping import Group, grouped
from dmad_sweep.analysis.repeats import TableRow, merged
from dmad_sweep.records.row import Row


def render(rows: Sequence[Row], style: str, *, width: int | None = None, colour: bool = False) -> str:
    """The table of `rows` as `terminal`, `markdown` or `csv`; several where rows cannot be compared.

    People get one row for the repeats of a combination, other programs (`csv`) one for each trial.
    `width` is the terminal's columns; `colour` adds its escape sequences. Rows are put in order.
    """
    groups = grouped(rows)
    match style:
        case "terminal":
            from dmad_sweep.analysis.terminal import as_terminal  # rich takes a while to load

            return as_terminal(_merged(groups), width, colour)
        case "markdown":
            from dmad_sweep.analysis.markdown import as_markdown

            return as_markdown(_merged(groups))
        case "csv":
            from dmad_sweep.analysis.spreadsheet import as_csv

            return as_csv(row for group in groups for row in group.rows)
    raise ValueError(f"unknown format {style!r}")


def _merged(groups: Sequence[Group[Row]]) -> list[Group[TableRow]]:
    return [Group(rows=merged(group.rows), apart=group.apart) for group in groups]
