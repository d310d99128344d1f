"""The trade-off table: one row for each combination, in several formats from one registry of columns."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from dmad_sweep.analysis import text
from dmad_sweep.analysis.grouping import Group, grouped, heading
from dmad_sweep.records.metrics import METRICS, params_of
from dmad_sweep.records.row import Row

MINIMUM_WIDTH = 80


@dataclass(frozen=True)
class Column:
    """`title` has line breaks where it may be broken.

    `shared` makes the sentence that replaces the column above a narrow table, or None where the rows differ.
    """

    title: str
    cell: Callable[[Row], str]
    number: bool = False
    shared: Callable[[Sequence[Row]], str | None] = lambda rows: None


def _if_equal(title: str, cell: Callable[[Row], str]) -> Callable[[Sequence[Row]], str | None]:
    def shared(rows: Sequence[Row]) -> str | None:
        return f"{title} {cell(rows[0])}" if len({cell(row) for row in rows}) == 1 else None

    return shared


def _effective_batch(rows: Sequence[Row]) -> str | None:
    if all(row.effective_batch == row.batch for row in rows):
        return "effective batch as batch"
    return "effective batch = batch × accumulation"


def _accumulation(row: Row) -> str:
    return str(row.accumulation)


def _precision(row: Row) -> str:
    return row.precision


def _checkpointing(row: Row) -> str:
    return row.checkpointing


COLUMNS = (
    Column("reso-\nlution", lambda row: row.resolution),
    Column("batch", lambda row: str(row.batch), number=True),
    Column("accu-\nmula-\ntion", _accumulation, True, _if_equal("accumulation", _accumulation)),
    Column("effec-\ntive\nbatch", lambda row: str(row.effective_batch), True, _effective_batch),
    Column("precision", _precision, shared=_if_equal("precision", _precision)),
    Column("check-\npointing", _checkpointing, shared=_if_equal("checkpointing", _checkpointing)),
    Column("peak\nGiB", lambda row: text.gib(row.peak_allocated_bytes), number=True),
    Column("device\npeak\nGiB", lambda row: text.gib(row.device_peak_bytes), number=True),
    Column("itera-\ntion\nms", lambda row: text.ms_with_spread(row.iteration_s), number=True),
    Column("data\nms", lambda row: text.ms(row.data_s), number=True),
    Column("images\n/s", lambda row: text.rate(row.images_per_s), number=True),
    Column("overflow", text.overflow),
)


def render(rows: Sequence[Row], style: str, *, width: int | None = None, colour: bool = False) -> str:
    """The table of `rows` in the style `terminal`, `markdown` or `csv`; `width` is the terminal's columns."""
    if style == "csv":
        return _csv(rows)
    groups = grouped(rows)
    if style == "markdown":
        return "\n".join(_markdown(group) for group in groups)
    return _terminal(groups, max(width or 100, MINIMUM_WIDTH), colour)


class _Notes:
    """Remarks of a table as lettered notes; one that holds for every row needs no letter."""

    def __init__(self, rows: Sequence[Row]) -> None:
        said = [text.remarks(row) for row in rows]
        distinct = list(dict.fromkeys(sentence for sentences in said for sentence in sentences))
        self.general = [s for s in distinct if all(s in sentences for sentences in said)]
        self._letters = {s: _letter(i) for i, s in enumerate(s for s in distinct if s not in self.general)}

    def marks(self, row: Row) -> str:
        return " ".join(self._letters[s] for s in text.remarks(row) if s in self._letters)

    def lines(self) -> list[str]:
        return [*self.general, *(f"{letter}: {sentence}" for sentence, letter in self._letters.items())]


def _terminal(groups: Sequence[Group], width: int, colour: bool) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=width, force_terminal=colour, color_system="auto" if colour else None
    )
    for group in groups:
        console.print(heading(group.rows), style="bold", highlight=False, markup=False)
        if group.apart:
            console.print(f"in a table of its own: {group.apart}", highlight=False, markup=False)
        notes = _Notes(group.rows)
        table, said, needed = _fitting(group.rows, notes, width)
        if said:
            console.print(", ".join(said), highlight=False, markup=False)
        roomy = Console(file=buffer, width=max(width, needed), force_terminal=colour)
        roomy.print(table)
        for line in notes.lines():
            console.print(line, highlight=False, markup=False)
        console.print()
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _fitting(rows: Sequence[Row], notes: _Notes, width: int) -> tuple[Table, list[str], int]:
    """The fullest table that fits: columns that all rows share are said above it, from the right, first;
    then the stages of overflows are broken into lines. Nothing is ever cut off.
    """
    said = {column.title: sentence for column in COLUMNS if (sentence := column.shared(rows)) is not None}
    droppable = list(reversed(said))
    attempts = [(droppable[:count], False) for count in range(len(droppable) + 1)] + [(droppable, True)]
    measuring = Console(width=10_000, file=io.StringIO())
    for left_out, broken in attempts:
        table = _rich_table(rows, notes, left_out, broken)
        needed = measuring.measure(table).maximum
        if needed <= width:
            break
    return table, [said[title] for title in said if title in left_out], needed


def _rich_table(rows: Sequence[Row], notes: _Notes, left_out: Sequence[str], broken: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    shown = [column for column in COLUMNS if column.title not in left_out]
    for column in shown:
        table.add_column(column.title, justify="right" if column.number else "left", no_wrap=True)
    table.add_column("re-\nmarks", no_wrap=True)
    for row in rows:
        cells = [column.cell(row) for column in shown]
        if broken:
            cells[-1] = cells[-1].replace(" (", "\n(").replace(".", ".\n")
            cells = [cell.replace(" ±", "±") for cell in cells]
        style = None if row.status == "ok" else "red" if row.status == "oom" else "yellow"
        table.add_row(*cells, notes.marks(row), style=style)
    return table


def _markdown(group: Group) -> str:
    notes = _Notes(group.rows)
    lines = [f"**{heading(group.rows)}**", ""]
    if group.apart:
        lines += [f"In a table of its own: {group.apart}.", ""]
    titles = [*(_plain(column.title) for column in COLUMNS), "remarks"]
    lines.append(f"| {' | '.join(titles)} |")
    lines.append("|" + "|".join("---:" if column.number else "---" for column in COLUMNS) + "|---|")
    for row in group.rows:
        cells = [*(column.cell(row) for column in COLUMNS), notes.marks(row)]
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    lines.append("")
    lines += [f"- {line}" for line in notes.lines()]
    return "\n".join(lines) + "\n"


def _csv(rows: Sequence[Row]) -> str:
    """One line a trial, with everything that MLflow's params and metrics hold, units in the names."""
    buffer = io.StringIO()
    metrics = [metric.name for metric in METRICS]
    fields = ["sweep", "trial_id", "status", *params_of(rows[0]), "device", "torch", "driver", "code"]
    fields += [name.rpartition("/")[2] for name in metrics]
    fields += ["iteration_spread", "peak_stage", "overflow", "remarks"]
    writer = csv.DictWriter(buffer, fields, lineterminator="\n")
    writer.writeheader()
    for group in grouped(rows):
        for row in group.rows:
            writer.writerow(
                {
                    "sweep": row.sweep,
                    "trial_id": row.trial_id,
                    "status": row.status,
                    **params_of(row),
                    "device": row.device_name,
                    "torch": row.torch,
                    "driver": row.driver,
                    "code": row.code,
                    **{metric.name.rpartition("/")[2]: metric.value(row) for metric in METRICS},
                    "iteration_spread": row.iteration_s.relative if row.iteration_s else None,
                    "peak_stage": row.peak_stage,
                    "overflow": text.overflow(row),
                    "remarks": "; ".join(text.remarks(row)),
                }
            )
    return buffer.getvalue()


def _plain(title: str) -> str:
    """A title without its line breaks."""
    return title.replace("-\n", "").replace("\n/", "/").replace("\n", " ")


def _letter(index: int) -> str:
    """a, b, …, z, aa, ab, …"""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
