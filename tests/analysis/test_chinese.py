"""Every sentence that people read has a Chinese one, and tables in it line up."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import make_cpu_record, make_gpu_plan, make_killed, make_oom, make_record
from rich.cells import cell_len

import dmad_sweep
from dmad_sweep.analysis.chinese import CHINESE
from dmad_sweep.analysis.columns import OVER_BASELINE, REMARKS_TITLE, VIEWS, stacked
from dmad_sweep.analysis.grouping import COMPARABLE
from dmad_sweep.analysis.knobs import KNOBS
from dmad_sweep.analysis.language import speaking, tr
from dmad_sweep.analysis.plots.draw import KINDS
from dmad_sweep.analysis.plots.makeup import PARTS
from dmad_sweep.analysis.remarks import OF_A_ROW, OF_A_TABLE
from dmad_sweep.analysis.table import render
from dmad_sweep.analysis.text import overflow
from dmad_sweep.analysis.typography import unbroken
from dmad_sweep.analysis.variation import AXES, BEHIND, DEFAULT
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Target

TITLES = [unbroken(column.title) for view in VIEWS.values() for column in [*view, *stacked(view)]]

COMPUTED = {
    "english": [*TITLES, unbroken(REMARKS_TITLE)],
    "unbroken(self.title)": [],
    "title": ["accumulation", "precision", "checkpointing", *(title for _, title in KINDS.values())],
    "knob": KNOBS,
    "name": [*COMPARABLE, *AXES],
    "part": PARTS,
    "difference.variable": [*AXES, *COMPARABLE, *BEHIND],
    "value": [DEFAULT],
    "sentence": [*OF_A_TABLE.values()],
    "text": [*OF_A_TABLE.values(), *OF_A_ROW.values()],
    "row.status": ["invalid", "timeout", "killed", "failed"],
    "f'{kind_of(row.died_stage)} OOM'": ["forward OOM", "backward OOM", "optimizer OOM"],
}
"""Arguments of `tr` that are no literals, by their source, and what they can be."""


def arguments_of_tr() -> Iterator[tuple[str, ast.expr]]:
    for file in sorted(Path(dmad_sweep.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tr":
                yield f"{file.name}:{node.lineno}", node.args[0]


def templates() -> set[str]:
    found = set[str]()
    for _, argument in arguments_of_tr():
        if isinstance(argument, ast.Constant):
            found.add(str(argument.value))
        else:
            found.update(COMPUTED[ast.unparse(argument)])
    return found


def placeholders(template: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_what_is_computed_is_known_here() -> None:
    unknown = [
        f"{where}: {ast.unparse(argument)}"
        for where, argument in arguments_of_tr()
        if not isinstance(argument, ast.Constant) and ast.unparse(argument) not in COMPUTED
    ]
    assert unknown == []


@pytest.mark.parametrize("template", sorted(templates()))
def test_every_template_is_translated_with_its_values(template: str) -> None:
    assert placeholders(CHINESE[template]) == placeholders(template)


def test_nothing_is_translated_that_nobody_says() -> None:
    assert CHINESE.keys() - templates() == set()


@pytest.mark.parametrize(
    ("stage", "cycle", "expected"),
    [
        ("load", 0, "加载 OOM"),
        ("scores.forward", 1, "前向 OOM (scores.forward)"),
        ("student.backward", 1, "反向 OOM (student.backward)"),
        ("fake_score.optimizer", 1, "优化器 OOM (fake_score.optimizer)"),
        ("student.forward", 3, "第 3 步 OOM (student.forward)"),
    ],
)
def test_overflow(stage: str, cycle: int, expected: str) -> None:
    with speaking("zh"):
        assert overflow(row_of(make_oom(stage=stage, cycle=cycle))) == expected
        assert overflow(row_of(make_record())) == "否"
    assert tr("no") == "no"


@pytest.fixture
def rows() -> list[Row]:
    records = [
        make_record(make_gpu_plan(1, 512, 0)),
        make_record(make_gpu_plan(2, 512, 1), peak_gib=60.0),
        make_oom(make_gpu_plan(4, 512, 2)),
        make_killed(make_gpu_plan(1, 768, 3)),
    ]
    return [row_of(record) for record in records]


ROOMY = """\
sd15, dmd2, train · NVIDIA H200，140.00 GiB · torch 2.11.0+cu130
                                                峰值                         设备             迭代  数据
                        等效                  已分配  峰值                   峰值    余量     时间  等待  图像  峰值比       时间比
分辨率  批量  累积步数  批量  精度  激活重算     GiB  阶段                    GiB     GiB       ms    ms   /秒  上一行       上一行  溢出                         备注
───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
512        1         1     1  bf16  none       28.50  fake_score.optimizer  30.50  109.50  350 ±1%   3.0  2.83       –            –  否
512        2         1     2  bf16  none       60.00  fake_score.optimizer  62.00   78.00  350 ±1%   3.0  5.67   ×2.11  ×1.00 ±0.01  否
512        4         1     4  bf16  none       28.50  fake_score.optimizer  30.50  109.50        –     –     –       –            –  反向 OOM (student.backward)  a
768        1         1     1  bf16  none           –  –                     30.50  109.50        –     –     –       –            –  被终止 (gan.forward)         b
a: 显存耗尽时还在申请 58 MiB
b: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result

• 批量 4、分辨率 512 在首次反向时显存不足：压力来自激活，应减小批量或增加重算。按单位时间代价节省的显存排序：1. batch=2 (实测：60.00 GiB); 2. checkpointing=trainable
  (尚未测量)

"""

NARROW = """\
sd15, dmd2, train · NVIDIA H200，140.00 GiB · torch 2.11.0+cu130
累积步数 1, 等效批量与批量相同, 精度 bf16, 激活重算 none
                峰值   设备     迭代  数据
              已分配   峰值     时间  等待  图像
分辨率  批量     GiB    GiB       ms    ms   /秒  溢出                备注
───────────────────────────────────────────────────────────────────────────
512        1   28.50  30.50  350 ±1%   3.0  2.83  否
512        2   60.00  62.00  350 ±1%   3.0  5.67  否
512        4   28.50  30.50        –     –     –  反向 OOM            a
                                                  (student.backward)
768        1       –  30.50        –     –     –  被终止              b
                                                  (gan.forward)
a: 显存耗尽时还在申请 58 MiB
b: ended by SIGKILL in gan.forward, cycle 2 of 5: it left no result

• 批量 4、分辨率 512
  在首次反向时显存不足：压力来自激活，应减小批量或增加重算。按单位时间代价节省的
  显存排序：1. batch=2 (实测：60.00 GiB); 2. checkpointing=trainable (尚未测量)

"""

MARKDOWN = """\
**sd15, dmd2, train · NVIDIA H200，140.00 GiB · torch 2.11.0+cu130**

| 分辨率 | 批量 | 累积步数 | 等效批量 | 精度 | 激活重算 | 峰值已分配 GiB | 峰值阶段 | 设备峰值 GiB | 余量 GiB | 迭代时间 ms | 数据等待 ms | 图像/秒 | 溢出 | 备注 |
| --- | ---: | ---: | ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |
| 512 | 1 | 1 | 1 | bf16 | none | 28.50 | fake\\_score.optimizer | 30.50 | 109.50 | 350 ±1% | 3.0 | 2.83 | 否 |  |
| 512 | 4 | 1 | 4 | bf16 | none | 28.50 | fake\\_score.optimizer | 30.50 | 109.50 | – | – | – | 反向 OOM (student.backward) | a |

- a: 显存耗尽时还在申请 58 MiB

- 批量 4、分辨率 512 在首次反向时显存不足：压力来自激活，应减小批量或增加重算。按单位时间代价节省的显存排序：1. batch=1 (实测：28.50 GiB); 2. checkpointing=trainable (尚未测量)
"""


@pytest.mark.parametrize(("width", "expected"), [(170, ROOMY), (80, NARROW)])
def test_a_whole_table(width: int, expected: str, rows: list[Row]) -> None:
    assert render(rows, "terminal", language="zh", width=width, target=Target()) == expected


def test_a_whole_markdown(rows: list[Row]) -> None:
    assert render(rows[::2], "markdown", language="zh", target=Target()) == MARKDOWN


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [100, 140, 200])
def test_columns_line_up_where_characters_are_two_cells_wide(view: str, width: int, rows: list[Row]) -> None:
    lines = render(rows, "terminal", view=view, language="zh", width=width).splitlines()
    rule = next(line for line in lines if line.startswith("──"))
    position = cell_len(next(line for line in lines if "溢出" in line).partition("溢出")[0])
    body = lines[lines.index(rule) + 1 :]
    assert cell_len(rule) <= width
    for said in ("否", "反向 OOM", "被终止"):
        assert {cell_len(line.partition(said)[0]) for line in body if f" {said}" in line} == {position}


def test_programs_read_english_in_any_language(rows: list[Row]) -> None:
    for style in ("csv", "json"):
        assert render(rows, style, language="zh") == render(rows, style)


def test_a_cpu_and_its_baseline(rows: list[Row]) -> None:
    assert OVER_BASELINE.plain_title == "over baseline GiB"
    shown = render([row_of(make_cpu_record())], "markdown", language="zh")
    assert "- 峰值是进程内存超出启动时的部分：CPU 没有可查询的分配器" in shown
