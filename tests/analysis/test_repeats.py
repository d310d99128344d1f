"""The repeats of a combination in one row, in whole tables."""

import csv
import io
from dataclasses import replace

import pytest
from factories import make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.analysis.repeats import merged
from dmad_sweep.analysis.table import render
from dmad_sweep.analysis.text import gib_with_spread
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.row import Row, Spread, row_of
from dmad_sweep.records.settings import Schedule
from dmad_sweep.units import GIB, MIB


def plans(count: int, *, batch: int = 1, index: int = 0) -> list[Plan]:
    plan = make_gpu_plan(
        batch, 512, index, schedule=Schedule(warmup_cycles=2, measured_cycles=1, repeats=count)
    )
    return [replace(plan, repeat=repeat, trial_id=f"{index}-{repeat}") for repeat in range(count)]


@pytest.fixture
def rows() -> list[Row]:
    """Batch 1 went well each time, batch 2 died in two of five repeats, batch 4 was measured once."""
    well = [
        row_of(make_record(plan, peak_gib=28.4375 + extra))
        for plan, extra in zip(plans(3), (0, 4 / 1024, 6 / 1024), strict=True)
    ]
    well[1] = replace(well[1], iteration_s=Spread(median=0.4, low=0.345, high=0.41))
    first, second, third, fourth, fifth = plans(5, batch=2, index=1)
    mixed = [
        row_of(make_record(first, peak_gib=30)),
        row_of(make_oom(second, stage="fake_score.optimizer")),
        row_of(make_record(third, peak_gib=31)),
        row_of(make_oom(fourth, stage="fake_score.optimizer", certain=False)),
        row_of(make_record(fifth, peak_gib=30)),
    ]
    return [*well, *mixed, row_of(make_record(make_gpu_plan(4, 512, 2), peak_gib=33))]


TERMINAL = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
                                                           peak           itera-
               accu-  effec-                              allo-  device     tion  data
reso-          mula-    tive             check-           cated    peak     time  time  images                                                re-
lution  batch   tion   batch  precision  pointing           GiB     GiB       ms    ms      /s  overflow                                      marks
────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512         1      1       1  bf16       none      28.44 ±3 MiB   30.44  350 ±9%   3.0    2.83  no                                            a
512         2      1       2  bf16       none       31.00 ±0.50   33.00  350 ±1%   3.0    5.67  optimizer OOM (fake_score.optimizer), 2 of 5  b c d
512         4      1       4  bf16       none             33.00   35.00  350 ±1%   3.0    11.3  no
a: 3 repeats: the highest peaks, ± half their range; times of all their cycles
b: asked for 58 MiB more when memory ran out
c: probably out of memory: the library's error does not say so for certain
d: 5 repeats: the highest peaks, ± half their range; times of all their cycles

"""

NARROW = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
accumulation 1, effective batch as batch, precision bf16, checkpointing none
                      peak          itera-
                     allo-  device    tion  data
reso-                cated    peak    time  time  images                 re-
lution  batch          GiB     GiB      ms    ms      /s  overflow       marks
───────────────────────────────────────────────────────────────────────────────
512         1  28.44±3 MiB   30.44  350±9%   3.0    2.83  no             a
512         2   31.00±0.50   33.00  350±1%   3.0    5.67  optimizer OOM  b c d
                                                          (fake_score.
                                                          optimizer),
                                                          2 of 5
512         4        33.00   35.00  350±1%   3.0    11.3  no
a: 3 repeats: the highest peaks, ± half their range; times of all their cycles
b: asked for 58 MiB more when memory ran out
c: probably out of memory: the library's error does not say so for certain
d: 5 repeats: the highest peaks, ± half their range; times of all their cycles

"""

MARKDOWN = """\
**sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130**

| resolution | batch | accumulation | effective batch | precision | checkpointing | peak allocated GiB | peak in | device peak GiB | headroom GiB | iteration time ms | data time ms | images/s | overflow | remarks |
| --- | ---: | ---: | ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| 512 | 1 | 1 | 1 | bf16 | none | 28.44 ±3 MiB | fake\\_score.optimizer | 30.44 | 109.56 | 350 ±9% | 3.0 | 2.83 | no |  |

- 3 repeats: the highest peaks, ± half their range; times of all their cycles
"""


def test_people_get_a_row_for_each_combination(rows: list[Row]) -> None:
    assert render(rows, "terminal", width=160) == TERMINAL
    assert render(rows, "terminal", width=80) == NARROW
    assert render(rows[:3], "markdown") == MARKDOWN


def test_programs_get_a_line_for_each_trial(rows: list[Row]) -> None:
    lines = list(csv.DictReader(io.StringIO(render(list(reversed(rows)), "csv"))))
    assert [(line["index"], line["repeat"]) for line in lines] == [
        *(("0", str(repeat)) for repeat in range(3)),
        *(("1", str(repeat)) for repeat in range(5)),
        ("2", "0"),
    ]
    assert [line["overflow"] for line in lines[3:5]] == ["no", "optimizer OOM (fake_score.optimizer)"]


def test_times_are_of_all_cycles_of_all_repeats(rows: list[Row]) -> None:
    (row,) = merged(rows[:3])
    assert row.iteration_s == Spread(median=0.35, low=0.345, high=0.41)
    assert row.images_per_s == pytest.approx(1 / 0.353)


def test_the_device_is_as_full_as_in_the_fullest_repeat(rows: list[Row]) -> None:
    (row,) = merged(rows[3:8])
    assert (row.peak_allocated_bytes, row.device_peak_bytes, row.headroom_bytes) == (
        31 * GIB, 33 * GIB, 107 * GIB,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("makers", "status", "expected"),
    [
        ((make_oom, make_oom), "oom", "backward OOM (student.backward)"),
        ((make_record, make_record), "ok", "no"),
        (
            (make_record, make_killed, make_oom),
            "killed",
            "killed (gan.forward), 1 of 3; backward OOM (student.backward), 1 of 3",
        ),
    ],
)
def test_how_repeats_ended(makers: tuple, status: str, expected: str) -> None:  # type: ignore[type-arg]
    trials = [make(plan) for make, plan in zip(makers, plans(len(makers)), strict=True)]
    (row,) = merged(map(row_of, trials))
    assert (row.status, row.overflow) == (status, expected)


def test_a_repeat_that_died_does_not_widen_the_peaks_range() -> None:
    first, second, third = plans(3)
    trials = [make_record(first), make_record(second), make_oom(third)]
    died = replace(row_of(trials[2]), peak_allocated_bytes=3 * GIB)
    (row,) = merged([row_of(trials[0]), row_of(trials[1]), died])
    assert (row.peak_allocated_bytes, row.peak_half_range_bytes) == (28.5 * GIB, 0)
    (row,) = merged([died, row_of(trials[0])])
    assert (row.peak_allocated_bytes, row.peak_half_range_bytes) == (28.5 * GIB, None)


def test_only_repeats_of_one_combination_are_merged() -> None:
    first, second = (row_of(make_record(plan)) for plan in plans(2))
    assert len(merged([first, replace(second, sweep="other")])) == 2
    assert len(merged([first, replace(second, role="baseline")])) == 2
    assert len(merged([first, replace(second, index=1)])) == 2
    assert len(merged([first, second])) == 1
    shown = render([first, replace(second, code="beef")], "markdown")
    assert shown.count("| resolution |") == 2
    assert "±0.00" not in shown


@pytest.mark.parametrize(
    ("half_range", "expected"),
    [
        (None, "28.44"),
        (0, "28.44 ±0.00"),
        (256, "28.44 ±0.00024 MiB"),
        (3 * MIB, "28.44 ±3 MiB"),
        (10 * MIB, "28.44 ±10 MiB"),
        (0.01 * GIB, "28.44 ±0.01"),
        (GIB, "28.44 ±1.00"),
    ],
)
def test_small_ranges_are_not_hidden(half_range: float | None, expected: str) -> None:
    assert gib_with_spread(round(28.4375 * GIB), half_range) == expected
    assert gib_with_spread(None, half_range) == "–"
