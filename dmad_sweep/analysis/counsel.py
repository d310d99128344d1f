"""What a report says after its tables: advice by rule, estimates of unmeasured cells, the line to run."""

from collections.abc import Iterator, Sequence

from dmad_sweep.analysis.advice import advise
from dmad_sweep.analysis.decision import decide
from dmad_sweep.analysis.facts import Facts, facts_of
from dmad_sweep.analysis.fit import unmeasured
from dmad_sweep.analysis.grouping import Group
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import gib, ms_of
from dmad_sweep.records.settings import Target


def counsel(groups: Sequence[Group[TableRow]], target: Target) -> list[str]:
    """Paragraphs, for people. Empty where there is nothing to say, as for rows of inference alone."""
    found = facts_of(groups, target)
    return [*_of_tables(found), *decide(found)]


def _of_tables(found: Sequence[Facts]) -> Iterator[str]:
    for facts in found:
        said = [*(advice.text for advice in advise(facts)), *_estimates(facts)]
        if said and len(found) > 1:
            yield f"{facts.heading}:"
        yield from said


def _estimates(facts: Facts) -> Iterator[str]:
    """Cells of the table's grid that have no row, marked as what they are."""
    for fit, estimate in unmeasured(facts.rows):
        error = tr("unchecked") if estimate.error is None else f"±{100 * estimate.error:.1f}%"
        text = tr(
            "estimated, not measured: {cell} peaks at {peak} GiB ({error}) in {stage}",
            cell=facts.label_of_cell(fit.row, estimate.cell.batch, estimate.cell.resolution),
            peak=gib(estimate.peak_bytes),
            error=error,
            stage=estimate.stage,
        )
        if estimate.iteration_s is not None:
            text += tr(", {time} ms an iteration", time=ms_of(estimate.iteration_s))
        yield text
