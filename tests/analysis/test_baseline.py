"""What training adds over inference, in whole tables."""

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from factories import make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.analysis.baseline import lack_baseline
from dmad_sweep.analysis.table import render
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Accumulation, Phase
from dmad_sweep.units import GIB


def inference(side: int, index: int, **changes: Any) -> Plan:
    plan = make_gpu_plan(1, side, index, phase=Phase("inference"), role="baseline")
    return replace(plan, trial_id=f"baseline-{index}", **changes)


@pytest.fixture
def rows() -> list[Row]:
    """768 has no baseline: it ran out of memory."""
    return [
        row_of(record)
        for record in (
            make_record(make_gpu_plan(1, 512, 0), peak_gib=28.5),
            make_oom(make_gpu_plan(2, 512, 1)),
            make_killed(make_gpu_plan(4, 512, 2)),
            make_record(make_gpu_plan(1, 768, 3), peak_gib=30),
            make_record(inference(512, 0), peak_gib=3.25),
            make_oom(inference(768, 1), stage="student.forward"),
        )
    ]


TERMINAL = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
in a table of its own: phase train
                                                    peak   over                                         itera-
               accu-  effec-                       allo-  base-                        device   head-     tion  data
reso-          mula-    tive             check-    cated   line  peak                    peak    room     time  time  images                      re-
lution  batch   tion   batch  precision  pointing    GiB    GiB  in                       GiB     GiB       ms    ms      /s  overflow            marks
────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512         1      1       1  bf16       none      28.50  25.25  fake_score.optimizer   30.50  109.50  350 ±1%   3.0    2.83  no
512         2      1       2  bf16       none      28.50  25.25  fake_score.optimizer   30.50  109.50        –     –       –  backward OOM        a
                                                                                                                              (student.backward)
512         4      1       4  bf16       none          –      –  –                      30.50  109.50        –     –       –  killed              b
                                                                                                                              (gan.forward)
768         1      1       1  bf16       none      30.00      –  fake_score.optimizer   32.00  108.00  350 ±1%   3.0    2.83  no
a: asked for 58 MiB more when memory ran out
b: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result

sd15, dmd2, inference · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
in a table of its own: phase inference
                                                    peak                                        itera-
               accu-  effec-                       allo-                        device   head-    tion  data
reso-          mula-    tive             check-    cated  peak                    peak    room    time  time  images                                 re-
lution  batch   tion   batch  precision  pointing    GiB  in                       GiB     GiB      ms    ms      /s  overflow                       marks
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512         1      1       1  bf16       none       3.25  fake_score.optimizer    5.25  134.75       –   3.0       –  no
768         1      1       1  bf16       none      28.50  fake_score.optimizer   30.50  109.50       –     –       –  forward OOM (student.forward)  a
a: asked for 58 MiB more when memory ran out

"""

NARROW = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
in a table of its own: phase train
accumulation 1, effective batch as batch, precision bf16, checkpointing none
                peak   over          itera-
               allo-  base-  device    tion  data
reso-          cated   line    peak    time  time  images                re-
lution  batch    GiB    GiB     GiB      ms    ms      /s  overflow      marks
───────────────────────────────────────────────────────────────────────────────
512         1  28.50  25.25   30.50  350±1%   3.0    2.83  no
512         2  28.50  25.25   30.50       –     –       –  backward OOM  a
                                                           (student.
                                                           backward)
512         4      –      –   30.50       –     –       –  killed        b
                                                           (gan.
                                                           forward)
768         1  30.00      –   32.00  350±1%   3.0    2.83  no
a: asked for 58 MiB more when memory ran out
b: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result

sd15, dmd2, inference · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
in a table of its own: phase inference
accumulation 1, effective batch as batch, precision bf16, checkpointing none
                peak          itera-
               allo-  device    tion  data
reso-          cated    peak    time  time  images                     re-
lution  batch    GiB     GiB      ms    ms      /s  overflow           marks
─────────────────────────────────────────────────────────────────────────────
512         1   3.25    5.25       –   3.0       –  no
768         1  28.50   30.50       –     –       –  forward OOM        a
                                                    (student.forward)
a: asked for 58 MiB more when memory ran out

"""

MARKDOWN = """\
**sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130**

in a table of its own: phase train

| resolution | batch | accumulation | effective batch | precision | checkpointing | peak allocated GiB | over baseline GiB | peak in | device peak GiB | headroom GiB | iteration time ms | data time ms | images/s | overflow | remarks |
| --- | ---: | ---: | ---: | --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| 512 | 1 | 1 | 1 | bf16 | none | 28.50 | 25.25 | fake\\_score.optimizer | 30.50 | 109.50 | 350 ±1% | 3.0 | 2.83 | no |  |

**sd15, dmd2, inference · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130**

in a table of its own: phase inference

| resolution | batch | accumulation | effective batch | precision | checkpointing | peak allocated GiB | peak in | device peak GiB | headroom GiB | iteration time ms | data time ms | images/s | overflow | remarks |
| --- | ---: | ---: | ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| 512 | 1 | 1 | 1 | bf16 | none | 3.25 | fake\\_score.optimizer | 5.25 | 134.75 | – | 3.0 | – | no |  |
"""


def test_tables(rows: list[Row]) -> None:
    assert render(rows, "terminal", width=160) == TERMINAL
    assert render(rows, "terminal", width=80) == NARROW
    assert render(rows[:5:4], "markdown") == MARKDOWN


STACKED = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
effective batch = batch × accumulation, precision bf16
                               peak
                              allo-
                              cated
                                  /
                               over        itera-
              accu-           base- device   tion data
reso-         mula- check-     line   peak   time time images              re-
lution  batch  tion pointing    GiB    GiB     ms   ms     /s overflow     marks
────────────────────────────────────────────────────────────────────────────────
512         1    16 none      28.50  30.50    350  3.0   45.3 no
                              25.25           ±1%
512         2     1 none      28.50  30.50      –    –      – backward OOM a
                              25.25                           (student.
                                                              backward)
512x768     1     1 trainable 30.00  32.00    350  3.0   2.83 no
                                  –           ±1%
a: asked for 58 MiB more when memory ran out

"""


def test_where_it_is_narrowest_both_peaks_share_a_column(rows: list[Row]) -> None:
    first = row_of(make_record(make_gpu_plan(1, 512, 0, accumulation=Accumulation(16))))
    last = replace(rows[3], height=512, width=768, resolution="512x768", checkpointing="trainable")
    assert render([first, rows[1], last], "terminal", width=80, baselines=[rows[4]]) == STACKED


def test_no_column_without_a_baseline(rows: list[Row]) -> None:
    assert "over" not in render(rows[:4], "markdown").replace("overflow", "")


def over(rows: list[Row], baselines: list[Row]) -> list[str]:
    lines = csv.DictReader(io.StringIO(render(rows, "csv", baselines=baselines)))
    return [line["over_baseline_gib"] for line in lines]


def test_a_baseline_of_another_sweep_is_subtracted_and_not_shown(rows: list[Row]) -> None:
    elsewhere = replace(rows[4], sweep="earlier")
    assert over(rows[:4], [elsewhere]) == ["25.25", "25.25", "", ""]
    shown = render(rows[:1], "markdown", baselines=[elsewhere])
    assert "| 28.50 | 25.25 |" in shown
    assert "inference" not in shown


@pytest.mark.parametrize(
    "change",
    [
        {"model": "sdxl"},
        {"pretrained": "/models/mine"},
        {"precision": "fp32"},
        {"height": 256},
        {"attention": "math"},
        {"device_name": "NVIDIA L4"},
        {"memory_limit_bytes": 24 * GIB},
        {"driver": "570.2"},
        {"torch": "2.10.0"},
        {"code": "beef"},
    ],
)
def test_what_is_not_comparable_is_not_subtracted(change: dict[str, Any], rows: list[Row]) -> None:
    assert over(rows[:1], [replace(rows[4], **change)]) == [""]
    assert lack_baseline([rows[0], replace(rows[4], **change)])


def test_the_same_sweeps_baseline_counts_before_the_latest_and_its_highest_repeat(rows: list[Row]) -> None:
    training, own = rows[0], rows[4]
    older = replace(own, sweep="older", started_at=1.0, peak_allocated_bytes=1 * GIB)
    newer = replace(own, sweep="newer", started_at=9e9, peak_allocated_bytes=2 * GIB)
    repeat = replace(own, trial_id="again", repeat=1, peak_allocated_bytes=4 * GIB)
    assert over([training], [older, newer]) == ["26.5"]
    assert over([training], [own, newer, repeat]) == ["24.5"]


def test_when_baselines_of_other_sweeps_are_worth_a_look(rows: list[Row]) -> None:
    assert lack_baseline(rows)
    assert not lack_baseline([rows[0], rows[1], rows[2], rows[4], rows[5]])
    assert not lack_baseline(rows[4:])
