"""What the measured process is told: one trial, fully resolved."""

from dataclasses import dataclass, field
from typing import Literal

from dmad_sweep.records.key import TrialKey
from dmad_sweep.records.settings import (
    Accumulation,
    Adapter,
    Attention,
    Batch,
    Checkpointing,
    Data,
    Ema,
    Memory,
    Model,
    Optimizer,
    Phase,
    Precision,
    Recipe,
    Resolution,
    Schedule,
    Target,
)

SCHEMA_VERSION = 1

Role = Literal["combination", "baseline"]
"""Whether the command asked for a trial, or the sweep added it to compare training with."""


@dataclass(frozen=True, kw_only=True)
class PlannedDevice:
    """The one device of a trial. `uuid`, `total_bytes` and `used_before_bytes` are NVML's; None on a CPU."""

    kind: str
    """`cuda` or `cpu`."""
    name: str
    uuid: str | None = None
    total_bytes: int | None = None
    used_before_bytes: int | None = None
    """Device memory in use before the trial's process started, by NVML."""
    memory_limit_bytes: int | None = None
    """Emulate a device (or, on a CPU, an allowance above the process's start) of this size."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One trial, as plan.json. The model is never `auto` here."""

    schema_version: int = SCHEMA_VERSION
    trial_id: str
    sweep: str
    index: int
    """Position among the sweep's trials of the same role, from 0."""
    role: Role = "combination"
    repeat: int = 0
    """Which measurement of the same combination, from 0 to schedule.repeats - 1."""
    isolation: str
    """`fork` (from a preloaded server) or `spawn` (a fresh interpreter)."""
    workload: str
    model: Model
    recipe: Recipe
    batch: Batch
    resolution: Resolution
    accumulation: Accumulation
    target: Target = field(default_factory=Target)
    precision: Precision
    checkpointing: Checkpointing
    adapter: Adapter = field(default_factory=Adapter)
    attention: Attention
    optimizer: Optimizer
    ema: Ema
    data: Data
    phase: Phase
    schedule: Schedule
    memory: Memory = field(default_factory=Memory)
    device: PlannedDevice
    key: TrialKey | None = None
    """What the numbers depend on; None in records of earlier versions."""
    latents_folder: str | None = None
    """Where encoded pictures are kept, for data.source=images."""

    @property
    def effective_batch(self) -> int:
        return self.batch.size * self.accumulation.steps

    @property
    def label(self) -> str:
        """What a person calls this combination in progress lines and logs."""
        parts = [f"batch {self.batch.size}", f"resolution {self.resolution.label}"]
        if self.accumulation.steps > 1:
            parts.append(f"accumulation {self.accumulation.steps}")
        parts.append(self.precision.name)
        if self.recipe.name != "dmd2":
            parts.append(self.recipe.name)
        if self.checkpointing.name != "none":
            parts.append(f"checkpointing {self.checkpointing.name}")
        if self.adapter.networks:
            parts.append(self.adapter.label)
        if self.attention.name != "auto":
            parts.append(f"attention {self.attention.name}")
        if self.optimizer.name != "adamw":
            parts.append(self.optimizer.name)
        if self.ema.name != "none":
            parts.append(f"ema {self.ema.name}")
        if self.phase.name != "train":
            parts.append(self.phase.name)
        if self.role == "baseline":
            parts.append("the baseline")
        if self.schedule.repeats > 1:
            parts.append(f"repeat {self.repeat + 1} of {self.schedule.repeats}")
        return ", ".join(parts)
