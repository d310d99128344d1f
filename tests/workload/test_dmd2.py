"""The DMD2 step: real gradients from both losses, frozen networks left alone, accumulation equal."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.settings import Accumulation, Batch, Checkpointing, Optimizer, Recipe, Resolution
from dmad_sweep.workload.recipes.dmd2 import Dmd2
from plans import BF16, FP16, FP32, make_plan

CPU = torch.device("cpu")


def loaded(plan: Plan) -> Dmd2:
    workload = Dmd2(plan, CPU, lambda stage: nullcontext())
    workload.load()
    return workload


def part_from_teacher(workload: Dmd2) -> None:
    """All networks start equal, so what the scores disagree in is near rounding; let them differ."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in workload.fake_score.backbone.weights:
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def gradients_of_turn(plan: Plan, turn: str, *, parted: bool = False) -> list[Tensor]:
    """Gradients of the network that `turn` trains, before clipping; the optimizer does not step."""
    workload = loaded(plan)
    if parted:
        part_from_teacher(workload)
    trainer = workload.trainers[turn]
    network = workload.student if turn == "student" else workload.fake_score
    trainer.step = lambda: None  # type: ignore[method-assign]
    workload.fetch(1, turn)
    workload.run(1, turn)
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.backbone.weights]


def difference(first: list[Tensor], second: list[Tensor]) -> float:
    """Relative L2 of two sets of gradients."""
    norm = sum(g.square().sum() for g in first) ** 0.5
    return float(sum((a - b).square().sum() for a, b in zip(first, second, strict=True)) ** 0.5 / norm)


def test_turns_train_what_they_should_and_nothing_else() -> None:
    workload = loaded(make_plan(optimizer=Optimizer(learning_rate=1e-3)))
    networks = {
        "teacher": workload.teacher.backbone.module,
        "student": workload.student.backbone.module,
        "fake_score": workload.fake_score.backbone.module,
        "head": workload.head,
    }

    def changed_by(turn: str) -> set[str]:
        before = {name: [p.clone() for p in net.parameters()] for name, net in networks.items()}
        workload.fetch(1, turn)
        workload.run(1, turn)
        return {
            name
            for name, net in networks.items()
            if any(not torch.equal(a, b) for a, b in zip(before[name], net.parameters(), strict=True))
        }

    assert changed_by("student") == {"student"}
    assert changed_by("fake_score") == {"fake_score", "head"}
    assert workload.inventory().observed().optimizer_steps == {"student": 1, "fake_score": 1}


def test_every_trained_parameter_gets_a_gradient() -> None:
    plan = make_plan(resolution=Resolution(128, 128))  # at 64 px one token is left, whose attention is fixed
    for turn in ("student", "fake_score"):
        assert all(gradient.abs().sum() > 0 for gradient in gradients_of_turn(plan, turn))


def test_both_losses_reach_the_student() -> None:
    plan = make_plan(recipe=Recipe(gan_weight=0.0))
    matching = gradients_of_turn(plan, "student")
    both = gradients_of_turn(replace(plan, recipe=Recipe(gan_weight=10.0)), "student")
    assert difference(matching, both) > 1e-3


def test_the_teachers_guidance_changes_the_direction() -> None:
    plain, guided = (
        gradients_of_turn(make_plan(recipe=Recipe(gan_weight=0.0, guidance_scale=scale)), "student")
        for scale in (1.0, 8.0)
    )
    assert difference(plain, guided) > 1e-3


def test_scores_that_agree_give_no_direction() -> None:
    """Fake score and teacher start with equal weights: without guidance nothing is left to match."""
    plan = make_plan(recipe=Recipe(gan_weight=0.0, guidance_scale=1.0))
    assert max(gradient.abs().max() for gradient in gradients_of_turn(plan, "student")) < 1e-6


@pytest.mark.parametrize("turn", ["student", "fake_score"])
def test_accumulated_gradients_equal_the_true_batch(turn: str) -> None:
    whole = gradients_of_turn(make_plan(batch=Batch(4)), turn, parted=True)
    parts = gradients_of_turn(make_plan(batch=Batch(1), accumulation=Accumulation(4)), turn, parted=True)
    assert difference(whole, parts) < 1e-4


@pytest.mark.parametrize("turn", ["student", "fake_score"])
def test_checkpointing_changes_no_gradient(turn: str) -> None:
    plain = gradients_of_turn(make_plan(), turn)
    recomputed = gradients_of_turn(
        make_plan(checkpointing=Checkpointing("trainable", ["student", "fake_score"])), turn
    )
    assert difference(plain, recomputed) < 1e-5


def test_checkpointing_recomputes() -> None:
    """The student's down blocks run once more in backward; the flag alone would prove nothing."""

    def forwards(networks: list[str]) -> int:
        workload = loaded(make_plan(checkpointing=Checkpointing("some", networks)))
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        for block in workload.student.backbone.module.down_blocks:
            for resnet in block.resnets:
                resnet.register_forward_pre_hook(count)  # a recomputation stops before the end
        workload.fetch(1, "student")
        workload.run(1, "student")
        return calls

    assert forwards(["student"]) == 2 * forwards([])


@pytest.mark.parametrize("precision", [FP32, BF16, FP16])
def test_types_are_those_of_the_regime(precision: object) -> None:
    plan = make_plan(precision=precision)
    workload = loaded(plan)
    assert workload.teacher.backbone.module.dtype == getattr(torch, plan.precision.frozen)
    assert workload.student.backbone.module.dtype == torch.float32
    for turn in workload.turns:
        workload.fetch(1, turn)
        workload.run(1, turn)
    seen: list[torch.dtype] = []
    workload.student.backbone.module.conv_in.register_forward_hook(
        lambda m, i, output: seen.append(output.dtype)
    )
    workload.fetch(2, "student")
    workload.run(2, "student")
    assert seen == [getattr(torch, plan.precision.autocast or "float32")]


def test_stages_come_in_their_order() -> None:
    stages: list[str] = []

    @contextmanager
    def span(stage: str) -> Iterator[None]:
        stages.append(stage)
        yield

    workload = Dmd2(make_plan(accumulation=Accumulation(2)), CPU, span)
    workload.load()
    for turn in workload.turns:
        workload.fetch(1, turn)
        workload.run(1, turn)
    student = ["student.forward", "scores.forward", "gan.forward", "student.backward"]
    fake_score = ["student.sample", "fake_score.forward", "fake_score.backward"]
    assert stages == [*student * 2, "student.optimizer", *fake_score * 2, "fake_score.optimizer"]


def test_features_stop_at_the_mid_block_and_keep_nothing_else_alive() -> None:
    workload = loaded(make_plan())
    decoder_calls: list[object] = []
    workload.fake_score.backbone.module.up_blocks[0].register_forward_hook(lambda *_: decoder_calls.append(1))
    latents = torch.randn(1, 4, 8, 8)
    workload.fetch(1, "student")
    with torch.no_grad():
        features = workload.fake_score.features(latents, torch.tensor([5]), workload._samples.condition)
    assert features.shape == (1, 32, 1, 1)
    assert not decoder_calls
    assert not workload.fake_score.backbone.module.mid_block._forward_hooks
