"""What the peaks are made of: a bar for each row."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.plots.naming import name_of, varying
from dmad_sweep.analysis.plots.style import GREYS, HATCHES
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.records.result import Anatomy
from dmad_sweep.units import bytes_to_gib

PARTS: dict[str, Callable[[Anatomy], int]] = {
    "weights": lambda anatomy: anatomy.weight_bytes,
    "gradients": lambda anatomy: anatomy.gradient_bytes,
    "optimizer states": lambda anatomy: anatomy.state_bytes,
    "activations and workspaces": lambda anatomy: anatomy.activation_bytes,
    "fragmentation": lambda anatomy: anatomy.fragmentation_bytes,
    "context": lambda anatomy: anatomy.context_bytes,
}
"""The first three are the floor, which no batch or resolution lowers."""


def draw_makeup(rows: Sequence[TableRow]) -> Figure | None:
    """None where the allocator's history told nothing: on a CPU, or where every row ran out of memory."""
    known = [row for row in rows if row.anatomy is not None]
    if not known:
        return None
    figure = Figure(figsize=(7.2, 1.6 + 0.32 * len(known)), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", visible=False)
    positions = range(len(known))
    left = [0.0] * len(known)
    for index, (part, size) in enumerate(PARTS.items()):
        widths = [bytes_to_gib(max(0, size(row.anatomy))) for row in known if row.anatomy]
        axes.barh(
            positions,
            widths,
            left=left,
            height=0.7,
            color=GREYS[index],
            hatch=HATCHES[index],
            edgecolor="black",
            linewidth=0.6,
            label=tr(part),
        )
        left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.set_yticks(positions, [name_of(row, varying(known)) for row in known])
    axes.set_ylim(len(known) - 0.4, -0.6)  # the first row on top
    axes.set_xlabel(tr("memory of the device at the peak, GiB"))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
