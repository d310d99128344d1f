"""All that a report has to say of a sweep, as files for whoever looks in MLflow alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmad_sweep.analysis.html.page import as_html
from dmad_sweep.analysis.language import speaking
from dmad_sweep.analysis.markdown import as_markdown
from dmad_sweep.analysis.plots.draw import plots_of
from dmad_sweep.analysis.spreadsheet import as_csv
from dmad_sweep.analysis.table import advice_of, tables
from dmad_sweep.records.row import Row
from dmad_sweep.records.settings import Target


@dataclass(frozen=True)
class Answer:
    """`files` by path; `summary` is Markdown."""

    files: dict[str, bytes]
    summary: str


def answer_of(
    rows: Sequence[Row], baselines: Sequence[Row], *, view: str, language: str, target: Target
) -> Answer:
    """Table, page and plots of `rows`, in the language `en` or `zh`; the table for programs is English."""
    with speaking(language):
        groups = tables(rows, baselines)
        advice = advice_of(groups, target)
        plots = plots_of(groups, png=True)
        summary = as_markdown(groups, view, advice)
        page = as_html(groups, view, advice, plots)
    with speaking("en"):
        csv = as_csv(row for group in tables(rows, baselines, whole=True) for row in group.rows)
    files = {"report.html": page.encode(), "table.md": summary.encode(), "table.csv": csv.encode()}
    for plot in plots:
        files[f"plots/{plot.name}.svg"] = plot.svg.encode()
        if plot.png is not None:
            files[f"plots/{plot.name}.png"] = plot.png
    return Answer(files, summary)
