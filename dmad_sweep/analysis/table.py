"""The trade-off table: one row for each combination, in the format that is asked for."""

from collections.abc import Sequence

from dmad_sweep.analysis.baseline import over_baseline
from dmad_sweep.analysis.grouping import Group, grouped
from dmad_sweep.analysis.repeats import apart, merged
from dmad_sweep.records.row import Row


def render(
    rows: Sequence[Row],
    style: str,
    *,
    view: str = "tradeoff",
    baselines: Sequence[Row] = (),
    width: int | None = None,
    colour: bool = False,
) -> str:
    """The table of `rows` as `terminal`, `markdown` or `csv`; several where rows cannot be compared.

    `view` is one of analysis.columns.VIEWS; csv holds all of them. People get one row for the repeats of a
    combination, other programs (`csv`) one for each trial. `baselines` are rows of other sweeps that training
    may be compared with; they are not shown. `width` is the terminal's columns; `colour` adds its escape
    sequences. Rows are put in order.
    """
    lines = apart if style == "csv" else merged
    known = [*rows, *baselines]
    groups = [Group(over_baseline(lines(group.rows), known), group.apart) for group in grouped(rows)]
    match style:
        case "terminal":
            from dmad_sweep.analysis.terminal import as_terminal  # rich takes a while to load

            return as_terminal(groups, view, width, colour)
        case "markdown":
            from dmad_sweep.analysis.markdown import as_markdown

            return as_markdown(groups, view)
        case "csv":
            from dmad_sweep.analysis.spreadsheet import as_csv

            return as_csv(row for group in groups for row in group.rows)
    raise ValueError(f"unknown format {style!r}")
