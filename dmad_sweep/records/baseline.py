"""Which inference trial is the baseline of a training trial: what training adds is counted from it."""

from dataclasses import dataclass, fields

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Provenance
from dmad_sweep.records.row import Row


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a trial and its baseline have in common, by the names that a row has for it.

    Attention is among it because the kernel decides about memory; where the samples come from is not.
    """

    model: str
    pretrained: str | None
    precision: str
    height: int
    width: int
    attention: str
    device_name: str
    device_total_bytes: int | None
    memory_limit_bytes: int | None
    driver: str | None
    torch: str | None
    code: str


def conditions_of(row: Row) -> Conditions:
    return Conditions(**{field.name: getattr(row, field.name) for field in fields(Conditions)})


def planned_conditions(plan: Plan, provenance: Provenance, torch: str | None) -> Conditions:
    """The conditions that the row of this plan will have; `torch` is the version that will run."""
    return Conditions(
        model=plan.model.name,
        pretrained=plan.model.pretrained,
        precision=plan.precision.name,
        height=plan.resolution.height,
        width=plan.resolution.width,
        attention=plan.attention.name,
        device_name=plan.device.name,
        device_total_bytes=plan.device.total_bytes,
        memory_limit_bytes=plan.device.memory_limit_bytes,
        driver=provenance.driver,
        torch=torch,
        code=provenance.code_hash,
    )


def is_baseline(row: Row) -> bool:
    """Inference of one sample that came to its end and knows all of its conditions."""
    return (
        row.phase == "inference"
        and row.effective_batch == 1
        and row.status == "ok"
        and row.torch is not None
        and row.peak_allocated_bytes is not None
    )
