"""The repeats of a combination as one row of a table."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.remarks import remarks
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.records.row import Row, Spread, images_per_s


def combination(row: Row) -> tuple[str, str, int]:
    """What repeats have in common."""
    return row.sweep, row.role, row.index


def apart(rows: Iterable[Row]) -> tuple[TableRow, ...]:
    """A line for every trial."""
    return tuple(TableRow(**vars(row), trials=(row,)) for row in rows)


def merged(rows: Iterable[Row]) -> tuple[TableRow, ...]:
    """A line for every combination, in the order of their first trials. The rows must be comparable."""
    combinations: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        combinations.setdefault(combination(row), []).append(row)
    return tuple(_merged(trials) if len(trials) > 1 else apart(trials)[0] for trials in combinations.values())


def _merged(trials: Sequence[Row]) -> TableRow:
    """Peaks are the highest, times those of all repeats; what is not said here is the highest trial's."""
    first, highest = trials[0], max(trials, key=lambda trial: trial.peak_allocated_bytes or 0)
    died = next((trial for trial in trials if trial.status != "ok"), first)
    iteration = _together(trial.iteration_s for trial in trials)
    data = _together(trial.data_s for trial in trials)
    row = replace(
        highest,
        trial_id=first.trial_id,
        repeat=first.repeat,
        started_at=first.started_at,
        status=died.status,
        died_stage=died.died_stage,
        died_cycle=died.died_cycle,
        torch=next((trial.torch for trial in trials if trial.torch), None),
        device_peak_bytes=max((t.device_peak_bytes for t in trials if t.device_peak_bytes), default=None),
        headroom_bytes=min((t.headroom_bytes for t in trials if t.headroom_bytes is not None), default=None),
        iteration_s=iteration,
        data_s=data,
        images_per_s=images_per_s(first.effective_batch, iteration, data),
        # sentences: a trial's own numbers are in some of them
        remarks=[*dict.fromkeys(said for trial in trials for said in remarks(trial)), _counted(len(trials))],
        oom_requested_bytes=None,
        explanation=None,
    )
    return TableRow(**vars(row), trials=tuple(trials))


def _counted(repeats: int) -> str:
    return tr(
        "{count} repeats: the highest peaks, ± half their range; times of all their cycles", count=repeats
    )


def _together(spreads: Iterable[Spread | None]) -> Spread | None:
    """The median of the medians, over the whole range."""
    known = [spread for spread in spreads if spread is not None]
    medians = Spread.of(spread.median for spread in known)
    if medians is None:
        return None
    return replace(medians, low=min(s.low for s in known), high=max(s.high for s in known))
