"""Peak and time against the micro-batch, a line for each resolution and setting."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.plots.naming import series_of
from dmad_sweep.analysis.plots.style import COLOURS, DASHES, MARKERS
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import gib
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

FAR = 0.4
"""Share of the card below which no peak comes: then a line at its end would leave no room for them."""


def draw_peaks(rows: Sequence[TableRow]) -> Figure | None:
    """Peak allocated; what ran out of memory stands at the card's limit. None where there is no peak."""
    dead = [row for row in rows if row.status == "oom"]
    peaks = [row.peak_allocated_bytes for row in rows if row.status == "ok" and row.peak_allocated_bytes]
    if not peaks and not dead:
        return None
    figure, axes = _axes(tr("peak allocated, GiB"))
    limit = rows[0].memory_limit_bytes or rows[0].device_total_bytes
    top = max([*peaks, *(row.peak_allocated_bytes or 0 for row in dead)])
    series = series_of(rows)

    def peak_of(row: TableRow) -> float | None:
        return bytes_to_gib(row.peak_allocated_bytes) if row.peak_allocated_bytes else None

    _lines(axes, series, peak_of)
    died_at = limit if limit is not None else top
    for index, members in enumerate(series.values()):
        for row in members:
            if row.status == "oom":
                axes.plot(
                    [_beside(row.batch, index, len(series))],
                    [bytes_to_gib(died_at)],
                    linestyle="",
                    marker="x",
                    markersize=11,
                    markeredgewidth=2.5,
                    color=COLOURS[index % len(COLOURS)],
                    label=_once(axes, tr("out of memory, at the limit") if limit else tr("out of memory")),
                    clip_on=False,
                )
    if limit is not None and (dead or top > FAR * limit):
        axes.axhline(bytes_to_gib(limit), color="black", linewidth=1.5, linestyle=(0, (6, 2)))
        axes.annotate(
            tr("limit of the card: {size} GiB", size=gib(limit)),
            (0.01, bytes_to_gib(limit)),
            xycoords=("axes fraction", "data"),
            xytext=(0, -11),
            textcoords="offset points",
            va="top",
        )
        axes.set_ylim(0, 1.06 * bytes_to_gib(limit))
    else:
        axes.set_ylim(0, 1.25 * bytes_to_gib(top) or 1)
        if limit is not None:
            axes.annotate(
                "↑ " + tr("limit of the card: {size} GiB", size=gib(limit)),
                (0.01, 0.98),
                xycoords="axes fraction",
                va="top",
            )
    return _finished(figure, axes, rows)


def draw_times(rows: Sequence[TableRow]) -> Figure | None:
    """Time of an iteration with its range. None where nothing was timed."""
    timed = [row for row in rows if row.iteration_s is not None]
    if not timed:
        return None
    figure, axes = _axes(tr("time of an iteration, ms"))

    def time_of(row: TableRow) -> float | None:
        return seconds_to_ms(row.iteration_s.median) if row.iteration_s else None

    def range_of(row: TableRow) -> tuple[float, float]:
        assert row.iteration_s is not None
        spread = row.iteration_s
        return seconds_to_ms(spread.median - spread.low), seconds_to_ms(spread.high - spread.median)

    _lines(axes, series_of(timed), time_of, range_of)
    axes.set_ylim(0, 1.2 * max(seconds_to_ms(row.iteration_s.high) for row in timed if row.iteration_s))
    return _finished(figure, axes, timed)


def _axes(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(tr("micro-batch"))
    axes.set_ylabel(title)
    axes.set_xscale("log", base=2)
    return figure, axes


def _lines(
    axes: Axes,
    series: dict[str, list[TableRow]],
    value: Callable[[TableRow], float | None],
    around: Callable[[TableRow], tuple[float, float]] | None = None,
) -> None:
    for index, (name, members) in enumerate(series.items()):
        points = [(row, found) for row in members if row.status == "ok" and (found := value(row)) is not None]
        below_above = [around(row) for row, _ in points] if around else []
        axes.errorbar(
            [row.batch for row, _ in points],
            [found for _, found in points],
            yerr=list(zip(*below_above, strict=True)) if below_above else None,
            marker=MARKERS[index % len(MARKERS)],
            linestyle=DASHES[index % len(DASHES)],
            color=COLOURS[index % len(COLOURS)],
            markersize=7,
            capsize=3,
            label=name,
        )


def _beside(batch: int, index: int, count: int) -> float:
    """Crosses of several lines at one batch stand side by side at the limit."""
    return float(batch * 2 ** (0.12 * (index - (count - 1) / 2)))


def _once(axes: Axes, label: str) -> str:
    """A label that the legend has but once; matplotlib leaves out those that begin with an underscore."""
    return f"_{label}" if label in axes.get_legend_handles_labels()[1] else label


def _finished(figure: Figure, axes: Axes, rows: Sequence[TableRow]) -> Figure:
    batches = sorted({row.batch for row in rows})
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.set_xlim(batches[0] / 1.3, batches[-1] * 1.3)
    handles, labels = axes.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    figure.legend([*shown.values()], [*shown], loc="outside right upper", frameon=False)
    return figure
