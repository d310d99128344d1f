"""The report for browsers and for other programs."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from factories import make_gpu_plan, make_oom, make_record

from dmad_sweep.analysis.spreadsheet import FIELDS
from dmad_sweep.analysis.table import render
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.records.settings import Target

HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}</title><img src=x onerror=alert(2)>"


@pytest.fixture
def rows() -> list[Row]:
    return [
        row_of(record)
        for record in (
            make_record(make_gpu_plan(1, 512, 0)),
            make_record(make_gpu_plan(2, 512, 1), peak_gib=60.0),
            make_oom(make_gpu_plan(4, 512, 2)),
        )
    ]


class Page(HTMLParser):
    """Every element with its attributes, and all text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.said.append(data.strip())


def test_the_page_has_tables_plots_and_advice(rows: list[Row]) -> None:
    page = Page(render(rows, "html", target=Target()))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == 1
    assert tags.count("svg") == 4
    assert "sd15, dmd2, train · NVIDIA H200 with 140.00 GiB · torch 2.11.0+cu130" in page.said
    assert "backward OOM (student.backward)" in page.said
    assert "what to change" in page.said
    assert any("ran out of memory in a first backward" in said for said in page.said)
    keys = [attrs["data-key"] for tag, attrs in page.elements if tag == "td" and "data-key" in attrs]
    assert {"28.5", "60.0", "262144", "350.0"} <= set(keys)


def test_the_page_speaks_chinese(rows: list[Row]) -> None:
    text = render(rows, "html", language="zh", target=Target())
    page = Page(text)
    assert ("html", {"lang": "zh-Hans"}) in page.elements
    assert {"溢出", "反向 OOM (student.backward)", "改什么", "分辨率"} <= set(page.said)


def test_several_tables_say_what_sets_them_apart(rows: list[Row]) -> None:
    page = Page(render([rows[0], replace(rows[1], precision="fp32")], "html"))
    assert "in a table of its own: precision fp32" in page.said
    ids = [attrs["id"] for tag, attrs in page.elements if attrs.get("id") and tag == "clippath"]
    assert len(ids) == len(set(ids)), "plots of one page must not share what they refer to"


def test_the_page_asks_for_nothing(rows: list[Row]) -> None:
    text = render(rows, "html", target=Target())
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "image"} & {tag for tag, _ in page.elements}
    for _, attrs in page.elements:
        for name, value in attrs.items():
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#")
    assert "default-src 'none'" in text
    assert "url(http" not in text


def test_no_name_becomes_markup(rows: list[Row]) -> None:
    odd = [
        replace(
            row,
            sweep=HOSTILE,
            model=HOSTILE,
            checkpointing=HOSTILE + str(number),
            explanation=HOSTILE,
            device_name=HOSTILE,
            peak_stage=HOSTILE,
        )
        for number, row in enumerate(rows)
    ]
    text = render(odd, "html", target=Target())
    page, plain = Page(text), Page(render(rows, "html", target=Target()))
    count = [tag for tag, _ in page.elements].count
    assert count("script") == [tag for tag, _ in plain.elements].count("script") == 1
    assert count("img") == 0
    assert count("title") == 1
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert any(said.startswith(f"dmad_sweep: {HOSTILE}") for said in page.said)


def test_json_tells_measured_from_estimated() -> None:
    def at(record: Record, size: int) -> Row:
        return replace(row_of(record), stage_peaks={"student.backward": size})

    rows = [
        at(make_record(make_gpu_plan(1, 512, 0)), 28 * 2**30),
        at(make_record(make_gpu_plan(2, 512, 1), peak_gib=30.0), 30 * 2**30),
        at(make_record(make_gpu_plan(1, 768, 2), peak_gib=30.5), 61 * 2**29),
    ]
    measured, estimates = [], []
    for line in json.loads(render(rows, "json")):
        (measured if line["origin"] == "measured" else estimates).append(line)
    assert [(line["batch"], line["resolution"]) for line in measured] == [(1, "512"), (2, "512"), (1, "768")]
    assert [line["peak_allocated_gib"] for line in measured] == [28.5, 30.0, 30.5]
    (estimate,) = estimates
    assert (estimate["batch"], estimate["resolution"], estimate["origin"]) == (2, "768", "estimated")
    assert 32 < estimate["peak_allocated_gib"] < 37
    assert 0 < estimate["estimate_error"] < 0.1
    assert estimate["extrapolated"] is True
    assert estimate["trial_id"] is estimate["status"] is None
    assert set(measured[0]) == set(estimate) == {"origin", *FIELDS, "estimate_error", "extrapolated"}


def test_json_is_null_where_nothing_was_measured(rows: list[Row]) -> None:
    died = json.loads(render(rows, "json"))[2]
    assert died["iteration_ms"] is None
    assert died["status"] == "oom"
