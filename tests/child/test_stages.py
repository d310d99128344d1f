"""Stage peaks with a meter whose readings are known."""

from pathlib import Path

import pytest

from dmad_sweep.child.stages import StageRecorder
from dmad_sweep.records.progress import ProgressReader, ProgressWriter
from dmad_sweep.records.result import Peak


class ScriptedMeter:
    """`use(n)` is what an allocation to a total of n bytes and its release would leave behind."""

    name = "scripted"
    zero_bytes = 0
    context_bytes: int | None = None
    limit_bytes: int | None = None

    def __init__(self) -> None:
        self.unmeasured: dict[str, str] = {}
        self._current = self._peak = 0

    def use(self, most: int, then: int) -> None:
        self._peak, self._current = max(self._peak, most), then

    def reset(self) -> None:
        self._peak = self._current

    def peak(self) -> Peak:
        return Peak(allocated_bytes=self._peak, reserved_bytes=2 * self._peak)

    def allocated(self) -> int | None:
        return self._current

    def device_used(self) -> int | None:
        return 2 * self._current

    def beyond_allocator(self) -> int | None:
        return 7

    def retries(self) -> int | None:
        return 0

    def requested_when_exhausted(self) -> int | None:
        return None

    def lift_limit(self) -> None: ...


@pytest.fixture
def meter() -> ScriptedMeter:
    return ScriptedMeter()


@pytest.fixture
def stages(meter: ScriptedMeter, tmp_path: Path) -> StageRecorder:
    return StageRecorder(meter, ProgressWriter(tmp_path / "progress.jsonl"), cycles=3)


def test_first_and_steady_peaks_are_kept_apart(stages: StageRecorder, meter: ScriptedMeter) -> None:
    with stages.span("load"):
        meter.use(50, then=40)
    stages.loaded()
    for index, warmup, forward, backward in ((1, True, 70, 60), (2, True, 95, 60), (3, False, 80, 90)):
        stages.begin_cycle(index, warmup)
        with stages.span("student.forward"):
            meter.use(forward, then=55)
        with stages.span("student.backward"):
            meter.use(backward, then=40)
    report = stages.report(None, None)
    assert report.after_load_bytes == 40
    assert report.first_forward_bytes == 70
    assert report.first_backward_bytes == 70  # the highest from the start to the end of the first backward
    assert {stage: peak.allocated_bytes for stage, peak in report.first_cycle.items()} == {
        "load": 50,
        "student.forward": 70,
        "student.backward": 60,
    }
    assert {stage: peak.allocated_bytes for stage, peak in report.steady.items()} == {
        "student.forward": 80,
        "student.backward": 90,
    }
    assert (report.peak.allocated_bytes, report.peak_stage, report.peak_cycle) == (95, "student.forward", 2)


def test_an_allocation_between_two_stages_is_not_lost(stages: StageRecorder, meter: ScriptedMeter) -> None:
    stages.begin_cycle(1, True)
    with stages.span("student.forward"):
        meter.use(10, then=10)
    meter.use(99, then=10)
    with stages.span("student.backward"):
        meter.use(20, then=10)
    report = stages.report(None, None)
    assert (report.peak.allocated_bytes, report.peak_stage) == (99, "between stages")


def test_the_stage_stays_when_an_exception_leaves_it(stages: StageRecorder, meter: ScriptedMeter) -> None:
    stages.begin_cycle(2, True)

    def fail() -> None:
        with stages.span("student.backward"):
            meter.use(77, then=5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (stages.stage, stages.cycle) == ("student.backward", 2)
    stages.interrupted()
    assert stages.report(None, None).peak.allocated_bytes == 77


def test_entering_a_stage_is_reported_at_once(stages: StageRecorder, tmp_path: Path) -> None:
    reader = ProgressReader(tmp_path / "progress.jsonl")
    assert reader.poll() is None
    stages.begin_cycle(2, True)
    with stages.span("gan.forward"):
        seen = reader.poll()
    assert seen is not None
    assert (seen.stage, seen.cycle, seen.cycles) == ("gan.forward", 2, 3)
