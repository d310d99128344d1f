"""The trade-off table in Markdown."""

from collections.abc import Iterable, Sequence

from dmad_sweep.analysis.columns import REMARKS_TITLE, Column, columns_of
from dmad_sweep.analysis.grouping import Group, heading
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.remarks import Notes
from dmad_sweep.analysis.table_row import TableRow

ESCAPES = str.maketrans({"|": "&#124;", "<": "&lt;", ">": "&gt;", "*": "\\*", "_": "\\_", "`": "\\`"})


def as_markdown(groups: Sequence[Group[TableRow]], view: str, advice: Sequence[str] = ()) -> str:
    """`advice` stands below the tables."""
    said = [f"- {_escaped(paragraph)}\n" for paragraph in advice]
    return "\n".join([*(_table(group, view) for group in groups), *(["".join(said)] if said else [])])


def _table(group: Group[TableRow], view: str) -> str:
    notes = Notes(group.rows)
    columns = [*columns_of(group.rows, view), Column(REMARKS_TITLE, notes.marks)]
    above = [f"**{_escaped(heading(group.rows))}**", ""]
    if group.apart:
        above += [_escaped(tr("in a table of its own: {why}", why=group.apart)), ""]
    table = [
        _line(column.plain_title for column in columns),
        _line("---:" if column.number else "---" for column in columns),
        *(_line(_escaped(column.cell(row)) for column in columns) for row in group.rows),
    ]
    below = [f"- {_escaped(line)}" for line in notes.lines()]
    return "\n".join([*above, *table, *([""] if below else []), *below]) + "\n"


def plain_table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Cells as they are, escaped."""
    table = [_line(map(_escaped, titles)), _line("---" for _ in titles)]
    return "\n".join([*table, *(_line(map(_escaped, line)) for line in lines)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.translate(ESCAPES)
