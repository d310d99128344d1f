"""All plots of a report, as files. Whoever imports this loads matplotlib."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from dmad_sweep.analysis.grouping import Group
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.plots.against_batch import draw_peaks, draw_times
from dmad_sweep.analysis.plots.makeup import draw_makeup
from dmad_sweep.analysis.plots.pareto import draw_pareto
from dmad_sweep.analysis.plots.style import drawing
from dmad_sweep.analysis.table_row import TableRow

KINDS = {
    "peak_against_batch": (draw_peaks, "peak against batch"),
    "time_against_batch": (draw_times, "iteration time against batch"),
    "time_against_memory": (draw_pareto, "memory against time"),
    "makeup_of_peaks": (draw_makeup, "what the peaks are made of"),
}
"""By the name of its file, what draws a plot and what it is called."""

DOTS_PER_INCH = 150


@dataclass(frozen=True)
class Plot:
    """`name` is that of its files; `table` says of which of several tables it is, from 0."""

    name: str
    title: str
    table: int
    svg: str
    png: bytes | None = None


def plots_of(groups: Sequence[Group[TableRow]], *, png: bool = False) -> list[Plot]:
    """Of every table with training rows, or of all where none has any, those plots that it has data for."""
    trained = [i for i, group in enumerate(groups) if group.rows[0].phase == "train"]
    tables = trained or range(len(groups))
    return [
        plot
        for place, table in enumerate(tables)
        for plot in _of_a_table(groups[table].rows, table, f"-{place + 1}" if place else "", png)
    ]


def _of_a_table(rows: Sequence[TableRow], table: int, suffix: str, png: bool) -> Iterator[Plot]:
    for kind, (draw, title) in KINDS.items():
        name = f"{kind}{suffix}"
        with drawing(salt=name):
            figure = draw(rows)
            if figure is None:
                continue
            figure.axes[0].set_title(tr(title), fontsize=11)
            yield Plot(
                name=name,
                title=tr(title),
                table=table,
                svg=_file(figure, "svg").decode(),
                png=_file(figure, "png") if png else None,
            )


def _file(figure: Figure, style: Literal["svg", "png"]) -> bytes:
    buffer = io.BytesIO()
    undated: dict[str, str | None] = {"Date": None} if style == "svg" else {}
    figure.savefig(buffer, format=style, dpi=DOTS_PER_INCH, metadata=undated)
    return buffer.getvalue()
