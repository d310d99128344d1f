"""The trade-off table: one row for each combination, in the format that is asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dmad_sweep.analysis.baseline import over_baseline
from dmad_sweep.analysis.grouping import Group, grouped
from dmad_sweep.analysis.growth import with_growth
from dmad_sweep.analysis.language import speaking, tr
from dmad_sweep.analysis.repeats import apart, merged
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.variation import DEFAULT, unshown
from dmad_sweep.records.row import Row
from dmad_sweep.records.settings import Target

FOR_PROGRAMS = ("csv", "json")
"""Formats with a line for each trial, always in English."""


def render(
    rows: Sequence[Row],
    style: str,
    *,
    view: str = "tradeoff",
    baselines: Sequence[Row] = (),
    language: str = "en",
    width: int | None = None,
    colour: bool = False,
    target: Target | None = None,
) -> str:
    """The table of `rows` as `terminal`, `markdown`, `html`, `csv` or `json`.

    There are several where rows are not comparable. `view` is one of analysis.columns.VIEWS; csv and json
    hold all of them. People get one row for the repeats of a combination, other programs one for each trial.
    `baselines` are rows of other sweeps that training may be compared with; they are not shown. `language`
    is `en` or `zh`. `width` is the terminal's columns; `colour` adds its escape sequences. With a `target`
    people are told what to change. Rows are put in order.
    """
    for_programs = style in FOR_PROGRAMS
    with speaking("en" if for_programs else language):
        groups = tables(rows, baselines, whole=for_programs)
        advice = [] if for_programs or target is None else advice_of(groups, target)
        return _rendered(groups, advice, style, view, width, colour)


def advice_of(groups: Sequence[Group[TableRow]], target: Target) -> list[str]:
    """Paragraphs on what to change, in the spoken language."""
    from dmad_sweep.analysis.counsel import counsel  # fits need numpy, which a start must not wait for

    return counsel(groups, target)


def tables(
    rows: Sequence[Row], baselines: Sequence[Row] = (), *, whole: bool = False
) -> list[Group[TableRow]]:
    """The lines of each table, with all that lines know of each other; with `whole` one for each trial."""
    lines = apart if whole else merged
    known = [*rows, *baselines]
    return [
        Group(_second_variables_named(with_growth(over_baseline(lines(group.rows), known))), group.apart)
        for group in grouped(rows)
    ]


def _second_variables_named(rows: Iterable[TableRow]) -> tuple[TableRow, ...]:
    rows = tuple(rows)
    found = unshown(rows)

    def named(row: TableRow) -> TableRow:
        said = [
            tr(
                "differs in {variable} too: {here}, elsewhere {there}",
                variable=tr(difference.variable),
                here=_value(difference.here),
                there=_value(difference.there),
            )
            for difference in found.get(row.trial_id, [])
        ]
        return replace(row, remarks=[*row.remarks, *said]) if said else row

    return tuple(map(named, rows))


def _value(value: str) -> str:
    return tr(value) if value == DEFAULT else value


def _rendered(
    groups: Sequence[Group[TableRow]],
    advice: Sequence[str],
    style: str,
    view: str,
    width: int | None,
    colour: bool,
) -> str:
    match style:
        case "terminal":
            from dmad_sweep.analysis.terminal import as_terminal  # rich takes a while to load

            return as_terminal(groups, view, width, colour, advice)
        case "markdown":
            from dmad_sweep.analysis.markdown import as_markdown

            return as_markdown(groups, view, advice)
        case "html":
            from dmad_sweep.analysis.html.page import as_html  # with matplotlib and jinja

            return as_html(groups, view, advice)
        case "csv":
            from dmad_sweep.analysis.spreadsheet import as_csv

            return as_csv(row for group in groups for row in group.rows)
        case "json":
            from dmad_sweep.analysis.estimates import estimated
            from dmad_sweep.analysis.spreadsheet import as_json

            return as_json([row for group in groups for row in group.rows], estimated(groups))
    raise ValueError(f"unknown format {style!r}")
