"""Whole tables at a fixed width."""

import csv
import io
from dataclasses import replace

import pytest
from factories import make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.analysis.table import render
from dmad_sweep.analysis.text import amount, overflow
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Accumulation, Precision


@pytest.fixture
def rows() -> list[Row]:
    """Out of order on purpose."""
    return [
        row_of(record)
        for record in (
            make_oom(make_gpu_plan(4, 768, 5)),
            make_record(make_gpu_plan(1, 512, 0)),
            make_record(make_gpu_plan(2, 512, 1), peak_gib=29.25),
            make_oom(make_gpu_plan(4, 512, 2), stage="fake_score.optimizer", cycle=3, certain=False),
            make_killed(make_gpu_plan(1, 768, 3)),
            make_failed(make_gpu_plan(2, 768, 4)),
        )
    ]


WIDE = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
               accu-  effec-                              device   itera-
reso-          mula-    tive             check-     peak    peak     tion  data  images                                     re-
lution  batch   tion   batch  precision  pointing    GiB     GiB       ms    ms      /s  overflow                           marks
──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512         1      1       1  bf16       none      28.50   30.50  350 ±1%   3.0    2.83  no
512         2      1       2  bf16       none      29.25   31.25  350 ±1%   3.0    5.67  no
512         4      1       4  bf16       none      28.50   30.50        –     –       –  step-3 OOM (fake_score.optimizer)  a b
768         1      1       1  bf16       none          –   30.50        –     –       –  killed (gan.forward)               c
768         2      1       2  bf16       none          –   30.50        –     –       –  failed (load)                      d
768         4      1       4  bf16       none      28.50   30.50        –     –       –  backward OOM (student.backward)    b
a: probably out of memory: the library's error does not say so for certain
b: asked for 58 MiB more when memory ran out
c: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result
d: KeyError: 'unet' second line

"""

NARROW = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
accumulation 1, effective batch as batch, precision bf16, checkpointing none
                      device  itera-
reso-           peak    peak    tion  data  images                re-
lution  batch    GiB     GiB      ms    ms      /s  overflow      marks
────────────────────────────────────────────────────────────────────────
512         1  28.50   30.50  350±1%   3.0    2.83  no
512         2  29.25   31.25  350±1%   3.0    5.67  no
512         4  28.50   30.50       –     –       –  step-3 OOM    a b
                                                    (fake_score.
                                                    optimizer)
768         1      –   30.50       –     –       –  killed        c
                                                    (gan.
                                                    forward)
768         2      –   30.50       –     –       –  failed        d
                                                    (load)
768         4  28.50   30.50       –     –       –  backward OOM  b
                                                    (student.
                                                    backward)
a: probably out of memory: the library's error does not say so for certain
b: asked for 58 MiB more when memory ran out
c: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result
d: KeyError: 'unet' second line

"""

MARKDOWN = """\
**sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130**

| resolution | batch | accumulation | effective batch | precision | checkpointing | peak GiB | device peak GiB | \
iteration ms | data ms | images/s | overflow | remarks |
|---|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---|---|
| 512 | 1 | 1 | 1 | bf16 | none | 28.50 | 30.50 | 350 ±1% | 3.0 | 2.83 | no |  |
| 768 | 4 | 1 | 4 | bf16 | none | 28.50 | 30.50 | – | – | – | backward OOM (student.backward) | a |

- a: asked for 58 MiB more when memory ran out
"""


def test_a_wide_terminal_shows_every_column(rows: list[Row]) -> None:
    assert render(rows, "terminal", width=140) == WIDE


def test_a_narrow_terminal_says_above_what_all_rows_share(rows: list[Row]) -> None:
    assert render(rows, "terminal", width=80) == NARROW


def test_no_column_is_dropped_whose_values_differ(rows: list[Row]) -> None:
    rows[1] = row_of(make_record(make_gpu_plan(1, 512, 0, accumulation=Accumulation(4))))
    shown = render(rows, "terminal", width=80)
    assert "accu-" in shown
    assert "effective batch = batch × accumulation" in shown
    assert "…" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_markdown(rows: list[Row]) -> None:
    assert render([rows[1], rows[0]], "markdown") == MARKDOWN


def test_csv_holds_every_row_and_says_nothing_where_nothing_was_measured(rows: list[Row]) -> None:
    table = list(csv.DictReader(io.StringIO(render(rows, "csv"))))
    assert [(line["resolution"], line["batch"]) for line in table] == [
        ("512", "1"), ("512", "2"), ("512", "4"), ("768", "1"), ("768", "2"), ("768", "4"),
    ]  # fmt: skip
    assert table[0]["peak_allocated_gib"] == "28.5"
    assert float(table[0]["iteration_ms"]) == pytest.approx(350)
    assert table[3]["peak_allocated_gib"] == ""
    assert table[5]["overflow"] == "backward OOM (student.backward)"


def test_what_may_not_be_compared_stands_in_tables_of_its_own(rows: list[Row]) -> None:
    fp32 = make_gpu_plan(1, 512, 7)
    fp32 = replace(fp32, precision=Precision(name="fp32", frozen="float32", autocast=None))
    other = replace(row_of(make_record(fp32)), code="beef")
    shown = render([*rows, other], "markdown")
    assert shown.count("| resolution |") == 2
    assert "In a table of its own: precision bf16, code c0de." in shown
    assert "In a table of its own: precision fp32, code beef." in shown


@pytest.mark.parametrize(
    ("stage", "cycle", "expected"),
    [
        ("load", 0, "load OOM (load)"),
        ("data.encode", 0, "data.encode OOM (data.encode)"),
        ("student.forward", 1, "forward OOM (student.forward)"),
        ("scores.forward", 1, "forward OOM (scores.forward)"),
        ("student.sample", 1, "forward OOM (student.sample)"),
        ("fake_score.backward", 1, "backward OOM (fake_score.backward)"),
        ("student.optimizer", 1, "optimizer OOM (student.optimizer)"),
        ("student.forward", 2, "step-2 OOM (student.forward)"),
    ],
)
def test_overflow(stage: str, cycle: int, expected: str) -> None:
    assert overflow(row_of(make_oom(stage=stage, cycle=cycle))) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(512, "512 bytes"), (58 * 2**20, "58 MiB"), (3 * 2**29, "1.5 GiB")]
)
def test_amount(size: int, expected: str) -> None:
    assert amount(size) == expected
