"""The columns of the trade-off table: one registry for every format that a person reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dmad_sweep.analysis import text
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.typography import BREAK, SOFT_HYPHEN, unbroken
from dmad_sweep.records.result import Anatomy


@dataclass(frozen=True)
class Column:
    """A title with the places where it may be broken, and what stands below it.

    `shared` makes the sentence that can replace the column, or None where the rows differ.
    """

    title: str
    cell: Callable[[TableRow], str]
    number: bool = False
    stage: bool = False
    """Holds the name of a stage, which may be broken where it is narrow."""
    default: str | None = None
    """The column is shown only where some row has another value."""
    roomy: bool = False
    """The column is left out of a table that is too narrow for it; `report.view=growth` keeps it."""
    shared: Callable[[Sequence[TableRow]], str | None] = lambda rows: None
    order: Callable[[TableRow], float] | None = None
    """What rows are sorted by where the cell's text is not what to sort by."""

    @property
    def plain_title(self) -> str:
        return unbroken(tr(unbroken(self.title)))

    def stacked_title(self, hyphenated: bool) -> str:
        """A word on each line; with `hyphenated`, long words broken too."""
        english = unbroken(self.title)
        title = self.title if tr(english) == english else tr(english)
        lines = title.replace(BREAK, " ").replace(" ", "\n")
        return lines.replace(SOFT_HYPHEN, "-\n" if hyphenated else "")


def _if_equal(title: str, cell: Callable[[TableRow], str]) -> Callable[[Sequence[TableRow]], str | None]:
    def shared(rows: Sequence[TableRow]) -> str | None:
        return f"{tr(title)} {cell(rows[0])}" if len({cell(row) for row in rows}) == 1 else None

    return shared


def _effective_batch_follows(rows: Sequence[TableRow]) -> str:
    if all(row.effective_batch == row.batch for row in rows):
        return tr("effective batch as batch")
    return tr("effective batch = batch × accumulation")


def _accumulation(row: TableRow) -> str:
    return str(row.accumulation)


def _precision(row: TableRow) -> str:
    return row.precision


def _checkpointing(row: TableRow) -> str:
    return row.checkpointing


PEAK = Column(
    f"peak allo{SOFT_HYPHEN}cated GiB",
    lambda row: text.gib_with_spread(row.peak_allocated_bytes, row.peak_half_range_bytes),
    True,
)
OVER_BASELINE = Column(
    f"over base{SOFT_HYPHEN}line GiB",
    lambda row: text.gib(row.over_baseline_bytes),
    True,
    default=text.ABSENT,
)

AXES = (
    Column(f"reso{SOFT_HYPHEN}lution", lambda row: row.resolution, order=lambda row: row.height * row.width),
    Column("batch", lambda row: str(row.batch), True),
    Column(
        f"accu{SOFT_HYPHEN}mula{SOFT_HYPHEN}tion",
        _accumulation,
        True,
        shared=_if_equal("accumulation", _accumulation),
    ),
    Column(
        f"effec{SOFT_HYPHEN}tive batch",
        lambda row: str(row.effective_batch),
        True,
        shared=_effective_batch_follows,
    ),
    Column("precision", _precision, shared=_if_equal("precision", _precision)),
    Column(f"check{SOFT_HYPHEN}pointing", _checkpointing, shared=_if_equal("checkpointing", _checkpointing)),
    Column("adapter", lambda row: row.adapter, default="full"),
    Column("attention", lambda row: row.attention, default="auto"),
    Column("optimizer", lambda row: row.optimizer, default="adamw"),
    Column("ema", lambda row: row.ema, default="none"),
)
OVERFLOW = Column("overflow", lambda row: row.overflow, stage=True)
PEAK_STAGE = Column(
    "peak in", lambda row: text.ABSENT if row.peak_stage is None else row.peak_stage, stage=True
)
HEADROOM = Column(f"head{SOFT_HYPHEN}room GiB", lambda row: text.gib(row.headroom_bytes), True)
GROWTH = (
    Column(
        "peak against above",
        lambda row: text.ratio(row.growth.peak if row.growth else None),
        True,
        default=text.ABSENT,
    ),
    Column(
        "time against above",
        lambda row: text.ratio(row.growth.time if row.growth else None),
        True,
        default=text.ABSENT,
    ),
)

TRADEOFF = (
    *AXES,
    PEAK,
    OVER_BASELINE,
    replace(PEAK_STAGE, roomy=True),
    Column("device peak GiB", lambda row: text.gib(row.device_peak_bytes), True),
    replace(HEADROOM, roomy=True, default=text.ABSENT),
    Column(f"itera{SOFT_HYPHEN}tion time ms", lambda row: text.ms_with_spread(row.iteration_s), True),
    Column("data time ms", lambda row: text.ms(row.data_s), True),
    Column(f"images{BREAK}/s", lambda row: text.rate(row.images_per_s), True),
    Column("gradient L2", text.gradient_l2, True, default=text.ABSENT),
    Column("verdict", lambda row: row.verdict or text.ABSENT, default=text.ABSENT),
    *(replace(column, roomy=True) for column in GROWTH),
    OVERFLOW,
)
"""What a combination costs and takes."""

GROWING = (*AXES, PEAK, PEAK_STAGE, HEADROOM, *GROWTH, OVERFLOW)
"""Where the peak is, what is left, and what one step of one variable costs."""


def _part(title: str, size: Callable[[Anatomy], int]) -> Column:
    def cell(row: TableRow) -> str:
        return text.gib(None if row.anatomy is None else size(row.anatomy))

    return Column(f"{title} GiB", cell, True)


MEMORY = (
    *AXES,
    PEAK,
    PEAK_STAGE,
    _part("weights", lambda anatomy: anatomy.weight_bytes),
    _part(f"gra{SOFT_HYPHEN}dients", lambda anatomy: anatomy.gradient_bytes),
    _part("states", lambda anatomy: anatomy.state_bytes),
    _part(f"acti{SOFT_HYPHEN}vations", lambda anatomy: anatomy.activation_bytes),
    _part(f"frag{SOFT_HYPHEN}men{SOFT_HYPHEN}tation", lambda anatomy: anatomy.fragmentation_bytes),
    _part("context", lambda anatomy: anatomy.context_bytes),
    Column(f"un{SOFT_HYPHEN}ex{SOFT_HYPHEN}plained", text.unexplained, True),
    Column("device peak GiB", lambda row: text.gib(row.device_peak_bytes), True),
    OVERFLOW,
)
"""What the peak is made of: the parts and what is unexplained add up to the device's peak."""

VIEWS = {"tradeoff": TRADEOFF, "growth": GROWING, "memory": MEMORY}
"""Remarks follow as the last column; they are letters of notes, which only a whole table has."""


def columns_of(rows: Sequence[TableRow], view: str) -> tuple[Column, ...]:
    """The columns that a table of `rows` needs in one of VIEWS."""
    return tuple(
        column
        for column in VIEWS[view]
        if column.default is None or any(column.cell(row) != column.default for row in rows)
    )


def stacked(columns: Sequence[Column]) -> list[Column]:
    """The same columns with what is over the baseline below the peak, where both are shown."""
    if OVER_BASELINE not in columns:
        return list(columns)
    both = Column(
        f"{PEAK.title.removesuffix(' GiB')} / {OVER_BASELINE.title}",
        lambda row: f"{PEAK.cell(row)}\n{OVER_BASELINE.cell(row)}",
        True,
    )
    return [both if column == PEAK else column for column in columns if column != OVER_BASELINE]


REMARKS_TITLE = f"re{SOFT_HYPHEN}marks"
