"""From record to row: every derived number."""

import json
from dataclasses import replace

import pytest
from factories import CARD, make_failed, make_gpu_plan, make_killed, make_oom, make_record

from dmad_sweep.records.codec import from_json, to_json
from dmad_sweep.records.metrics import METRICS, metrics_of, params_of
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import Observed
from dmad_sweep.records.row import Row, Spread, iteration_s, row_of
from dmad_sweep.records.settings import Accumulation, Checkpointing, Memory, Phase, Precision, Recipe
from dmad_sweep.records.verification import Agreement, Verification
from dmad_sweep.units import GIB
from plans import BF16, FP16, make_plan


def test_iteration_time_of_dmd2_is_a_fake_score_turn_and_a_kth_of_a_student_turn() -> None:
    row = row_of(make_record(make_gpu_plan(recipe=Recipe(student_update_freq=5))))
    assert row.student_turn_s == Spread(median=0.3, low=0.29, high=0.33)
    assert row.iteration_s is not None
    assert row.iteration_s.median == pytest.approx(0.320 + 0.3 / 5)
    assert row.iteration_s.high == pytest.approx(0.320 + 0.33 / 5)


def test_iteration_time_of_the_other_recipes() -> None:
    k5 = {"student": [0.5], "fake_score": [0.25]}
    assert iteration_s("fastgen", "train", 5, k5) == Spread(median=0.3, low=0.3, high=0.3)
    assert iteration_s("sft", "train", 5, {"student": [0.5]}) == Spread(median=0.5, low=0.5, high=0.5)
    assert iteration_s("dmd2", "inference", 5, {"inference": [0.1]}) == Spread(median=0.1, low=0.1, high=0.1)
    assert iteration_s("dmd2", "train", 5, {"student": [0.5]}) is None


def test_a_setting_that_did_not_happen_is_remarked() -> None:
    record = make_record(make_gpu_plan(checkpointing=Checkpointing("all", ["student", "teacher"])))
    assert record.result is not None
    for observed, remarks in (
        ({"recomputations": {"student": 2, "teacher": 0}, "optimizer_states": {"student": True}}, []),
        (
            {"recomputations": {"student": 0, "teacher": 0}, "optimizer_states": {"student": False}},
            ["no_optimizer_state", "not_checkpointed"],
        ),
    ):
        changed = replace(record.result, observed=replace(record.result.observed, **observed))
        assert row_of(replace(record, result=changed)).remarks == remarks


def test_images_per_second_counts_the_effective_batch_and_the_waiting() -> None:
    row = row_of(make_record(make_gpu_plan(batch=2, accumulation=Accumulation(4))))
    assert row.effective_batch == 8
    assert row.data_s is not None
    assert row.data_s.median == pytest.approx(0.003)
    assert row.images_per_s == pytest.approx(8 / (0.320 + 0.3 / 10 + 0.003))


def test_warm_up_cycles_count_for_the_peak_but_not_for_the_time() -> None:
    row = row_of(make_record())
    assert row.student_turn_s is not None
    assert row.student_turn_s.high < 0.5
    assert row.peak_cycle == 2


def test_the_device_peak_is_the_larger_of_samples_and_own_readings() -> None:
    record = make_record(peak_gib=20)
    assert row_of(record).device_peak_bytes == 22 * GIB
    late = replace(record, device_memory=replace(record.device_memory, peak_used_bytes=5 * GIB))
    assert row_of(late).device_peak_bytes == 22 * GIB
    shared = replace(record, device_memory=replace(record.device_memory, used_before_bytes=3 * GIB))
    assert row_of(shared).device_peak_bytes == 25 * GIB


def test_headroom_is_against_the_device_or_the_emulated_one() -> None:
    assert row_of(make_record(peak_gib=20)).headroom_bytes == 118 * GIB
    emulated = make_gpu_plan()
    emulated = replace(emulated, device=replace(CARD, memory_limit_bytes=24 * GIB))
    row = row_of(make_record(emulated, peak_gib=20))
    assert row.headroom_bytes == 2 * GIB
    assert row.remarks == ["emulated"]


@pytest.mark.parametrize("make", [make_record, make_oom, make_killed, make_failed])
def test_a_row_survives_its_tag(make: object) -> None:
    row = row_of(make())  # type: ignore[operator]
    assert from_json(Row, to_json(row)) == row
    assert len(to_json(row)) < 4000


def test_a_row_of_before_there_were_repeats_and_baselines_is_read() -> None:
    row = row_of(make_record())
    newer = ("repeat", "role", "pretrained")
    older = {name: value for name, value in json.loads(to_json(row)).items() if name not in newer}
    assert from_json(Row, json.dumps(older)) == row


def test_what_was_not_measured_is_absent() -> None:
    metrics = metrics_of(row_of(make_killed()))
    assert set(metrics) == {"memory/device_peak_gib", "memory/headroom_gib"}
    assert set(metrics_of(row_of(make_record()))) == {metric.name for metric in METRICS}


def test_where_a_trial_died() -> None:
    def died(record: Record) -> tuple[str | None, int | None]:
        row = row_of(record)
        return row.died_stage, row.died_cycle

    assert died(make_record()) == (None, None)
    assert died(make_oom(stage="gan.forward", cycle=3)) == ("gan.forward", 3)
    assert died(make_killed()) == ("gan.forward", 2)
    assert died(make_failed()) == ("load", 0)


def test_tensors_that_differ_from_what_was_asked_are_remarked() -> None:
    record = make_record(make_gpu_plan(batch=2))
    assert record.result is not None
    observed = replace(record.result.observed, micro_batch=1, width=256)
    assert row_of(replace(record, result=replace(record.result, observed=observed))).remarks == [
        "batch_differs",
        "resolution_differs",
    ]


def test_params_are_the_combination() -> None:
    assert params_of(row_of(make_record(make_gpu_plan(batch=2, side=768)))) == {
        "batch": 2,
        "resolution": "768",
        "precision": "bf16",
        "checkpointing": "none",
        "adapter": "full",
        "attention": "auto",
        "optimizer": "adamw",
        "ema": "none",
        "accumulation": 1,
        "effective_batch": 2,
        "model": "sd15",
        "recipe": "dmd2",
        "phase": "train",
        "data": "synthetic",
    }


def test_what_the_parts_leave_of_the_device_peak_is_unexplained() -> None:
    record = make_record(make_gpu_plan())
    row = row_of(record)
    assert row.anatomy is not None
    # 8 + 3 + 13 + 4.25 GiB of blocks, 1 of fragmentation, 0.75 of context, of 30.5 GiB
    assert row.anatomy.counted_bytes == 30 * GIB
    assert row.unexplained_bytes == GIB // 2
    others = replace(record.device_memory, used_before_bytes=GIB, peak_used_bytes=round(31.5 * GIB))
    assert row_of(replace(record, device_memory=others)).unexplained_bytes == GIB // 2


def test_the_floor_is_known_once_every_optimizer_has_stepped() -> None:
    record = make_record(make_gpu_plan())
    assert record.result is not None
    assert row_of(record).floor_bytes == 64
    observed = replace(record.result.observed, optimizer_states={"student": True, "fake_score": False})
    assert row_of(replace(record, result=replace(record.result, observed=observed))).floor_bytes is None


def test_the_hosts_share_is_that_of_measured_turns() -> None:
    record = make_record(make_gpu_plan())
    assert row_of(record).enqueue_share == pytest.approx(0.5)
    assert record.result is not None
    untimed = [
        replace(cycle, turns=[replace(turn, enqueue_s=None) for turn in cycle.turns])
        for cycle in record.result.cycles
    ]
    assert row_of(replace(record, result=replace(record.result, cycles=untimed))).enqueue_share is None


def test_a_gpu_fault_after_cudnns_attention_names_it() -> None:
    record = make_failed(make_gpu_plan())
    assert record.result is not None
    assert record.result.failure is not None
    memory = make_record().result.memory  # type: ignore[union-attr]
    fault = replace(record.result.failure, message="CUDA error: an illegal memory access was encountered")
    for attention, remarked in ((["cudnn"], True), (["flash"], False), (None, False)):
        result = replace(record.result, failure=fault, memory=memory, observed=Observed(attention=attention))
        assert ("cudnn_before_fault" in row_of(replace(record, result=result)).remarks) == remarked


@pytest.mark.parametrize(
    ("share", "precision", "bound"), [(0.97, BF16, True), (0.9, BF16, False), (0.99, FP16, False)]
)
def test_a_launch_bound_row_is_told(share: float, precision: Precision, bound: bool) -> None:
    record = make_record(replace(make_gpu_plan(), precision=precision))
    assert record.result is not None
    cycles = [
        replace(cycle, turns=[replace(turn, enqueue_s=share * turn.compute_s) for turn in cycle.turns])
        for cycle in record.result.cycles
    ]
    remarks = row_of(replace(record, result=replace(record.result, cycles=cycles))).remarks
    assert ("launch_bound" in remarks) == bound


def test_a_check_that_fails_says_why() -> None:
    record = make_record(replace(make_gpu_plan(), phase=Phase("verify_accumulation")))
    assert record.result is not None
    agreed = Agreement(norm=1.0, accumulated_norm=0.25, relative_l2=0.75, cosine=1.0)
    verification = Verification(micro_steps=4, computed_in="float32", agreements={"student": agreed})
    observed = replace(record.result.observed, verification=verification)
    row = row_of(replace(record, result=replace(record.result, observed=observed)))
    assert (row.status, row.verdict, row.gradient_l2, row.iteration_s) == ("ok", "fail", 0.75, None)
    assert row.explanation is not None
    assert "student: gradients are 1/4 of what they should be: divided twice" in row.explanation


def test_a_history_is_recorded_on_a_gpu_alone() -> None:
    for plan, remarked in ((make_gpu_plan(), True), (make_plan(), False)):
        record = make_record(replace(plan, memory=Memory(snapshot=True)))
        assert ("snapshot" in row_of(record).remarks) == remarked
