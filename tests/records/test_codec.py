"""Records survive the disk; what is not a record is refused by name."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from factories import make_record

from dmad_sweep.errors import RecordError
from dmad_sweep.records.codec import from_json, read_json, to_json, write_json
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Record
from plans import make_plan


@dataclass
class Inner:
    size: int
    ratio: float = 1.0


@dataclass
class Outer:
    name: str
    mode: Literal["a", "b"]
    inner: Inner
    maybe: int | None = None
    many: list[Inner] = field(default_factory=list)
    named: dict[str, Inner] = field(default_factory=dict)


def test_a_plan_comes_back_equal(tmp_path: Path) -> None:
    plan = make_plan(sweep="naïve 试验 \n '\"")
    write_json(tmp_path / "plan.json", plan)
    assert read_json(Plan, tmp_path / "plan.json") == plan


def test_files_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "plan.json", make_plan())
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o640


def test_nested_values_come_back_typed() -> None:
    value = Outer("x", "b", Inner(1, 2.0), 3, [Inner(4)], {"k": Inner(5)})
    assert from_json(Outer, to_json(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected dict, got list"),
        ("[" * 100_000, "nested too deeply"),
        ('{"mode": "a", "inner": {"size": 1}}', "field 'name' is missing"),
        ('{"name": 1, "mode": "a", "inner": {"size": 1}}', "name: expected str, got int"),
        ('{"name": "x", "mode": "c", "inner": {"size": 1}}', "'c' is not one of 'a', 'b'"),
        ('{"name": "x", "mode": "a", "inner": {"size": true}}', "size: expected int, got bool"),
        ('{"name": "x", "mode": "a", "inner": {"size": NaN}}', "NaN is not a JSON number"),
        ('{"name": "x", "mode": "a", "inner": {"size": 1, "ratio": 1%s}}' % ("0" * 400), "number too large"),
        ('{"name": "x", "mode": "a", "inner": {"size": 1, "ratio": 1e999}}', "ratio: number too large"),
        ('{"name": "x", "mode": "a", "inner": {"size": 1%s}}' % ("0" * 19), "size: number too large"),
        ('{"name": "x", "mode": "a", "inner": {"size": -1%s}}' % ("0" * 5000), "not valid JSON"),
        (r'{"name": "\ud800", "mode": "a", "inner": {"size": 1}}', "name: not valid Unicode"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_json(Outer, text)


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(Inner(1, float("nan")))


def test_unknown_keys_of_a_newer_writer_are_ignored() -> None:
    assert from_json(Inner, '{"size": 1, "later": [1, 2]}') == Inner(1)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, "schema version 2 cannot be read, only 1 .a newer dmad_sweep wrote it, so upgrade"),
        (10**400, "schema version 1000"),
        (0, "schema version 0 cannot be read, only 1 .an older dmad_sweep wrote it"),
        ("1", "schema_version: expected int, got str"),
    ],
)
def test_another_schema_version_is_told_before_any_field(version: object, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_json(Plan, json.dumps({"schema_version": version}))
    nested = json.loads(to_json(make_record()))
    nested["plan"]["schema_version"] = version
    with pytest.raises(RecordError, match=f"plan: .*{message}"):
        from_json(Record, json.dumps(nested))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"absent\.json"):
        read_json(Plan, tmp_path / "absent.json")
