"""Memory against time: which rows are beaten in both by none."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.plots.naming import name_of, varying
from dmad_sweep.analysis.plots.style import COLOURS, MARKERS
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.units import bytes_to_gib, seconds_to_ms


def front(rows: Sequence[TableRow]) -> list[TableRow]:
    """Rows that no other of them beats in peak or in time of an image without losing in the other.

    By peak, the lowest first. Rows without either are left out; of equals the first stays.
    """
    known = [row for row in rows if row.status == "ok" and row.peak_allocated_bytes and row.images_per_s]
    found: list[TableRow] = []
    for row in sorted(known, key=lambda r: (r.peak_allocated_bytes or 0, _ms_an_image(r))):
        if not found or _ms_an_image(row) < _ms_an_image(found[-1]):
            found.append(row)
    return found


def draw_pareto(rows: Sequence[TableRow]) -> Figure | None:
    """A front for each resolution, since an image of one is not an image of another; its rows are named."""
    known = [row for row in rows if row.status == "ok" and row.peak_allocated_bytes and row.images_per_s]
    if not known:
        return None
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(tr("peak allocated, GiB"))
    axes.set_ylabel(tr("time of an image, ms"))
    names = varying(known)
    numbered: list[str] = []
    handles = []
    for index, resolution in enumerate(dict.fromkeys(row.resolution for row in known)):
        members = [row for row in known if row.resolution == resolution]
        best = front(members)
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        beaten = [row for row in members if row not in best]
        axes.plot(*_points(beaten), linestyle="", marker=marker, color=colour, markerfacecolor="none")
        (line,) = axes.plot(
            *_points(best),
            drawstyle="steps-post",
            linestyle="-",
            marker=marker,
            color=colour,
            label=tr("front at {resolution}", resolution=resolution),
        )
        handles.append(line)
        for row in best:
            numbered.append(f"{len(numbered) + 1}: {name_of(row, names)}")
            axes.annotate(
                str(len(numbered)),
                (bytes_to_gib(row.peak_allocated_bytes or 0), _ms_an_image(row)),
                xytext=(5, 5),
                textcoords="offset points",
            )
    (others,) = axes.plot([], [], linestyle="", marker="o", markerfacecolor="none", color="0.3")
    blank = [axes.plot([], [], linestyle="")[0] for _ in numbered]
    figure.legend(
        [*handles, others, *blank],
        [*(str(line.get_label()) for line in handles), tr("beaten in both by another"), *numbered],
        loc="outside right upper",
        frameon=False,
    )
    peaks, times = _points(known)
    axes.set_xlim(0, 1.12 * max(peaks))
    axes.set_ylim(0, 1.12 * max(times))
    return figure


def _points(rows: Sequence[TableRow]) -> tuple[list[float], list[float]]:
    return (
        [bytes_to_gib(row.peak_allocated_bytes or 0) for row in rows],
        [_ms_an_image(row) for row in rows],
    )


def _ms_an_image(row: TableRow) -> float:
    """Waiting for data included."""
    assert row.images_per_s is not None
    return seconds_to_ms(1 / row.images_per_s)
