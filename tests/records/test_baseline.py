"""Which trials are compared with which."""

from dataclasses import fields, replace
from typing import Any

import pytest
from factories import make_cpu_record, make_gpu_plan, make_oom, make_record

from dmad_sweep.records.baseline import Conditions, conditions_of, is_baseline, planned_conditions
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.records.settings import Accumulation, Attention, Batch, Model, Phase

INFERENCE = make_record(make_gpu_plan(phase=Phase("inference")))


@pytest.mark.parametrize(
    "record",
    [
        make_record(),
        make_cpu_record(),
        make_record(
            replace(make_gpu_plan(2, 768), model=Model("sdxl", "/models/mine"), attention=Attention("math"))
        ),
    ],
)
def test_a_plan_promises_the_conditions_of_its_row(record: Record) -> None:
    assert planned_conditions(record.plan, record.provenance, "2.11.0+cu130") == conditions_of(row_of(record))


@pytest.mark.parametrize("name", [field.name for field in fields(Conditions)])
def test_every_condition_counts(name: str) -> None:
    row = row_of(INFERENCE)
    assert conditions_of(replace(row, **{name: "another"})) != conditions_of(row)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"phase": Phase("train")},
        {"batch": Batch(2)},
        {"accumulation": Accumulation(2)},
    ],
)
def test_only_inference_of_one_sample_is_a_baseline(change: dict[str, Any]) -> None:
    assert is_baseline(row_of(INFERENCE))
    assert not is_baseline(row_of(make_record(replace(INFERENCE.plan, **change))))


def test_only_what_came_to_its_end_is_a_baseline() -> None:
    assert not is_baseline(row_of(make_oom(INFERENCE.plan)))
    assert not is_baseline(replace(row_of(INFERENCE), torch=None))
    assert not is_baseline(replace(row_of(INFERENCE), peak_allocated_bytes=None))
