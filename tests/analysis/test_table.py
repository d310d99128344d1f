"""Whole tables at a fixed width."""

import csv
import io
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from factories import CARD, make_cpu_record, make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.analysis.grouping import grouped
from dmad_sweep.analysis.table import render
from dmad_sweep.analysis.text import amount, overflow
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Accumulation, Precision
from dmad_sweep.units import GIB


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


ROOMY = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
                                                                           peak  device  iteration  data
                                 effective                            allocated    peak       time  time  images
resolution  batch  accumulation      batch  precision  checkpointing        GiB     GiB         ms    ms      /s  overflow                           remarks
─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512             1             1          1  bf16       none               28.50   30.50    350 ±1%   3.0    2.83  no
512             2             1          2  bf16       none               29.25   31.25    350 ±1%   3.0    5.67  no
512             4             1          4  bf16       none               28.50   30.50          –     –       –  step-3 OOM (fake_score.optimizer)  a b
768             1             1          1  bf16       none                   –   30.50          –     –       –  killed (gan.forward)               c
768             2             1          2  bf16       none                   –   30.50          –     –       –  failed (load)                      d
768             4             1          4  bf16       none               28.50   30.50          –     –       –  backward OOM (student.backward)    b
a: probably out of memory: the library's error does not say so for certain
b: asked for 58 MiB more when memory ran out
c: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result
d: KeyError: 'unet' second line

"""

WIDE = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
                                                    peak           itera-
               accu-  effec-                       allo-  device     tion  data
reso-          mula-    tive             check-    cated    peak     time  time  images                                     re-
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
effective batch as batch, precision bf16, checkpointing none
                       peak          itera-
               accu-  allo-  device    tion  data
reso-          mula-  cated    peak    time  time  images                re-
lution  batch   tion    GiB     GiB      ms    ms      /s  overflow      marks
───────────────────────────────────────────────────────────────────────────────
512         1      1  28.50   30.50  350±1%   3.0    2.83  no
512         2      1  29.25   31.25  350±1%   3.0    5.67  no
512         4      1  28.50   30.50       –     –       –  step-3 OOM    a b
                                                           (fake_score.
                                                           optimizer)
768         1      1      –   30.50       –     –       –  killed        c
                                                           (gan.
                                                           forward)
768         2      1      –   30.50       –     –       –  failed        d
                                                           (load)
768         4      1  28.50   30.50       –     –       –  backward OOM  b
                                                           (student.
                                                           backward)
a: probably out of memory: the library's error does not say so for certain
b: asked for 58 MiB more when memory ran out
c: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result
d: KeyError: 'unet' second line

"""

MARKDOWN = """\
**sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130**

| resolution | batch | accumulation | effective batch | precision | checkpointing | peak allocated GiB | peak in | device peak GiB | headroom GiB | iteration time ms | data time ms | images/s | overflow | remarks |
| --- | ---: | ---: | ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| 512 | 1 | 1 | 1 | bf16 | none | 28.50 | fake\\_score.optimizer | 30.50 | 109.50 | 350 ±1% | 3.0 | 2.83 | no |  |
| 768 | 4 | 1 | 4 | bf16 | none | 28.50 | fake\\_score.optimizer | 30.50 | 109.50 | – | – | – | backward OOM (student.backward) | a |

- a: asked for 58 MiB more when memory ran out
"""

MEMORY = """\
sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130
effective batch as batch, precision bf16, checkpointing none
                    peak                                            frag-
             accu- allo-                       gra-          acti-   men-             un- device
reso-        mula- cated peak        weights dients states vations tation context     ex-   peak              re-
lution batch  tion   GiB in              GiB    GiB    GiB     GiB    GiB     GiB plained    GiB overflow     marks
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512        1     1 28.50 fake_score.    8.00   3.00  13.00    4.25   1.00   0.750    1.6%  30.50 no
                         optimizer
512        2     1 29.25 fake_score.    8.00   3.00  13.00    5.00   1.00   0.750    1.6%  31.25 no
                         optimizer
768        4     1 28.50 fake_score.       –      –      –       –      –       –       –  30.50 backward OOM a
                         optimizer                                                               (student.
                                                                                                 backward)
a: asked for 58 MiB more when memory ran out

"""

CSV = """\
sweep,trial_id,role,index,repeat,status,model,recipe,student_update_freq,phase,data,resolution,height,width,batch,accumulation,effective_batch,precision,checkpointing,adapter,attention,optimizer,ema,device_name,torch,driver,code,device_total_gib,memory_limit_gib,peak_allocated_gib,peak_reserved_gib,device_peak_gib,after_load_gib,first_forward_gib,first_backward_gib,headroom_gib,iteration_ms,student_turn_ms,fake_score_turn_ms,data_ms,enqueue_share,unexplained_gib,floor_gib,images_per_s,peak_ratio,time_ratio,grown_with,over_baseline_gib,iteration_low_ms,iteration_high_ms,peak_stage,weight_gib,gradient_gib,state_gib,activation_gib,fragmentation_gib,context_gib,peak_cycle,overflow,died_stage,died_cycle,oom_requested_bytes,verdict,gradient_l2,reused_from,remarks
test,0000000000000000,combination,0,0,ok,sd15,dmd2,10,train,synthetic,512,512,512,1,1,1,bf16,none,full,auto,adamw,none,NVIDIA H200,2.11.0+cu130,580.1,c0de,140.0,,28.5,29.5,30.5,8.0,11.0,12.0,109.5,350.0,300.0,320.0,3.0,0.5,0.5,5.960464477539063e-08,2.8328611898017,,,,,349.0,353.0,fake_score.optimizer,8.0,3.0,13.0,4.25,1.0,0.75,2,no,,,,,,,
test,0000000000000005,combination,5,0,oom,sd15,dmd2,10,train,synthetic,768,768,768,4,1,4,bf16,none,full,auto,adamw,none,NVIDIA H200,2.11.0+cu130,580.1,c0de,140.0,,28.5,29.5,30.5,8.0,11.0,12.0,109.5,,,,,,,5.960464477539063e-08,,,,,,,,fake_score.optimizer,,,,,,,2,backward OOM (student.backward),student.backward,1,60817408,,,,asked for 58 MiB more when memory ran out
"""


@pytest.mark.parametrize(("width", "expected"), [(160, ROOMY), (140, WIDE), (80, NARROW), (20, NARROW)])
def test_a_terminal_gets_the_fullest_table_that_fits(width: int, expected: str, rows: list[Row]) -> None:
    assert render(rows, "terminal", width=width) == expected


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 130, 150, 200])
def test_no_width_is_exceeded_and_no_word_cut(width: int, rows: list[Row]) -> None:
    rows[1] = replace(rows[1], checkpointing="trainable", height=512, width=768, resolution="512x768")
    rows[2] = row_of(make_record(make_gpu_plan(1, 512, 1, accumulation=Accumulation(16))))
    lines = render(rows, "terminal", width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    assert all(word in " ".join(lines) for word in ("512x768", "trainable", "16", "marks"))


def test_no_column_is_dropped_whose_values_differ(rows: list[Row]) -> None:
    rows[1] = row_of(make_record(make_gpu_plan(1, 512, 0, accumulation=Accumulation(4))))
    shown = render(rows, "terminal", width=80)
    assert "accu-" in shown
    assert "effective batch = batch × accumulation" in shown
    assert "…" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_markdown(rows: list[Row]) -> None:
    assert render(rows[:2], "markdown") == MARKDOWN


def test_a_setting_has_a_column_where_some_row_differs_from_the_default(rows: list[Row]) -> None:
    rows[1] = replace(rows[1], optimizer="adamw_fused")
    shown = render(rows, "markdown")
    assert "| checkpointing | optimizer | peak allocated GiB |" in shown
    assert "| none | adamw\\_fused | 28.50 |" in shown
    assert "attention" not in shown
    assert "ema" not in shown.replace("remarks", "")


def test_what_the_peaks_are_made_of(rows: list[Row]) -> None:
    measured = [row for row in rows if row.index in (0, 1, 5)]
    assert render(measured, "terminal", view="memory", width=120) == MEMORY
    markdown = render(measured, "markdown", view="memory")
    assert "| peak allocated GiB | peak in | weights GiB | gradients GiB | states GiB |" in markdown


def test_csv(rows: list[Row]) -> None:
    assert render(rows[:2], "csv") == CSV


def test_csv_holds_every_row_and_says_nothing_where_nothing_was_measured(rows: list[Row]) -> None:
    table = list(csv.DictReader(io.StringIO(render(rows, "csv"))))
    assert [(line["resolution"], line["batch"]) for line in table] == [
        ("512", "1"), ("512", "2"), ("512", "4"), ("768", "1"), ("768", "2"), ("768", "4"),
    ]  # fmt: skip
    assert table[0]["peak_allocated_gib"] == "28.5"
    assert float(table[0]["iteration_ms"]) == pytest.approx(350)
    assert table[3]["peak_allocated_gib"] == ""
    assert table[3]["device_peak_gib"] == "30.5"
    assert [(line["status"], line["died_stage"], line["died_cycle"]) for line in table[2:4]] == [
        ("oom", "fake_score.optimizer", "3"),
        ("killed", "gan.forward", "2"),
    ]
    assert table[5]["overflow"] == "backward OOM (student.backward)"


def test_what_may_not_be_compared_stands_in_tables_of_its_own(rows: list[Row]) -> None:
    fp32 = make_gpu_plan(1, 512, 7)
    fp32 = replace(fp32, precision=Precision(name="fp32", frozen="float32", autocast=None))
    other = replace(row_of(make_record(fp32)), code="beef")
    shown = render([*rows, other], "markdown")
    assert shown.count("| resolution |") == 2
    assert "in a table of its own: precision bf16, code c0de\n" in shown
    assert "in a table of its own: precision fp32, code beef\n" in shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device_name": "NVIDIA L4"}, "device NVIDIA L4 with 140.00 GiB"),
        ({"memory_limit_bytes": 24 * GIB}, "device NVIDIA H200 with 140.00 GiB limited to 24.00 GiB"),
        ({"driver": "570.2"}, "driver 570.2"),
        ({"torch": "2.10.0"}, "torch 2.10.0"),
        ({"precision": "fp32"}, "precision fp32"),
        ({"recipe": "fastgen"}, "recipe fastgen"),
        ({"student_update_freq": 5}, "student_update_freq 5"),
        ({"model": "sdxl"}, "model sdxl"),
        ({"phase": "inference"}, "phase inference"),
        ({"data": "images"}, "data images"),
        ({"code": "beef"}, "code beef"),
    ],
)
def test_whatever_sets_rows_apart_is_named(change: dict[str, Any], said: str, rows: list[Row]) -> None:
    first, second = grouped([rows[1], replace(rows[2], **change)])
    assert first.apart is not None
    assert second.apart == said


def test_a_trial_that_never_saw_torch_stays_with_its_sweep(rows: list[Row]) -> None:
    assert rows[4].torch is None
    (group,) = grouped([rows[4], rows[1]])
    assert group.apart is None


@pytest.mark.parametrize(
    ("stage", "cycle", "expected"),
    [
        ("load", 0, "load OOM"),
        ("data.encode", 0, "load OOM (data.encode)"),
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


def test_an_overflow_whose_stage_nobody_saw() -> None:
    row = replace(row_of(make_oom()), died_stage=None, died_cycle=None)
    assert overflow(row) == "OOM"
    assert overflow(replace(row, status="timeout")) == "timeout"


def test_what_belongs_to_the_device_is_said_of_the_whole_table() -> None:
    rows = [
        row_of(make_cpu_record()),
        row_of(make_failed(replace(make_cpu_record().plan, trial_id="other", index=1))),
    ]
    rows[1] = replace(rows[1], driver=None)
    assert rows[1].peak_allocated_bytes is None
    shown = render(rows, "terminal", width=120)
    assert "\npeak is the process's memory above its start: a CPU has no allocator to ask\n" in shown
    assert "\na: KeyError: 'unet' second line\n" in shown


def test_an_emulated_card_is_named_above_the_table() -> None:
    emulated = replace(CARD, memory_limit_bytes=24 * GIB)
    shown = render([row_of(make_record(replace(make_gpu_plan(), device=emulated)))], "terminal", width=120)
    assert shown.startswith("sd15, dmd2, train · NVIDIA H200 with 140.00 GiB limited to 24.00 GiB · ")
    assert "\non an emulated card: " in shown


def test_names_and_messages_are_neither_markup_nor_commands(rows: list[Row]) -> None:
    odd = replace(rows[1], checkpointing="[red]a|b[/] :smile:", explanation="\x1b[2J\r<b>[/nope]*")
    terminal, markdown = render([odd], "terminal", width=160), render([odd], "markdown")
    assert "[red]a|b[/] :smile:" in terminal
    assert "\n[2J <b>[/nope]*\n" in terminal
    assert "| [red]a&#124;b[/] :smile: |" in markdown
    assert "\n- [2J &lt;b&gt;[/nope]\\*\n" in markdown
    assert "\x1b" not in terminal + markdown + render([odd], "csv")


def test_colours_only_when_asked(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = render(rows, "terminal", width=140, colour=True)
    assert "\x1b[31m" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == WIDE.splitlines()


def test_no_rows_make_no_table() -> None:
    assert render([], "terminal") == render([], "markdown") == ""
    assert render([], "csv").count("\n") == 1


def test_csv_and_markdown_do_without_rich() -> None:
    code = (
        "import sys; from dmad_sweep.analysis.table import render; "
        "render([], 'csv'), render([], 'markdown'); assert 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("size", "expected"), [(512, "512 bytes"), (58 * 2**20, "58 MiB"), (3 * 2**29, "1.5 GiB")]
)
def test_amount(size: int, expected: str) -> None:
    assert amount(size) == expected
