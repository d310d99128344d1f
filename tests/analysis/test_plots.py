"""Plots show the rows that they are given, in both languages, and never what was not measured."""

import logging
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from io import BytesIO

import pytest
from factories import make_cpu_record, make_gpu_plan, make_oom, make_record
from PIL import Image

from dmad_sweep.analysis.language import speaking
from dmad_sweep.analysis.plots import style
from dmad_sweep.analysis.plots.against_batch import draw_peaks, draw_times
from dmad_sweep.analysis.plots.draw import plots_of
from dmad_sweep.analysis.plots.makeup import draw_makeup
from dmad_sweep.analysis.plots.pareto import draw_pareto, front
from dmad_sweep.analysis.table import tables
from dmad_sweep.analysis.table_row import TableRow
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import Spread, row_of
from dmad_sweep.records.settings import Checkpointing

MANY = [
    make_record(make_gpu_plan(1, 512, 0)),
    make_record(make_gpu_plan(2, 512, 1), peak_gib=60.0),
    make_oom(make_gpu_plan(4, 512, 2)),
    make_record(make_gpu_plan(1, 768, 3), peak_gib=90.0),
    make_oom(make_gpu_plan(4, 768, 4)),
]


def lines_of(*records: Record) -> tuple[TableRow, ...]:
    (group,) = tables([row_of(record) for record in records])
    return group.rows


def test_peaks_stand_where_they_were_measured_and_deaths_at_the_limit() -> None:
    figure = draw_peaks(lines_of(*MANY))
    assert figure is not None
    points = {
        (round(float(x)), round(float(y), 2), line.get_marker())
        for line in figure.axes[0].get_lines()
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        if line.get_marker() in ("o", "s", "x")
    }
    assert points == {
        (1, 28.5, "o"), (2, 60.0, "o"), (1, 90.0, "s"), (4, 140.0, "x"),
    }  # fmt: skip
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "out of memory, at the limit", "512", "768",
    ]  # fmt: skip
    assert "limit of the card: 140.00 GiB" in [text.get_text() for text in figure.axes[0].texts]


def test_times_have_their_range() -> None:
    figure = draw_times(lines_of(MANY[0]))
    assert figure is not None
    (bar,) = figure.axes[0].collections
    ((low, high),) = bar.get_segments()
    assert (low[1], high[1]) == pytest.approx((349.0, 353.0))


def test_the_front_holds_what_none_beats() -> None:
    small, middle, large, worse = lines_of(
        make_record(make_gpu_plan(1, 512, 0)),
        make_record(make_gpu_plan(2, 512, 1), peak_gib=30.0),
        make_record(make_gpu_plan(4, 512, 2), peak_gib=31.0),
        make_record(make_gpu_plan(8, 512, 3), peak_gib=60.0),
    )
    worse = replace(worse, images_per_s=middle.images_per_s)
    assert front([worse, large, middle, small]) == [small, middle, large]
    assert front([replace(small, images_per_s=None)]) == []
    figure = draw_pareto([small, middle, large, worse])
    assert figure is not None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][-3:] == ["1: batch 1", "2: batch 2", "3: batch 4"]


def test_the_parts_add_up_to_what_was_counted() -> None:
    rows = lines_of(*MANY)
    figure = draw_makeup(rows)
    assert figure is not None
    (axes,) = figure.axes
    ends = [max(bar[i].get_x() + bar[i].get_width() for bar in axes.containers) for i in range(3)]
    counted = [row.anatomy.counted_bytes / 2**30 for row in rows if row.anatomy]
    assert ends == pytest.approx(counted)
    assert len({bar[0].get_hatch() for bar in axes.containers}) == len(axes.containers)


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ([make_record()], 4),
        ([make_oom()], 1),
        ([make_oom(), make_oom(make_gpu_plan(2, 512, 1))], 1),
        ([make_cpu_record()], 4),
        (MANY, 4),
        (
            [make_record(make_gpu_plan(2**i, 512, i, checkpointing=Checkpointing(str(i)))) for i in range(9)],
            4,
        ),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_whatever_there_is_to_draw(records: list[Record], kinds: int, language: str) -> None:
    with speaking(language):
        plots = plots_of(tables([row_of(record) for record in records]), png=True)
    assert len(plots) == kinds
    for plot in plots:
        assert ElementTree.fromstring(plot.svg).tag.endswith("svg")
        assert plot.png is not None
        width, height = Image.open(BytesIO(plot.png)).size
        assert width > 1000
        assert height > 250


def test_plots_of_several_tables_have_names_of_their_own() -> None:
    rows = [row_of(MANY[0]), replace(row_of(MANY[1]), precision="fp32")]
    plots = plots_of(tables(rows))
    assert len({plot.name for plot in plots}) == 8
    assert [plot.table for plot in plots] == [0] * 4 + [1] * 4


def test_without_a_chinese_font_labels_are_english_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(style, "CHINESE_FONTS", ("no such font",))
    with speaking("zh"), caplog.at_level(logging.WARNING), style.drawing("salt"):
        figure = draw_times(
            [replace(row, iteration_s=Spread(median=1, low=1, high=1)) for row in lines_of(MANY[0])]
        )
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "micro-batch"
    assert "apt-get install fonts-noto-cjk" in caplog.text


def test_the_same_rows_make_the_same_files() -> None:
    groups = tables([row_of(record) for record in MANY])
    assert plots_of(groups) == plots_of(groups)
