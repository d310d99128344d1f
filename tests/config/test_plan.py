"""From settings to a plan: what `auto` becomes."""

import pytest

from dmad_sweep.config.plan import plan_trial
from dmad_sweep.config.schema import Config
from dmad_sweep.errors import ConfigError
from dmad_sweep.records.capabilities import why_impossible
from dmad_sweep.records.key import combination_digest
from dmad_sweep.records.plan import Plan, PlannedDevice
from dmad_sweep.records.settings import Accumulation, Batch, Target

CPU = PlannedDevice(kind="cpu", name="CPU")


def planned(batch: int, accumulation: Accumulation, target: int | None = None) -> Plan:
    settings = Config(batch=Batch(batch), accumulation=accumulation, target=Target(target))
    return plan_trial(settings, CPU, "test", 0)


@pytest.mark.parametrize(("batch", "steps"), [(1, 12), (2, 6), (12, 1)])
def test_accumulation_makes_up_the_effective_batch(batch: int, steps: int) -> None:
    plan = planned(batch, Accumulation(auto=True), 12)
    assert (plan.accumulation.steps, plan.effective_batch) == (steps, 12)
    assert why_impossible(plan) is None
    # no other trial than the one whose steps were given
    assert combination_digest(plan) == combination_digest(planned(batch, Accumulation(steps)))


@pytest.mark.parametrize(("batch", "near"), [(5, 4), (8, 6), (13, 12), (10**9, 12)])
def test_a_batch_that_does_not_divide_it_is_impossible(batch: int, near: int) -> None:
    reason = why_impossible(planned(batch, Accumulation(auto=True), 12))
    assert reason == f"batch={batch} does not divide target.effective_batch=12; batch={near} does"


def test_auto_needs_a_target() -> None:
    with pytest.raises(ConfigError, match=r"accumulation=auto needs target\.effective_batch"):
        Config(accumulation=Accumulation(auto=True))


def test_a_target_alone_is_the_reports_and_makes_no_other_trial() -> None:
    plain, aimed = (planned(2, Accumulation(3), target) for target in (None, 12))
    assert combination_digest(aimed) == combination_digest(plain)
