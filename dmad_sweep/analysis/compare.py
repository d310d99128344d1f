"""Two sweeps side by side: what another machine or another commit changed, combination by combination."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dmad_sweep.analysis import text
from dmad_sweep.analysis.grouping import COMPARABLE
from dmad_sweep.analysis.growth import peaks_of
from dmad_sweep.analysis.language import speaking, tr
from dmad_sweep.analysis.ratio import Ratio
from dmad_sweep.analysis.repeats import merged
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.variation import AXES, BEHIND
from dmad_sweep.records.row import Row
from dmad_sweep.units import bytes_to_gib, seconds_to_ms

STYLES = ("terminal", "markdown", "csv", "json")

OF_A_PLACE = ("device", "driver", "torch", "code")
"""What two sweeps may differ in and still be set side by side."""


@dataclass(frozen=True)
class Pair:
    """One combination in both sweeps."""

    first: TableRow
    second: TableRow

    @property
    def peak(self) -> Ratio | None:
        """The second's peak as a multiple of the first's; None unless both came to their end."""
        peaks = peaks_of(self.first), peaks_of(self.second)
        return Ratio.of(peaks[1], peaks[0]) if self._ended and peaks[0] and peaks[1] else None

    @property
    def time(self) -> Ratio | None:
        times = self.first.iteration_s, self.second.iteration_s
        return Ratio.of(times[1], times[0]) if self._ended and times[0] and times[1] else None

    @property
    def _ended(self) -> bool:
        return self.first.status == self.second.status == "ok"


@dataclass(frozen=True)
class Comparison:
    """Pairs in the order of the first sweep; how many combinations only one of the two has."""

    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    only_first: int
    only_second: int


def compared(names: tuple[str, str], first: Iterable[Row], second: Iterable[Row]) -> Comparison:
    """Rows of two sweeps, matched where model, recipe, data, every axis and every other setting agree."""
    here, there = ({_combination(row): row for row in merged(rows)} for rows in (first, second))
    pairs = tuple(Pair(row, there[key]) for key, row in here.items() if key in there)
    return Comparison(names, pairs, len(here) - len(pairs), len(there) - len(pairs))


def render_comparison(
    comparison: Comparison, style: str, *, language: str = "en", width: int | None = None
) -> str:
    """As `terminal`, `markdown`, `csv` or `json`; the last two in English, with a line for each pair."""
    with speaking("en" if style in ("csv", "json") else language):
        if style == "csv":
            buffer = io.StringIO()
            writer = csv.DictWriter(buffer, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_numbers(comparison))
            return buffer.getvalue()
        if style == "json":
            return json.dumps(_numbers(comparison), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        titles, lines = _cells(comparison)
        if style == "markdown":
            from dmad_sweep.analysis.markdown import plain_table

            said = "".join(f"- {sentence}\n" for sentence in _sentences(comparison))
            return f"{plain_table(titles, lines)}\n{said}" if lines else said
        from dmad_sweep.analysis.terminal import plain_table as drawn

        return drawn(titles, lines, _sentences(comparison), width)


def _combination(row: Row) -> tuple[object, ...]:
    fixed = [read(row) for name, read in COMPARABLE.items() if name not in OF_A_PLACE]
    return (
        *fixed,
        *(read(row) for read in AXES.values()),
        BEHIND["pretrained"](row),
        *sorted(row.settings.items()),
    )


def _cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    pairs = comparison.pairs
    rows = [pair.first for pair in pairs]
    readers = AXES | {name: read for name, read in COMPARABLE.items() if name not in OF_A_PLACE}
    shown = [
        name
        for name, read in readers.items()
        if name in ("batch", "resolution") or len({read(row) for row in rows}) > 1
    ]
    titles = [
        *(tr(name) for name in shown),
        tr("peak GiB, first"),
        tr("peak GiB, second"),
        tr("ratio"),
        tr("iteration ms, first"),
        tr("iteration ms, second"),
        tr("ratio"),
        tr("overflow, first"),
        tr("overflow, second"),
    ]
    lines = [
        [
            *(readers[name](pair.first) or text.ABSENT for name in shown),
            text.gib(pair.first.peak_allocated_bytes),
            text.gib(pair.second.peak_allocated_bytes),
            text.ratio(pair.peak),
            text.ms_with_spread(pair.first.iteration_s),
            text.ms_with_spread(pair.second.iteration_s),
            text.ratio(pair.time),
            pair.first.overflow,
            pair.second.overflow,
        ]
        for pair in pairs
    ]
    return titles, lines


def _sentences(comparison: Comparison) -> list[str]:
    said = [
        tr("first: {first}; second: {second}", first=comparison.names[0], second=comparison.names[1]),
    ]
    differing = [
        tr("{variable}: {here} and {there}", variable=tr(name), here=here, there=there)
        for name in OF_A_PLACE
        if (here := _values(name, comparison, 0)) != (there := _values(name, comparison, 1))
    ]
    if differing:
        said.append(tr("they differ in {what}", what="; ".join(differing)))
    if _machine(comparison, 0) != _machine(comparison, 1):
        said.append(
            tr(
                "the numbers do not transfer between machines: a ratio found here says nothing of another "
                "model, size or machine"
            )
        )
    if not comparison.pairs:
        said.append(tr("no combination is in both"))
    if comparison.only_first or comparison.only_second:
        said.append(
            tr(
                "left out: {first} combinations of the first and {second} of the second that the other lacks",
                first=comparison.only_first,
                second=comparison.only_second,
            )
        )
    return said


def _values(name: str, comparison: Comparison, side: int) -> str:
    rows = [(pair.first, pair.second)[side] for pair in comparison.pairs]
    return ", ".join(dict.fromkeys(value for row in rows if (value := COMPARABLE[name](row)) is not None))


def _machine(comparison: Comparison, side: int) -> set[object]:
    """The device and, where the key tells it, which one it was."""
    rows = [(pair.first, pair.second)[side] for pair in comparison.pairs]
    return {(COMPARABLE["device"](row), BEHIND["machine"](row)) for row in rows}


def _gib(size: int | None) -> float | None:
    return None if size is None else bytes_to_gib(size)


OF_A_SIDE: dict[str, Callable[[Row], object]] = {
    "trial_id": lambda row: row.trial_id,
    **{name: COMPARABLE[name] for name in OF_A_PLACE},
    "status": lambda row: row.status,
    "peak_allocated_gib": lambda row: _gib(row.peak_allocated_bytes),
    "iteration_ms": lambda row: row.iteration_s and seconds_to_ms(row.iteration_s.median),
}

SHARED = {name: read for name, read in (COMPARABLE | AXES).items() if name not in OF_A_PLACE}


def _numbers(comparison: Comparison) -> list[dict[str, object]]:
    return [
        {name: read(pair.first) for name, read in SHARED.items()}
        | {f"first_{name}": read(pair.first) for name, read in OF_A_SIDE.items()}
        | {f"second_{name}": read(pair.second) for name, read in OF_A_SIDE.items()}
        | {"peak_ratio": pair.peak and pair.peak.value, "time_ratio": pair.time and pair.time.value}
        for pair in comparison.pairs
    ]


FIELDS = (
    *SHARED,
    *(f"{side}_{name}" for side in ("first", "second") for name in OF_A_SIDE),
    "peak_ratio",
    "time_ratio",
)
"""Columns of the CSV; a ratio is the second's over the first's."""
