"""The report as one page of HTML that needs nothing beside itself: no other file, no network."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dmad_sweep.analysis.columns import REMARKS_TITLE, Column, columns_of
from dmad_sweep.analysis.grouping import Group, heading
from dmad_sweep.analysis.language import spoken, tr
from dmad_sweep.analysis.plots.draw import Plot, plots_of
from dmad_sweep.analysis.remarks import Notes
from dmad_sweep.analysis.table_row import TableRow

NUMBER = re.compile(r"[^\d-]*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
"""The number that a cell begins with, after a sign such as ×."""

LANGUAGES_OF_PAGES = {"en": "en", "zh": "zh-Hans"}


@dataclass(frozen=True)
class Cell:
    """`key` is what a column of numbers is sorted by; None, not measured, comes last."""

    text: str
    key: float | None = None


@dataclass(frozen=True)
class Line:
    cells: tuple[Cell, ...]
    status: str


@dataclass(frozen=True)
class Section:
    """A table with what stands around it."""

    heading: str
    apart: str | None
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    figures: tuple[tuple[str, Markup], ...]
    """Title and SVG of each plot."""


def as_html(
    groups: Sequence[Group[TableRow]],
    view: str,
    advice: Sequence[str] = (),
    plots: Sequence[Plot] | None = None,
) -> str:
    """`advice` stands above the tables: whoever opens a page wants the answer first.

    Without `plots` they are drawn.
    """
    plots = plots_of(groups) if plots is None else plots
    sections = [
        _section(group, view, [plot for plot in plots if plot.table == number])
        for number, group in enumerate(groups)
    ]
    # autoescape for everything: names and messages come from other people's files
    environment = Environment(
        loader=PackageLoader("dmad_sweep.analysis.html", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sweeps = list(dict.fromkeys(row.sweep for group in groups for row in group.rows))
    return environment.get_template("page.html.j2").render(
        language=LANGUAGES_OF_PAGES[spoken()],
        sweeps=sweeps,
        sections=sections,
        advice=advice,
        title_of_advice=tr("what to change"),
    )


def _section(group: Group[TableRow], view: str, plots: Sequence[Plot]) -> Section:
    notes = Notes(group.rows)
    columns = (*columns_of(group.rows, view), Column(REMARKS_TITLE, notes.marks))
    return Section(
        heading=heading(group.rows),
        apart=tr("in a table of its own: {why}", why=group.apart) if group.apart else None,
        columns=columns,
        lines=tuple(Line(tuple(_cell(column, row) for column in columns), row.status) for row in group.rows),
        notes=tuple(notes.lines()),
        figures=tuple((plot.title, _inline(plot.svg)) for plot in plots),
    )


def _cell(column: Column, row: TableRow) -> Cell:
    text = column.cell(row)
    if column.order is not None:
        return Cell(text, column.order(row))
    found = NUMBER.match(text) if column.number else None
    return Cell(text, float(found[1]) if found else None)


def _inline(svg: str) -> Markup:
    """Without what only a file of its own has: the declaration, the document type and the metadata.

    matplotlib draws every name as outlines, so that nothing of a record stands in this markup; a comment
    with the text is left out too.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    return Markup(re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL))
