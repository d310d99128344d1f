"""The settings of a trial that no column of a table shows: any of them may be a second variable."""

from dataclasses import MISSING, asdict, fields
from typing import Any

from dmad_sweep.records.plan import Plan

SECTIONS = (
    "model",
    "recipe",
    "precision",
    "checkpointing",
    "adapter",
    "attention",
    "optimizer",
    "ema",
    "data",
    "phase",
    "schedule",
    "memory",
)
"""Whose settings can change a trial's numbers; those of batch, resolution and accumulation are columns."""

ELSEWHERE = {
    "model.name",
    "model.pretrained",
    "recipe.name",
    "recipe.student_update_freq",
    "precision.name",
    "checkpointing.name",
    "adapter.name",
    "adapter.rank",
    "attention.name",
    "optimizer.name",
    "ema.name",
    "data.source",
    "phase.name",
    "schedule.repeats",
    "schedule.timeout_s",
    "schedule.stall_s",
}
"""Fields of a row of their own, or without any effect on a number."""

LONGEST = 80
"""Characters of a value; a path is told by its end."""


def unshown_settings(plan: Plan) -> dict[str, str]:
    """By dotted name, the settings that differ from their defaults and have no field of a row."""
    found = {}
    for section in SECTIONS:
        settings = getattr(plan, section)
        for name, value in asdict(settings).items():
            if f"{section}.{name}" not in ELSEWHERE and value != _default(settings, name):
                found[f"{section}.{name}"] = _text(value)
    return found


def _default(settings: Any, name: str) -> object:
    field = next(field for field in fields(settings) if field.name == name)
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _text(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]
