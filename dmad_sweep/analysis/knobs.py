"""What a change of one setting is known to do to a row: measured where a pair of rows tells, else counted.

Savings that are counted follow from what the networks hold; each says how.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dmad_sweep.analysis.language import tr
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.analysis.text import gib, ms_of
from dmad_sweep.analysis.variation import only_difference
from dmad_sweep.records.row import Floor, Row

KNOBS = ("checkpointing", "precision", "adapter", "attention", "optimizer", "ema")
"""Axes that change what a training holds, beside batch, resolution and accumulation."""

EIGHT_BIT_SAVES = 0.75
"""Of AdamW's states: 8 bits for each 32, blocks' constants left out (arXiv 2110.02861)."""

HALVED_BY_PURE_BF16 = 0.5
"""Of float32 weights, gradients and states that are trained."""


@dataclass(frozen=True)
class Effect:
    """A change as an override, what it saves and costs, and from where that is known."""

    change: str
    saved_bytes: int | None
    lost_s: float | None
    """Seconds that an iteration takes longer; None where nobody measured it."""
    known_from: str

    def __str__(self) -> str:
        return f"{self.change} ({self.known_from})"

    @property
    def saved_per_second(self) -> float:
        """Bytes for each second lost: infinite where none is lost, −1 where it is unknown."""
        if self.saved_bytes is None or self.lost_s is None:
            return -1.0
        return self.saved_bytes / self.lost_s if self.lost_s > 0 else float("inf")


def best_first(effects: Iterable[Effect]) -> list[Effect]:
    """By what they save for the time they cost; those of unknown cost last, the largest saving first."""
    return sorted(effects, key=lambda e: (e.saved_per_second, e.saved_bytes or 0), reverse=True)


def measured_effects(row: Row, rows: Sequence[TableRow], knobs: Sequence[str] = KNOBS) -> list[Effect]:
    """Changes from this row's settings that some pair of finished rows shows to save memory.

    The pair is the one nearest in size to `row` of those that differ in the one knob alone.
    """
    found: dict[str, tuple[int, Effect]] = {}
    finished = [r for r in rows if r.status == "ok" and r.phase == "train" and r.peak_allocated_bytes]
    for before in finished:
        if any(getattr(before, knob) != getattr(row, knob) for knob in KNOBS):
            continue
        distance = abs(before.batch * before.height * before.width - row.batch * row.height * row.width)
        for after in finished:
            knob = only_difference(before, after)
            if knob is None or knob not in knobs:
                continue
            effect = _effect(knob, before, after)
            known = found.get(effect.change)
            if (effect.saved_bytes or 0) > 0 and (known is None or distance < known[0]):
                found[effect.change] = distance, effect
    return best_first(effect for _, effect in found.values())


def _effect(knob: str, before: TableRow, after: TableRow) -> Effect:
    saved = (before.peak_allocated_bytes or 0) - (after.peak_allocated_bytes or 0)
    lost = None
    if before.iteration_s and after.iteration_s:
        lost = after.iteration_s.median - before.iteration_s.median
    where = tr("batch {batch} at {resolution}", batch=before.batch, resolution=before.resolution)
    known_from = tr("measured at {where}: {size} GiB less", where=where, size=gib(saved))
    if lost is not None:
        known_from += tr(", {time} ms more", time=ms_of(lost)) if lost > 0 else tr(", no slower")
    return Effect(override(knob, getattr(after, knob)), saved, lost, known_from)


def counted_effects(row: Row) -> Iterator[Effect]:
    """Changes of what the floor is made of, with what arithmetic expects of them."""
    floor, lowering = row.floor, lowering_the_floor(row)
    if floor is None:
        return
    if "optimizer=adamw_8bit" in lowering and floor.state_bytes:
        saved = round(EIGHT_BIT_SAVES * floor.state_bytes)
        yield _counted("optimizer=adamw_8bit", saved, tr("three quarters of the optimizer states"))
    if row.optimizer == "adamw" and (row.peak_stage or "").endswith(".optimizer"):
        others = [size for stage, size in row.stage_peaks.items() if not stage.endswith(".optimizer")]
        saved = (row.peak_allocated_bytes or 0) - max(others, default=0)
        if others and saved > 0:
            yield _counted(
                "optimizer=adamw_fused", saved, tr("at most: foreach's temporaries, up to the next stage")
            )
    if "adapter=lora" in lowering and floor.gradient_bytes + floor.state_bytes:
        saved = floor.gradient_bytes + floor.state_bytes
        yield _counted("adapter=lora", saved, tr("gradients and states of whole networks"))
    if "precision=bf16_pure" in lowering:
        saved = round(HALVED_BY_PURE_BF16 * _trained(floor))
        yield _counted("precision=bf16_pure", saved, tr("half of what is trained; another regime"))
    if "ema=cpu" in lowering:
        yield _counted("ema=cpu", floor.gradient_set_bytes, tr("the averaged weights move to the host"))


def lowering_the_floor(row: Row) -> list[str]:
    """Changes that this row has not taken yet, known to hold less of weights, gradients or states."""
    changes = {
        "adapter=lora": row.adapter == "full",
        "optimizer=adamw_8bit": row.optimizer in ("adamw", "adamw_fused"),
        "precision=bf16_pure": row.precision != "bf16_pure",
        "ema=cpu": row.ema == "gpu",
    }
    return [change for change, possible in changes.items() if possible]


def override(knob: str, value: str) -> str:
    """A knob's value as tables show it, as an override: `lora-64` is an adapter and its rank."""
    name, dash, rank = value.rpartition("-")
    if knob == "adapter" and dash and rank.isdigit():
        return f"adapter={name} adapter.rank={rank}"
    return f"{knob}={value}"


def _counted(change: str, saved: int, why: str) -> Effect:
    return Effect(change, saved, None, tr("counted: {size} GiB, {why}", size=gib(saved), why=why))


def _trained(floor: Floor) -> int:
    """Weights, gradients and states of what is trained; its weights are as large as its gradients."""
    return 2 * floor.gradient_bytes + floor.state_bytes
