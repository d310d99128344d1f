"""With a resolution and an effective batch wanted: the line to train with, or the least that is lacking."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from dmad_sweep.analysis.facts import Facts
from dmad_sweep.analysis.fit import UNCHECKED_ERROR, Cell, Estimate, Fit, cell_of, family_of
from dmad_sweep.analysis.knobs import KNOBS, Effect, counted_effects, measured_effects, override
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import gib, ms_of, rate
from dmad_sweep.records.row import Row

DEFAULTS = {
    "checkpointing": "none",
    "adapter": "full",
    "attention": "auto",
    "optimizer": "adamw",
    "ema": "none",
}

STEP = 64
"""Pixels by which a side is made smaller in the search for one that fits."""


@dataclass(frozen=True)
class Choice:
    """A way to train at the wanted resolution with the wanted effective batch; bytes and seconds."""

    row: Row
    """Whose settings it has, beside the next three."""
    cell: Cell
    accumulation: int
    peak_bytes: int
    device_peak_bytes: int | None
    """Of others' memory nothing; with the estimate's error on top. None where the device cannot tell."""
    iteration_s: float | None
    estimate: Estimate | None = None
    """None for a measured one."""

    @property
    def effective_batch(self) -> int:
        return self.cell.batch * self.accumulation

    @property
    def images_per_s(self) -> float:
        return self.effective_batch / self.iteration_s if self.iteration_s else 0.0

    @property
    def overrides(self) -> str:
        """The command line, without what is the default."""
        parts = [f"model={self.row.model}", f"batch={self.cell.batch}", f"resolution={self.cell.resolution}"]
        if self.accumulation > 1:
            parts.append(f"accumulation={self.accumulation}")
        if self.row.recipe != "dmd2":
            parts.append(f"recipe={self.row.recipe}")
        if self.row.precision != "bf16":
            parts.append(f"precision={self.row.precision}")
        parts += [
            override(knob, getattr(self.row, knob))
            for knob in KNOBS
            if knob in DEFAULTS and getattr(self.row, knob) != DEFAULTS[knob]
        ]
        told_by_name = ("precision.", "checkpointing.", "adapter.")
        parts += [
            f"{name}={value}"
            for name, value in self.row.settings.items()
            if not name.startswith(told_by_name)
        ]
        return " ".join(parts)


def decide(tables: Sequence[Facts]) -> list[str]:
    """Lines that end a report: the best choice and the next, or what the least change would be.

    Nothing where not both targets are given, or nothing is known of the wanted resolution.
    """
    if not tables or tables[0].target.resolution is None or tables[0].target.effective_batch is None:
        return []
    choices = [*chain.from_iterable(_with_facts(facts) for facts in tables)]
    fitting = [(facts, choice) for facts, choice in choices if room(facts, choice) >= 0]
    fitting.sort(key=lambda pair: (-pair[1].images_per_s, pair[1].peak_bytes))
    if fitting:
        names = (tr("train with"), tr("second best"))
        return [f"{name}: {_described(*pair)}" for name, pair in zip(names, fitting, strict=False)]
    if choices:
        return [_least_change(*max(choices, key=lambda pair: room(*pair)))]
    target = tables[0].target
    return [
        tr(
            "nothing is known yet of effective batch {batch} at {resolution}: measure batch=1 at "
            "resolution={resolution} and at a smaller one",
            batch=target.effective_batch,
            resolution=target.resolution,
        )
    ]


def room(facts: Facts, choice: Choice) -> int:
    """Bytes that stay free beyond what should; on a card of unknown size there is always some."""
    if facts.capacity_bytes is None:
        return 0
    used = choice.device_peak_bytes if choice.device_peak_bytes is not None else choice.peak_bytes
    return facts.capacity_bytes - used - facts.kept_bytes


def choices_of(facts: Facts) -> Iterator[Choice]:
    """What was measured of the wanted resolution and effective batch, and estimates of what was not."""
    size, wanted = facts.target.height_and_width(), facts.target.effective_batch
    assert size is not None
    assert wanted is not None
    answered = set()
    for row in facts.rows:
        if (row.height, row.width) == size and row.effective_batch == wanted:
            answered.add((_settings(row), row.batch))
            if row.status == "ok" and row.peak_allocated_bytes is not None:
                yield _measured(row)
    for fit in _one_for_each_setting(facts):
        for batch in (b for b in range(1, wanted + 1) if wanted % b == 0):
            cell = Cell(batch, *size)
            if (_settings(fit.row), batch) not in answered and not _ran_out(facts, fit.row, cell):
                yield _estimated(fit, cell, wanted // batch)


def _with_facts(facts: Facts) -> Iterator[tuple[Facts, Choice]]:
    return ((facts, choice) for choice in choices_of(facts))


def _one_for_each_setting(facts: Facts) -> list[Fit]:
    """For each setting the fit of rows that accumulate where there is one, else of those that do not."""
    found: dict[object, Fit] = {}
    for fit in facts.fits.values():
        key = _settings(fit.row)
        if key not in found or fit.row.accumulation > 1:
            found[key] = fit
    return [*found.values()]


def _settings(row: Row) -> tuple[object, ...]:
    """What a family has beside its accumulation."""
    return (*(getattr(row, knob) for knob in KNOBS), *sorted(row.settings.items()))


def _ran_out(facts: Facts, like: Row, cell: Cell) -> bool:
    """Whether as large a micro-batch, or a smaller one, ran out of memory at this resolution."""
    return any(
        row.status == "oom"
        and _settings(row) == _settings(like)
        and cell_of(row).pixels == cell.pixels
        and row.batch <= cell.batch
        for row in facts.rows
    )


def _measured(row: TableRow) -> Choice:
    own = None
    if row.device_peak_bytes is not None:
        own = row.device_peak_bytes - (row.used_before_bytes or 0)
    return Choice(
        row=row,
        cell=cell_of(row),
        accumulation=row.accumulation,
        peak_bytes=row.peak_allocated_bytes or 0,
        device_peak_bytes=own,
        iteration_s=row.iteration_s.median if row.iteration_s else None,
    )


def _estimated(fit: Fit, cell: Cell, accumulation: int) -> Choice:
    estimate = fit.at(cell, accumulation)
    return Choice(
        row=fit.row,
        cell=cell,
        accumulation=accumulation,
        peak_bytes=estimate.peak_bytes,
        device_peak_bytes=estimate.careful_device_peak_bytes,
        iteration_s=estimate.iteration_s,
        estimate=estimate,
    )


def _described(facts: Facts, choice: Choice) -> str:
    parts = []
    if choice.estimate is None:
        parts.append(tr("measured: peak {peak} GiB", peak=gib(choice.peak_bytes)))
    else:
        said = tr("at most") + " " if choice.estimate.bound else ""
        parts.append(tr("estimated, not measured: peak {peak} GiB", peak=f"{said}{gib(choice.peak_bytes)}"))
        parts.append(_certainty(choice.estimate))
    if facts.capacity_bytes is not None:
        parts.append(
            tr(
                "{size} GiB beyond the {kept} GiB to keep",
                size=gib(room(facts, choice)),
                kept=gib(facts.kept_bytes),
            )
        )
    if choice.iteration_s is not None:
        parts.append(
            tr(
                "{time} ms an iteration, {rate} images/s",
                time=ms_of(choice.iteration_s),
                rate=rate(choice.images_per_s),
            )
        )
    return f"{choice.overrides} ({'; '.join(parts)})"


def _certainty(estimate: Estimate) -> str:
    if estimate.error is None:
        return tr(
            "from two sizes, which leaves nothing to check it by: {error}% on top",
            error=_percent(UNCHECKED_ERROR),
        )
    said = tr("each measured cell is met within {error}% by the others", error=_percent(estimate.error))
    return said + (tr(", larger than any of them") if estimate.extrapolated else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _least_change(facts: Facts, choice: Choice) -> str:
    """The nearest miss, and the first change that is known or counted to make up for it."""
    lacking = -room(facts, choice)
    text = tr(
        "nothing fits at {resolution} with effective batch {batch}: {overrides} comes nearest and lacks "
        "{size} GiB",
        resolution=choice.cell.resolution,
        batch=choice.effective_batch,
        overrides=choice.overrides,
        size=gib(lacking),
    )
    change = next((e for e in _changes(facts, choice) if (e.saved_bytes or 0) >= lacking), None)
    if change is not None:
        return text + tr("; the smallest change that makes up for it: {change}", change=change)
    smaller = _smaller(facts, choice)
    if smaller is not None:
        return text + tr("; it would fit at resolution={resolution}", resolution=smaller.resolution)
    return text + tr("; no change that is known of makes up for it")


def _changes(facts: Facts, choice: Choice) -> list[Effect]:
    """Those that leave the training as it is come first, by the least that they save."""
    largest = max(
        (row for row in facts.finished if _settings(row) == _settings(choice.row)),
        key=lambda row: row.batch * row.height * row.width,
        default=None,
    )
    row = largest or choice.row
    effects = [*measured_effects(row, facts.everything), *counted_effects(row)]
    alters = ("adapter=", "precision=")
    return sorted(effects, key=lambda e: (e.change.startswith(alters), e.saved_bytes or 0))


def _smaller(facts: Facts, choice: Choice) -> Cell | None:
    """The largest size below the wanted one, in the same shape, at which the estimate fits."""
    fit = next((f for f in _one_for_each_setting(facts) if f.row == choice.row), None) or next(
        (f for name, f in facts.fits.items() if name == family_of(choice.row)), None
    )
    if fit is None:
        return None
    height, width = choice.cell.height, choice.cell.width
    for side in range(height - STEP, 0, -STEP):
        cell = Cell(choice.cell.batch, side, max(STEP, round(side * width / height / STEP) * STEP))
        if room(facts, _estimated(fit, cell, choice.accumulation)) >= 0:
            return cell
    return None
