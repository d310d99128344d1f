"""Every rule of advice on rows that call for it, and on near misses that do not."""

from dataclasses import replace

import pytest
from world import LAW, facts, measured, ran_out

from dmad_sweep.analysis.advice import Advice, advise
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import Peak
from dmad_sweep.records.settings import (
    Adapter,
    Attention,
    Checkpointing,
    Ema,
    Optimizer,
    Precision,
    Target,
)
from dmad_sweep.units import GIB

TRAINABLE = Checkpointing("trainable", ["student", "fake_score"])
FP32 = Precision(name="fp32", weights="float32", frozen="float32", autocast=None)


def given(rule: str, *records: Record, target: Target | None = None) -> list[Advice]:
    return [advice for advice in advise(facts(*records, target=target)) if advice.rule == rule]


def the_one(rule: str, *records: Record, target: Target | None = None) -> Advice:
    [advice] = given(rule, *records, target=target)
    return advice


# --- activations: out of memory in a first backward


def test_a_first_backward_that_ran_out_calls_for_a_lower_batch_or_checkpointing() -> None:
    advice = the_one(
        "activations", measured(1), measured(2), ran_out(8, stage="fake_score.backward", card_gib=24)
    )
    assert advice.evidence == ("batch 8 at 512",)
    assert "activations are the pressure" in advice.text
    assert "batch=2 (measured: 14.72 GiB, about 14.16 GiB less" in advice.text
    assert "checkpointing=trainable (not measured yet)" in advice.text


def test_what_saves_more_for_the_time_it_costs_comes_first() -> None:
    recomputed = {**LAW, "fake_score.backward": (10.0, 2.0), "student.backward": (7.0, 2.0)}
    rows = [measured(batch) for batch in (1, 2)]
    cheap = measured(2, law=recomputed, turn_s=0.31, checkpointing=TRAINABLE, index=1)
    dear = measured(2, law=recomputed, turn_s=3.0, checkpointing=TRAINABLE, index=1)
    died = ran_out(8, stage="student.backward")
    first = the_one("activations", *rows, cheap, died).text
    assert first.index("checkpointing=trainable") < first.index("batch=2")
    second = the_one("activations", *rows, dear, died).text
    assert second.index("batch=2") < second.index("checkpointing=trainable")
    assert "1.72 GiB less" in first


@pytest.mark.parametrize(
    "near",
    [
        ran_out(8, stage="fake_score.forward"),
        ran_out(8, stage="fake_score.backward", cycle=2),
        ran_out(8, stage="fake_score.backward", cycle=5),
        ran_out(8, stage="fake_score.optimizer"),
        measured(8, card_gib=40),
    ],
    ids=["in a forward", "in the second cycle", "late", "in the optimizer", "not at all"],
)
def test_no_other_death_is_blamed_on_activations(near: Record) -> None:
    assert not given("activations", near)


def test_checkpointing_is_not_proposed_to_who_has_it() -> None:
    advice = the_one("activations", ran_out(8, stage="student.backward", checkpointing=TRAINABLE))
    assert "checkpointing" not in advice.text
    assert "batch=4 (not measured yet)" in advice.text


# --- first forward: not the batch


def test_a_first_forward_that_ran_out_at_batch_1_is_not_the_batch() -> None:
    advice = the_one(
        "first_forward",
        measured(1, 512, precision=FP32, attention=Attention("math"), card_gib=24),
        ran_out(1, 1024, stage="student.forward", precision=FP32, attention=Attention("math")),
    )
    assert advice.evidence == ("batch 1 at 1024",)
    assert "it is not the batch" in advice.text
    for change in (
        "resolution=512 (measured: ",
        "precision=bf16",
        "checkpointing=trainable",
        "attention=eff",
    ):
        assert change in advice.text


@pytest.mark.parametrize(
    "near",
    [
        ran_out(2, 1024, stage="student.forward"),
        ran_out(1, 1024, stage="student.backward"),
        ran_out(1, 1024, stage="student.forward", cycle=3),
        ran_out(1, 1024, stage="load", cycle=0),
    ],
    ids=["batch 2", "in a backward", "late", "at load"],
)
def test_the_batch_is_excused_of_nothing_else(near: Record) -> None:
    assert not given("first_forward", near)


def test_what_the_row_has_already_is_not_proposed() -> None:
    text = the_one("first_forward", ran_out(1, 1024, stage="student.forward", checkpointing=TRAINABLE)).text
    assert "checkpointing" not in text
    assert "attention" not in text
    assert "precision" not in text


# --- floor


@pytest.mark.parametrize(
    ("stage", "cycle"),
    [("fake_score.optimizer", 1), ("student.optimizer", 1), ("student.forward", 2), ("load", 0)],
)
def test_death_where_the_batch_counts_for_little_is_the_floor(stage: str, cycle: int) -> None:
    advice = the_one("floor", ran_out(1, stage=stage, cycle=cycle))
    assert advice.evidence == ("batch 1 at 512",)
    assert "neither batch nor resolution lowers that" in advice.text
    for change in ("optimizer=adamw_8bit", "adapter=lora", "precision=bf16_pure"):
        assert change in advice.text


def test_the_floor_is_told_by_its_parts_and_each_change_by_what_it_saves() -> None:
    text = the_one("floor", ran_out(1, stage="fake_score.optimizer", ema=Ema("gpu"))).text
    assert "weights 4.00 GiB, gradients 4.00 GiB and optimizer states 8.00 GiB" in text
    assert "optimizer=adamw_8bit (counted: 6.00 GiB" in text
    assert "adapter=lora (counted: 12.00 GiB" in text
    assert "precision=bf16_pure (counted: 8.00 GiB" in text
    assert "ema=cpu (counted: 2.00 GiB" in text


def test_a_peak_that_a_doubled_batch_does_not_move_is_the_floor() -> None:
    text = the_one(
        "floor", *(measured(b, law={**LAW, "fake_score.optimizer": (20.0, 0.0)}) for b in (1, 2))
    ).text
    assert "hardly above that of half the batch" in text
    assert "optimizer=adamw_fused (counted: 5.28 GiB" in text


def test_what_was_measured_stands_before_what_is_counted() -> None:
    fused = measured(1, optimizer=Optimizer("adamw_fused"), law={**LAW, "fake_score.optimizer": (12.0, 0.0)})
    text = the_one("floor", measured(1), fused, ran_out(1, 768, stage="fake_score.optimizer")).text
    assert "optimizer=adamw_fused (measured at batch 1 at 512: 0.641 GiB less, no slower)" in text
    assert text.index("adamw_fused") < text.index("adamw_8bit")


def test_settings_that_are_taken_are_not_proposed() -> None:
    lean = {
        "adapter": Adapter("lora", ["student", "fake_score"]),
        "optimizer": Optimizer("adamw_8bit"),
        "precision": Precision(name="bf16_pure", weights="bfloat16", autocast=None),
    }
    text = the_one("floor", ran_out(1, stage="load", cycle=0, **lean)).text
    assert "=" not in text


@pytest.mark.parametrize(
    "near",
    [
        (measured(1), measured(4, card_gib=24)),
        (measured(1), measured(2, checkpointing=TRAINABLE)),
        (measured(2), measured(3)),
        (ran_out(1, stage="fake_score.backward"),),
        (ran_out(1, stage="fake_score.optimizer", cycle=4),),
    ],
    ids=["the peak grows", "two variables", "the batch is not doubled", "in a backward", "late"],
)
def test_no_other_row_is_blamed_on_the_floor(near: tuple[Record, ...]) -> None:
    assert not given("floor", *near)


# --- late


def test_death_after_cycles_that_fitted_names_stage_and_cycle() -> None:
    advice = the_one("late", ran_out(1, stage="gan.forward", cycle=7))
    assert "ran out of memory in gan.forward of cycle 7" in advice.text
    assert "something grew or came late" in advice.text
    assert "memory.snapshot=true" in advice.text
    assert "expandable_segments" not in advice.text


def test_late_death_of_a_fragmented_allocator_says_so() -> None:
    died = ran_out(1, stage="gan.forward", cycle=7)
    assert died.result is not None
    assert died.result.memory is not None
    peak = Peak(allocated_bytes=15 * GIB, reserved_bytes=23 * GIB)
    died = replace(died, result=replace(died.result, memory=replace(died.result.memory, peak=peak)))
    text = the_one("late", died).text
    assert "holds 8.00 GiB that no tensor uses" in text
    assert "expandable_segments:True" in text


@pytest.mark.parametrize("cycle", [0, 1, 2])
def test_the_first_two_cycles_are_not_late(cycle: int) -> None:
    assert not given("late", ran_out(1, stage="gan.forward", cycle=cycle))


# --- close


def test_a_peak_near_the_limit_moves_the_batch_first() -> None:
    advice = the_one("close", measured(1, card_gib=20.5), measured(4, card_gib=20.5))
    assert advice.evidence == ("batch 4 at 512",)
    assert "0.313 GiB of 20.50 GiB are left" in advice.text
    assert "1.03 GiB should be (for fragmentation, retries of the allocator and other" in advice.text
    assert "Move the batch first" in advice.text


def test_what_a_sample_less_frees_is_told_where_a_fit_knows_it() -> None:
    advice = the_one("close", measured(4, card_gib=20.5), measured(2, card_gib=20.5))
    assert "one sample less frees 2.36 GiB" in advice.text  # 9 GiB for a million pixels


@pytest.mark.parametrize(("headroom", "warned"), [(None, False), (3.0, False), (8.0, True), (0.0, False)])
def test_target_headroom_is_what_must_stay_free(headroom: float | None, warned: bool) -> None:
    found = given("close", measured(4), measured(2), target=Target(headroom_gib=headroom))
    assert bool(found) is warned
    if warned:
        assert "(target.headroom_gib)" in found[0].text


# --- spare


def test_memory_to_spare_and_images_per_second_that_grow_want_a_larger_batch() -> None:
    advice = the_one("spare", *(measured(batch, card_gib=80) for batch in (1, 2, 4)))
    assert advice.evidence == ("batch 2 at 512", "batch 4 at 512")
    assert "batch=8 is expected to peak at 28.87 GiB with 7.75 images/s" in advice.text


def test_images_per_second_that_do_not_grow_end_the_rise() -> None:
    rows = [measured(batch, card_gib=80, turn_s=0.2 * batch) for batch in (1, 2, 4)]
    assert "images/s no longer grow" in the_one("spare", *rows).text


def test_a_row_that_waits_for_data_is_told_before_its_batch() -> None:
    rows = [measured(batch, card_gib=80, data_s=0.3) for batch in (1, 2, 4)]
    text = the_one("spare", *rows).text
    assert "waits for data 34% of its time" in text
    assert "data.workers" in text
    assert "batch=8" not in text


def test_a_launch_bound_row_is_told() -> None:
    rows = [measured(batch, card_gib=80, enqueue_share=0.99, turn_s=0.3) for batch in (1, 2)]
    assert "the device waits for the host" in the_one("spare", *rows).text


@pytest.mark.parametrize(
    "near",
    [
        [measured(batch, card_gib=24) for batch in (1, 2, 4)],
        [measured(4, card_gib=80)],
        [*(measured(b, card_gib=80) for b in (1, 2, 4)), ran_out(8, stage="student.forward", card_gib=80)],
    ],
    ids=["a larger batch does not fit", "nothing to compare with", "a larger batch ran out"],
)
def test_no_larger_batch_is_proposed_without_ground(near: list[Record]) -> None:
    assert not given("spare", *near)


def test_resolution_rises_only_toward_the_target() -> None:
    rows = [measured(1, 512, card_gib=80), measured(2, 512, card_gib=80)]
    wanted = the_one("resolution", *rows, target=Target(resolution="1024"))
    assert wanted.evidence == ("batch 2 at 512",)
    assert "batch=2 resolution=1024 is expected to peak at 28.87 GiB with 1.94 images/s" in wanted.text
    assert not given("resolution", *rows)
    assert not given("resolution", *rows, target=Target(resolution="512"))
    assert not given("resolution", *rows, target=Target(resolution="256"))


def test_the_target_resolution_is_met_with_the_batch_that_fits_it() -> None:
    rows = [measured(batch, 512, card_gib=24) for batch in (1, 2, 4)]
    wanted = the_one("resolution", *rows, target=Target(resolution="1024"))
    assert "batch=1 resolution=1024 is expected to peak at 19.44 GiB" in wanted.text
    assert not given("resolution", *rows, target=Target(resolution="2048"))
    died = ran_out(1, 1024, stage="student.forward")
    assert not given("resolution", *rows, died, target=Target(resolution="1024"))


# --- larger effective batch


def test_an_effective_batch_that_no_batch_reaches_is_made_up_by_accumulation() -> None:
    rows = [measured(batch) for batch in (1, 2, 4)]
    text = the_one("larger_effective_batch", *rows, target=Target(effective_batch=16)).text
    assert "batch=4 accumulation=4 makes it up" in text
    assert "at most 21.44 GiB" in text  # 19.44 GiB and 2 GiB of gradients
    assert "2285 ms an iteration" in text  # 4 micro-steps of two turns


def test_measured_accumulation_is_told_as_measured() -> None:
    rows = [measured(batch) for batch in (1, 2, 4)]
    text = the_one(
        "larger_effective_batch",
        *rows,
        measured(4, accumulation=4, index=9),
        target=Target(effective_batch=16),
    ).text
    assert "measured: 19.44 GiB and 2285 ms" in text


@pytest.mark.parametrize(
    ("rows", "target"),
    [
        ([measured(b) for b in (1, 2, 4)], Target()),
        ([measured(b) for b in (1, 2, 4)], Target(effective_batch=4)),
        ([measured(b, card_gib=80) for b in (1, 2, 4)], Target(effective_batch=16)),
        ([measured(b) for b in (1, 2, 4)], Target(effective_batch=16, resolution="1024")),
    ],
    ids=["none wanted", "a batch reaches it", "such a batch is expected to fit", "at another resolution"],
)
def test_accumulation_is_not_proposed_without_need(rows: list[Record], target: Target) -> None:
    assert not given("larger_effective_batch", *rows, target=target)
