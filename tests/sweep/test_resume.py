"""Which earlier result a trial may take over."""

from dataclasses import replace
from typing import Any

import pytest
from factories import make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.records.key import TrialKey
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.record import Origin, Record
from dmad_sweep.records.row import Row, row_of
from dmad_sweep.sweep.resume import measured_before, taken_over

KEY = TrialKey(
    combination="c", code="1", device="d", driver="580", torch="2.11", libraries="l", environment=""
)


def plan_of(key: TrialKey | None = KEY, **changes: Any) -> Plan:
    return replace(make_gpu_plan(), key=key, **changes)


def row(record: Record, **changes: Any) -> Row:
    return row_of(replace(record, **changes))


def test_the_latest_result_under_the_same_key_counts() -> None:
    first = row(make_record(plan_of()), started_at=1.0)
    second = row(make_record(plan_of()), started_at=2.0)
    assert measured_before(plan_of(), [second, first]) == (second, [])


@pytest.mark.parametrize("make", [make_record, make_oom])
def test_results_count(make: Any) -> None:
    assert measured_before(plan_of(), [row(make(plan_of()))])[0] is not None


@pytest.mark.parametrize("make", [make_killed, make_failed])
def test_what_came_to_no_result_does_not(make: Any) -> None:
    assert measured_before(plan_of(), [row(make(plan_of()))]) == (None, [])


def test_what_changed_is_told_of_the_nearest_result() -> None:
    far = row(make_record(plan_of(replace(KEY, code="0", driver="570", torch="2.10"))))
    near = row(make_record(plan_of(replace(KEY, driver="570"))))
    assert measured_before(plan_of(), [far, near]) == (None, ["driver 570 → 580"])


def test_rows_of_earlier_versions_have_no_key() -> None:
    assert measured_before(plan_of(), [row(make_record(plan_of(key=None)))]) == (None, [])


def test_what_was_taken_over_is_another_trial_of_the_same_measurement() -> None:
    measured = make_record(plan_of())
    wanted = plan_of(trial_id="new", sweep="later", index=4)
    own = taken_over(measured, wanted)
    assert (own.plan.trial_id, own.plan.sweep, own.plan.index) == ("new", "later", 4)
    assert own.result == measured.result
    assert own.reused_from == Origin(sweep=measured.plan.sweep, trial_id=measured.plan.trial_id)
    assert row_of(own).reused_from == "test"
    assert "reused" in row_of(own).remarks
    # taken over again, it still names the trial that measured
    again = taken_over(own, replace(wanted, trial_id="newer", sweep="latest"))
    assert again.reused_from == own.reused_from
    # and only the trial that measured is ever taken over
    assert measured_before(wanted, [row_of(own)]) == (None, [])
