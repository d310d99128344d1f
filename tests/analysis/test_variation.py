"""Which variables differ between rows, and that a second one is named."""

from dataclasses import replace
from typing import Any

import pytest
from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.growth import with_growth
from dmad_sweep.analysis.ratio import Ratio
from dmad_sweep.analysis.repeats import apart
from dmad_sweep.analysis.table import render
from dmad_sweep.analysis.variation import differences, only_difference, unshown, varied
from dmad_sweep.records.key import TrialKey
from dmad_sweep.records.row import Row, Spread, row_of
from dmad_sweep.records.settings import Accumulation, Checkpointing, Data, Precision, Recipe, Schedule
from dmad_sweep.units import GIB

KEY = TrialKey(
    combination="c",
    code="code",
    device="NVIDIA H200 GPU-1",
    driver="580.1",
    torch="2.11.0",
    libraries="diffusers 0.42.1",
    environment="",
)


def row(batch: int = 1, side: int = 512, index: int = 0, **changes: Any) -> Row:
    precision = changes.pop("precision", Precision())
    return row_of(make_record(replace(make_gpu_plan(batch, side, index, **changes), precision=precision)))


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (row(2), ["batch"]),
        (row(1, 768), ["resolution"]),
        (row(2, accumulation=Accumulation(2)), ["batch", "accumulation"]),
        (row(checkpointing=Checkpointing("all", ["student", "teacher"])), ["checkpointing"]),
        (row(precision=Precision("fp32", frozen="float32", autocast=None)), ["precision"]),
        (row(precision=Precision(frozen="float32")), ["precision.frozen"]),
        (row(2, data=Data(seed=3)), ["batch", "data.seed"]),
        (row(recipe=Recipe(guidance_scale=3.0)), ["recipe.guidance_scale"]),
        (row(schedule=Schedule(warmup_cycles=2, measured_cycles=1, stall_s=5)), []),
        (row(schedule=Schedule(warmup_cycles=2, measured_cycles=9)), ["schedule.measured_cycles"]),
        (replace(row(2), driver="590.2"), ["batch", "driver"]),
        (replace(row(), driver=None), []),
    ],
    ids=str,
)
def test_every_variable_that_differs_is_named(other: Row, names: list[str]) -> None:
    assert [difference.variable for difference in differences(row(), other)] == names
    assert only_difference(row(), other) == (names[0] if len(names) == 1 else None)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"device": "NVIDIA H200 GPU-2"}, "machine"),
        ({"libraries": "diffusers 0.43.0"}, "libraries"),
        ({"environment": "PYTORCH_ALLOC_CONF=expandable_segments:True"}, "environment"),
    ],
)
def test_the_environment_is_a_variable(change: dict[str, str], name: str) -> None:
    here, there = replace(row(), key=KEY), replace(row(), key=replace(KEY, **change))
    assert only_difference(here, there) == name
    assert differences(here, replace(row(), key=None)) == []


def test_what_varies_in_a_table() -> None:
    assert varied([row(), row(2), row(2, 768), row(data=Data(seed=1))]) == [
        "batch",
        "resolution",
        "data.seed",
    ]


def test_the_row_that_is_unlike_most_is_told() -> None:
    odd = row(4, index=2, data=Data(seed=1))
    found = unshown([odd, row(1), row(2, index=1), row(8, index=3)])
    assert [(id_, [d.variable for d in said]) for id_, said in found.items()] == [
        (odd.trial_id, ["data.seed"])
    ]
    shown = render([odd, row(1), row(2, index=1), row(8, index=3)], "terminal", width=160)
    assert "a: differs in data.seed too: 1, elsewhere its default" in shown
    assert "differs" not in render([row(1), row(2, index=1)], "terminal", width=160)


def lines(*rows: Row) -> tuple[Any, ...]:
    return with_growth(apart(rows))


def test_growth_is_against_the_row_above_where_one_variable_differs() -> None:
    first = replace(row(), iteration_s=Spread(median=0.4, low=0.36, high=0.44), peak_allocated_bytes=20 * GIB)
    second = replace(
        row(2), iteration_s=Spread(median=0.5, low=0.45, high=0.55), peak_allocated_bytes=25 * GIB
    )
    _, grown = lines(first, second)
    assert grown.growth.variable == "batch"
    assert grown.growth.peak == Ratio(1.25, 0.0)
    assert grown.growth.time.value == pytest.approx(1.25)
    assert grown.growth.time.half_range == pytest.approx((0.55 / 0.36 - 0.45 / 0.44) / 2)
    assert lines(first, second)[0].growth is None


@pytest.mark.parametrize(
    "below", [row(2, 768), row(2, data=Data(seed=1)), row_of(make_oom(make_gpu_plan(2)))], ids=str
)
def test_no_growth_where_two_variables_differ_or_a_trial_died(below: Row) -> None:
    assert lines(row(), below)[1].growth is None
    assert "×" not in render([row(), below], "markdown")
