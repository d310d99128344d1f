"""The trade-off table for a terminal, as wide as it is."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from dmad_sweep.analysis.columns import REMARKS_TITLE, Column, columns_of, stacked
from dmad_sweep.analysis.grouping import Group, heading
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.remarks import Notes
from dmad_sweep.analysis.table_row import TableRow

MINIMUM_WIDTH = 80
DEFAULT_WIDTH = 100
UNLIMITED = 10_000
"""A table is drawn as wide as it is, so that rich never shortens a word."""

STYLES = {"ok": None, "oom": "red"}
OTHER_STYLE = "yellow"


def as_terminal(
    groups: Sequence[Group[TableRow]],
    view: str,
    width: int | None,
    colour: bool,
    advice: Sequence[str] = (),
) -> str:
    """`width` in columns; anything below 80 counts as 80. `advice` stands below the tables."""
    width = max(width or DEFAULT_WIDTH, MINIMUM_WIDTH)
    sections = [_section(group, view, width, colour) for group in groups]
    if advice:
        bullets = Table.grid(padding=(0, 1))
        bullets.add_column()
        bullets.add_column(overflow="fold")  # Chinese has no spaces to break at, and nothing may be cut off
        for paragraph in advice:
            bullets.add_row("•", Text(paragraph))
        sections.append(_drawn(Lines(bullets, Text()), width, colour))
    return "".join(sections)


def plain_table(
    titles: Sequence[str], lines: Sequence[Sequence[str]], below: Sequence[str], width: int | None
) -> str:
    """Cells as they are, a word of a title on each line, with sentences below."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for title in titles:
        table.add_column(title.replace(" ", "\n"), no_wrap=True)
    for line in lines:
        table.add_row(*line)
    sentences = Lines(*(Text(sentence) for sentence in below), Text())
    drawn = _drawn(table, UNLIMITED, colour=False) if lines else ""
    return drawn + _drawn(sentences, max(width or DEFAULT_WIDTH, MINIMUM_WIDTH), colour=False)


def _section(group: Group[TableRow], view: str, width: int, colour: bool) -> str:
    notes = Notes(group.rows)
    layout = _roomiest(group.rows, view, notes, width)
    above = [Text(heading(group.rows), style="bold")]
    if group.apart:
        above.append(Text(tr("in a table of its own: {why}", why=group.apart)))
    if layout.said:
        above.append(Text(", ".join(layout.said)))
    below = [Text(line) for line in notes.lines()]
    return (
        _drawn(Lines(*above), width, colour)
        + _drawn(layout.table(group.rows, notes), UNLIMITED, colour)
        + _drawn(Lines(*below, Text()), width, colour)
    )


@dataclass(frozen=True)
class _Layout:
    """How one table is squeezed. `left_out` are columns that all rows share, `said` replaces them."""

    view: str
    roomy: bool = False
    """Whether columns are shown that only a wide terminal has room for."""
    hyphenated: bool = False
    stage_lines: int = 0
    """0: an overflow's stage stands behind it; 1 or 2: on so many lines below."""
    gap: int = 2
    """Spaces between columns."""
    stacked: bool = False
    """What is over the baseline stands below the peak."""
    left_out: tuple[Column, ...] = ()
    said: tuple[str, ...] = ()

    def table(self, rows: Sequence[TableRow], notes: Notes) -> Table:
        # The box puts one space between columns itself.
        table = Table(box=box.SIMPLE_HEAD, padding=(0, self.gap - 1, 0, 0), show_edge=False)
        shown = [
            column
            for column in columns_of(rows, self.view)
            if column not in self.left_out and (self.roomy or not column.roomy)
        ]
        if self.stacked:
            shown = stacked(shown)
        for column in (*shown, Column(REMARKS_TITLE, notes.marks)):
            title = column.stacked_title(self.hyphenated)
            table.add_column(title, justify="right" if column.number else "left", no_wrap=True)
        for row in rows:
            table.add_row(
                *((self._stage if column.stage else self._number)(column.cell(row)) for column in shown),
                notes.marks(row),
                style=STYLES.get(row.status, OTHER_STYLE),
            )
        return table

    def _number(self, cell: str) -> str:
        if self.stage_lines < 2:
            return cell
        return cell.replace(" ±", "±" if self.gap > 1 else "\n±")

    def _stage(self, cell: str) -> str:
        if self.stage_lines:
            cell = cell.replace(" (", "\n(").replace("; ", ";\n")
        return cell.replace(".", ".\n").replace(", ", ",\n") if self.stage_lines == 2 else cell


def _roomiest(rows: Sequence[TableRow], view: str, notes: Notes, width: int) -> _Layout:
    """The layout with the fewest sacrifices that fits. Nothing is ever cut off: the last may not fit."""
    replaceable = [
        (column, said) for column in columns_of(rows, view) if (said := column.shared(rows)) is not None
    ]
    layouts = [
        _Layout(view, roomy=roomy, hyphenated=hyphenated, stage_lines=stage_lines)
        for roomy in (True, False)
        for hyphenated, stage_lines in ((False, 0), (True, 0), (True, 1))
    ]
    for stage_lines, gap, stack in ((1, 2, False), (2, 2, False), (2, 1, False), (2, 1, True)):
        for kept in reversed(range(len(replaceable))):
            columns, sentences = zip(*replaceable[kept:], strict=True)
            layouts.append(_Layout(view, False, True, stage_lines, gap, stack, columns, sentences))
    return next((lay for lay in layouts if _width(lay.table(rows, notes)) <= width), layouts[-1])


def _width(table: Table) -> int:
    return max(map(cell_len, _drawn(table, UNLIMITED, colour=False).splitlines()))


def _drawn(what: RenderableType, width: int, colour: bool) -> str:
    buffer = io.StringIO()
    # Names come from users' files: nothing in them is markup.
    Console(
        file=buffer,
        width=width,
        force_terminal=colour,
        color_system="auto" if colour else None,
        markup=False,
        highlight=False,
        emoji=False,
    ).print(what)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
