"""The rules of docs/advice.md: what the rows of a table say to change, and which rows say so."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from dmad_sweep.analysis.facts import Facts, size_of
from dmad_sweep.analysis.fit import Cell, Estimate, cell_of, family_of
from dmad_sweep.analysis.knobs import (
    Effect,
    best_first,
    counted_effects,
    lowering_the_floor,
    measured_effects,
)
from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import gib, ms_of, rate
from dmad_sweep.analysis.variation import only_difference

FLAT = 1.05
"""A peak that a doubled batch raises by less does not come from the batch."""

DATA_BOUND = 0.2
"""Share of waiting for data in an iteration's time from which on it is worth a look before the batch."""

GROWS = 0.02
"""Share by which images/s must rise, beyond the spread of both, for a larger batch to bring anything."""


@dataclass(frozen=True)
class Advice:
    """A sentence or two, by the rule that gave it; `evidence` names rows."""

    rule: str
    text: str
    evidence: tuple[str, ...]


def advise(facts: Facts) -> list[Advice]:
    return [advice for rule in RULES for advice in rule(facts)]


def activations(facts: Facts) -> Iterator[Advice]:
    """Out of memory in a first backward."""
    died = facts.died("backward", cycles=[1])
    if not died:
        return
    row = died[0]
    options = _smaller_batch(facts, row)
    if row.checkpointing == "none":
        options += measured_effects(row, facts.everything, ("checkpointing",)) or [
            _unknown("checkpointing=trainable")
        ]
    yield Advice(
        "activations",
        tr(
            "{rows} ran out of memory in a first backward: activations are the pressure, so lower the batch "
            "or recompute more. By what is saved for the time it takes: {options}",
            rows=_all(facts, died),
            options=_listed(best_first(options)),
        ),
        _labels(facts, died),
    )


def first_forward(facts: Facts) -> Iterator[Advice]:
    """Out of memory in a first forward at batch 1."""
    died = [row for row in facts.died("forward", cycles=[1]) if row.batch == 1]
    if not died:
        return
    row = died[0]
    options = _smaller_resolution(facts, row) + measured_effects(row, facts.everything)
    known = {effect.change.partition("=")[0] for effect in options}
    untried = {
        "precision": "bf16" if row.precision in ("fp32", "tf32") else None,
        "checkpointing": "trainable" if row.checkpointing == "none" else None,
        "attention": "efficient" if row.attention == "math" else None,
    }
    options += [_unknown(f"{key}={value}") for key, value in untried.items() if value and key not in known]
    yield Advice(
        "first_forward",
        tr(
            "{rows} ran out of memory in a first forward: it is not the batch. What is left to change: "
            "{options}",
            rows=_all(facts, died),
            options=_listed(options),
        ),
        _labels(facts, died),
    )


def floor(facts: Facts) -> Iterator[Advice]:
    """Out of memory before activations count, or a peak that the batch does not move."""
    died = [
        *facts.died(cycles=[0]),
        *facts.died("optimizer", cycles=[1]),
        *facts.died(cycles=[2]),  # the states that the first cycle made are there now
    ]
    flat = [
        row
        for above, row in pairwise(facts.finished)
        if only_difference(above, row) == "batch"
        and row.batch >= 2 * above.batch
        and (row.peak_allocated_bytes or 0) < FLAT * (above.peak_allocated_bytes or 0)
    ]
    if not died and not flat:
        return
    row = died[0] if died else flat[0]
    known = measured_effects(row, facts.everything)
    counted = [e for e in counted_effects(row) if e.change not in {effect.change for effect in known}]
    options = best_first([*known, *counted]) or [*map(_unknown, lowering_the_floor(row))]
    why = (
        tr("{rows} ran out of memory where the batch counts for little", rows=_all(facts, died))
        if died
        else tr("the peak of {rows} is hardly above that of half the batch", rows=_all(facts, flat))
    )
    text = tr("{why}: the floor holds it, and neither batch nor resolution lowers that.", why=why)
    if row.floor is not None:
        text += " " + tr(
            "It is made of weights {weights} GiB, gradients {gradients} GiB and optimizer states {states} "
            "GiB.",
            weights=gib(row.floor.weight_bytes),
            gradients=gib(row.floor.gradient_bytes),
            states=gib(row.floor.state_bytes),
        )
    if options:
        text += " " + tr("What lowers it: {options}", options=_listed(options))
    yield Advice("floor", text, _labels(facts, died or flat))


def late(facts: Facts) -> Iterator[Advice]:
    """Out of memory after two whole cycles had fitted."""
    for row in facts.died(cycles=range(3, 1_000_000)):
        reserved, allocated = row.peak_reserved_bytes, row.peak_allocated_bytes
        beyond = reserved - allocated if reserved is not None and allocated is not None else 0
        if beyond > facts.kept_bytes > 0:
            why = tr(
                "the allocator holds {size} GiB that no tensor uses, so its blocks fit ever worse: try "
                "PYTORCH_ALLOC_CONF=expandable_segments:True",
                size=gib(beyond),
            )
        else:
            why = tr("memory.snapshot=true keeps what is live when it happens")
        yield Advice(
            "late",
            tr(
                "{row} ran out of memory in {stage} of cycle {cycle}, after cycles that had fitted: weights, "
                "gradients and optimizer states were all there before, so something grew or came late; {why}",
                row=facts.label(row),
                stage=row.died_stage,
                cycle=row.died_cycle,
                why=why,
            ),
            (facts.label(row),),
        )


def close(facts: Facts) -> Iterator[Advice]:
    """A finished row that leaves less of the card than should stay free."""
    near = [r for r in facts.finished if r.headroom_bytes is not None and r.headroom_bytes < facts.kept_bytes]
    if not near or facts.capacity_bytes is None:
        return
    tightest = min(near, key=lambda row: row.headroom_bytes or 0)
    text = tr(
        "{rows}: {left} GiB of {card} GiB are left at the least, and {kept} GiB should be ({why}). Move the "
        "batch first: its effect is the closest to linear",
        rows=_all(facts, near),
        left=gib(tightest.headroom_bytes),
        card=gib(facts.capacity_bytes),
        kept=gib(facts.kept_bytes),
        why=tr("target.headroom_gib")
        if facts.target.headroom_gib is not None
        else tr("for fragmentation, retries of the allocator and other processes"),
    )
    fit = facts.fit_for(tightest)
    if fit is not None and tightest.batch > 1:
        less = fit.per_sample(Cell(tightest.batch - 1, tightest.height, tightest.width))
        text += tr("; one sample less frees {size} GiB", size=gib(round(less)))
    yield Advice("close", text, _labels(facts, near))


def spare(facts: Facts) -> Iterator[Advice]:
    """Memory is left, so time decides."""
    for row in _largest_batches(facts):
        if row.headroom_bytes is None or row.headroom_bytes < facts.kept_bytes:
            continue
        waits = _share_of_data(row)
        if waits > DATA_BOUND:
            yield Advice(
                "spare",
                tr(
                    "{row} waits for data {share}% of its time: more data.workers, or data.cache=true, "
                    "before a larger batch",
                    row=facts.label(row),
                    share=round(100 * waits),
                ),
                (facts.label(row),),
            )
            continue
        yield from _larger_batch(facts, row)


def _larger_batch(facts: Facts, row: TableRow) -> Iterator[Advice]:
    smaller = [r for r in facts.like(row) if r.resolution == row.resolution and r.batch < row.batch]
    before = max(smaller, key=lambda r: r.batch, default=None)
    if before is None or row.images_per_s is None or before.images_per_s is None:
        return
    evidence = (facts.label(before), facts.label(row))
    rates = {"before": rate(before.images_per_s), "now": rate(row.images_per_s)}
    if row.images_per_s <= before.images_per_s * (1 + GROWS + _spread(row) + _spread(before)):
        yield Advice(
            "spare",
            tr(
                "{row} leaves {left} GiB, but images/s no longer grow with the batch ({before} → {now}): "
                "a larger one brings nothing",
                row=facts.label(row),
                left=gib(row.headroom_bytes),
                **rates,
            ),
            evidence,
        )
        return
    larger = Cell(2 * row.batch, row.height, row.width)
    estimate = fit.at(larger) if (fit := facts.fit_for(row)) else None
    dead = any(
        cell_of(r).resolution == larger.resolution and r.batch <= larger.batch for r in _dead(facts, row)
    )
    if estimate is None or dead or not _leaves_enough(facts, estimate.careful_device_peak_bytes):
        return
    text = tr(
        "{row} leaves {left} GiB and images/s still grow with the batch ({before} → {now}): batch={batch} is "
        "expected to peak at {peak} GiB",
        row=facts.label(row),
        left=gib(row.headroom_bytes),
        batch=larger.batch,
        peak=gib(estimate.peak_bytes),
        **rates,
    )
    if estimate.images_per_s is not None:
        text += tr(" with {rate} images/s", rate=rate(estimate.images_per_s))
    if "launch_bound" in row.remarks:
        text += tr("; the device waits for the host here, so samples cost little time")
    yield Advice("spare", text, evidence)


def resolution(facts: Facts) -> Iterator[Advice]:
    """The resolution that training needs is not measured yet, and memory for it is there."""
    size = facts.target.height_and_width()
    if size is None:
        return
    for row in _largest_batches(facts):
        fit = facts.fit_for(row)
        largest = max(facts.like(row), key=lambda r: (r.height * r.width, r.batch))
        if fit is None or row is not largest or row.height * row.width >= size[0] * size[1]:
            continue
        cells = [Cell(batch, *size) for batch in range(row.batch, 0, -1)]
        died = [cell_of(r) for r in _dead(facts, row)]
        cells = [c for c in cells if not any(d.pixels == c.pixels and d.batch <= c.batch for d in died)]
        estimates = (fit.at(cell) for cell in cells)
        for estimate in estimates:
            if _leaves_enough(facts, estimate.careful_device_peak_bytes):
                yield _raised(facts, row, estimate)
                break


def _raised(facts: Facts, row: TableRow, estimate: Estimate) -> Advice:
    text = tr(
        "training needs {resolution}, and {row} leaves {left} GiB: batch={batch} resolution={resolution} is "
        "expected to peak at {peak} GiB",
        row=facts.label(row),
        resolution=estimate.cell.resolution,
        left=gib(row.headroom_bytes),
        batch=estimate.cell.batch,
        peak=gib(estimate.peak_bytes),
    )
    if estimate.images_per_s is not None:
        text += tr(" with {rate} images/s", rate=rate(estimate.images_per_s))
    return Advice("resolution", text, (facts.label(row),))


def larger_effective_batch(facts: Facts) -> Iterator[Advice]:
    """An effective batch is wanted that no micro-batch reaches."""
    wanted = facts.target.effective_batch
    if wanted is None:
        return
    for largest in _largest_batches(facts):
        if largest.accumulation > 1 or largest.resolution != _wanted_resolution(facts):
            continue
        blocked = any(
            row.resolution == largest.resolution and row.batch <= wanted for row in _dead(facts, largest)
        )
        fit = facts.fit_for(largest)
        if not blocked and fit is not None:
            whole = fit.at(Cell(wanted, largest.height, largest.width))
            blocked = not _leaves_enough(facts, whole.careful_device_peak_bytes)
        batch = max((b for b in range(1, largest.batch + 1) if wanted % b == 0), default=1)
        if not blocked or batch == wanted:
            continue
        yield _accumulated(facts, largest, batch, wanted // batch)


def _accumulated(facts: Facts, row: TableRow, batch: int, steps: int) -> Advice:
    measured = next(
        (
            other
            for other in facts.finished
            if (other.batch, other.accumulation, other.resolution) == (batch, steps, row.resolution)
        ),
        None,
    )
    known = next((o for o in facts.like(row) if (o.batch, o.resolution) == (batch, row.resolution)), None)
    text = tr(
        "no micro-batch of {effective} fits at {resolution}: batch={batch} accumulation={steps} makes it up",
        effective=batch * steps,
        resolution=row.resolution,
        batch=batch,
        steps=steps,
    )
    if measured is not None and measured.iteration_s is not None:
        text += tr(
            "; measured: {peak} GiB and {time} ms an iteration",
            peak=gib(measured.peak_allocated_bytes),
            time=ms_of(measured.iteration_s.median),
        )
    elif known is not None and known.iteration_s is not None:
        gradients = known.floor.gradient_set_bytes if known.floor else 0
        text += tr(
            "; expected: at most {peak} GiB, since a set of gradients stays beside the activations, and "
            "about {time} ms an iteration",
            peak=gib((known.peak_allocated_bytes or 0) + gradients),
            time=ms_of(steps * known.iteration_s.median),
        )
    return Advice("larger_effective_batch", text, (facts.label(measured or known or row),))


RULES: tuple[Callable[[Facts], Iterable[Advice]], ...] = (
    floor,
    first_forward,
    activations,
    late,
    close,
    resolution,
    spare,
    larger_effective_batch,
)
"""In the order in which they matter: what never fits, what does not fit, what hardly fits, what fits well."""


def _smaller_batch(facts: Facts, row: TableRow) -> list[Effect]:
    """The largest batch of the same resolution that was measured to fit, making up for the rest in time."""
    smaller = [r for r in facts.like(row) if r.resolution == row.resolution and r.batch < row.batch]
    best = max(smaller, key=lambda r: r.batch, default=None)
    if best is None:
        return [_unknown(f"batch={row.batch // 2}")] if row.batch > 1 else []
    said = tr("measured: {peak} GiB", peak=gib(best.peak_allocated_bytes))
    saved = lost = None
    if (fit := facts.fit_for(row)) is not None:
        died = fit.at(cell_of(row))
        saved = max(0, died.peak_bytes - (best.peak_allocated_bytes or 0))
        said += tr(", about {size} GiB less", size=gib(saved))
        if died.iteration_s is not None and best.iteration_s is not None:
            lost = row.batch / best.batch * best.iteration_s.median - died.iteration_s
            said += tr(
                "; {images} images take {time} ms more",
                images=row.batch * row.accumulation,
                time=ms_of(max(0.0, lost)),
            )
    return [Effect(f"batch={best.batch}", saved, lost, said)]


def _smaller_resolution(facts: Facts, row: TableRow) -> list[Effect]:
    smaller = [r for r in facts.like(row) if size_of(r) < size_of(row)]
    best = max(smaller, key=size_of, default=None)
    if best is None:
        return []
    said = tr("measured: {peak} GiB", peak=gib(best.peak_allocated_bytes))
    return [Effect(f"resolution={best.resolution}", None, None, said)]


def _unknown(change: str) -> Effect:
    return Effect(change, None, None, tr("not measured yet"))


def _largest_batches(facts: Facts) -> list[TableRow]:
    """The finished row with the largest batch, for each family and resolution."""
    found: dict[tuple[object, ...], TableRow] = {}
    for row in facts.finished:
        key = (family_of(row), row.resolution)
        if key not in found or row.batch > found[key].batch:
            found[key] = row
    return [*found.values()]


def _dead(facts: Facts, row: TableRow) -> list[TableRow]:
    """Rows that ran out of memory and differ from `row` in batch and resolution at most."""
    return [r for r in facts.rows if r.status == "oom" and family_of(r) == family_of(row)]


def _wanted_resolution(facts: Facts) -> str | None:
    if facts.target.resolution is not None:
        return facts.target.resolution
    return max(facts.finished, key=lambda row: row.height * row.width).resolution if facts.finished else None


def _leaves_enough(facts: Facts, device_peak_bytes: int | None) -> bool:
    if device_peak_bytes is None or facts.capacity_bytes is None:
        return False
    return facts.capacity_bytes - device_peak_bytes >= facts.kept_bytes


def _share_of_data(row: TableRow) -> float:
    if row.data_s is None or row.iteration_s is None:
        return 0.0
    return row.data_s.median / (row.data_s.median + row.iteration_s.median)


def _spread(row: TableRow) -> float:
    return row.iteration_s.relative if row.iteration_s is not None else 0.0


def _labels(facts: Facts, rows: Iterable[TableRow]) -> tuple[str, ...]:
    return tuple(facts.label(row) for row in rows)


def _all(facts: Facts, rows: Iterable[TableRow]) -> str:
    return "; ".join(_labels(facts, rows))


def _listed(effects: Iterable[Effect]) -> str:
    return "; ".join(f"{number}. {effect}" for number, effect in enumerate(effects, start=1))
