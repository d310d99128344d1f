"""Accumulation is checked, not believed: right recipes pass, and each planted fault is named."""

from contextlib import nullcontext
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dmad_sweep.records.settings import Accumulation, Adapter, Batch, Ema, Phase, Recipe
from dmad_sweep.records.verification import Verification, judge
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.recipes.verification import AccumulationCheck, agreement
from plans import BF16, FP32, make_plan

CYCLES = 2


def check(**changes: Any) -> AccumulationCheck:
    plan = make_plan(
        **{
            "phase": Phase("verify_accumulation"),
            "batch": Batch(1),
            "accumulation": Accumulation(4),
            "ema": Ema("gpu"),
        }
        | changes
    )
    workload = create_workload(plan, torch.device("cpu"), lambda _: nullcontext())
    assert isinstance(workload, AccumulationCheck)
    workload.load()
    return workload


def found(workload: AccumulationCheck) -> Verification:
    for cycle in range(1, CYCLES + 1):
        workload.fetch(cycle, "verify")
        workload.run(cycle, "verify")
    verification = workload.inventory().observed().verification
    assert verification is not None
    return verification


@pytest.mark.parametrize("precision", [FP32, BF16], ids=lambda precision: precision.name)
@pytest.mark.parametrize("recipe", ["dmd2", "fastgen", "sft"])
@pytest.mark.parametrize(("batch", "steps"), [(1, 4), (2, 2), (3, 1)])
def test_the_recipes_accumulate_rightly(recipe: str, precision: Any, batch: int, steps: int) -> None:
    verification = found(
        check(
            recipe=Recipe(name=recipe),
            precision=precision,
            batch=Batch(batch),
            accumulation=Accumulation(steps),
        )
    )
    assert judge(verification) == ("pass", [])
    networks = {"student"} if recipe == "sft" else {"student", "fake_score", "discriminator"}
    assert set(verification.agreements) == networks
    assert all(agreed.norm > 0 for agreed in verification.agreements.values())
    for calls in verification.calls.values():
        assert (calls.expected, calls.steps, calls.zero_grads, calls.scheduler_steps) == (CYCLES,) * 4
    assert verification.average_updates == verification.expected_average_updates == CYCLES


def test_adapters_accumulate_rightly() -> None:
    lora = Adapter(name="lora", networks=["student", "fake_score"], rank=4)
    assert judge(found(check(adapter=lora)))[0] == "pass"


def trainer_of(workload: AccumulationCheck, name: str = "student") -> Trainer:
    return workload._recipe.trainers[name]


def causes(workload: AccumulationCheck) -> list[str]:
    verdict, said = judge(found(workload))
    assert verdict == "fail"
    return said


def plant(trainer: Trainer, backward: Any) -> None:
    trainer.backward = MethodType(backward, trainer)  # type: ignore[method-assign]


def test_a_loss_divided_twice() -> None:
    workload = check()

    def backward(self: Trainer, loss: Tensor) -> None:
        (loss / self.micro_steps / self.micro_steps).backward()

    plant(trainer_of(workload), backward)
    (said,) = causes(workload)
    assert said.startswith("student: gradients are 1/4 of what they should be: divided twice")


def test_a_loss_never_divided() -> None:
    workload = check()
    plant(trainer_of(workload), lambda self, loss: loss.backward())
    (said,) = causes(workload)
    assert said.startswith("student: gradients are 4 times what they should be: never divided")


def stepping_each_time(self: Trainer, loss: Tensor) -> None:
    (loss / self.micro_steps).backward()
    if self.micro_steps > 1:
        Trainer.step(self)


def test_a_step_in_every_micro_step() -> None:
    workload = check(recipe=Recipe(name="sft"))
    trainer = trainer_of(workload)
    plant(trainer, stepping_each_time)
    said = causes(workload)
    assert said[0].startswith("student: optimizer.step was called ")
    assert said[0].endswith("it steps every micro-step")


def test_one_optimizer_that_accumulates_and_one_that_does_not() -> None:
    workload = check()
    plant(trainer_of(workload, "fake_score"), stepping_each_time)
    said = causes(workload)
    assert "fake_score: optimizer.step was called" in said[0]
    assert said[0].endswith("while student waits for the boundary: only one optimizer accumulates")


def test_a_scheduler_on_micro_steps() -> None:
    workload = check()

    def backward(self: Trainer, loss: Tensor) -> None:
        (loss / self.micro_steps).backward()
        if self.inspect is None:
            self.scheduler.step()

    plant(trainer_of(workload), backward)
    (said,) = causes(workload)
    assert "scheduler.step was called 10 times instead of 2: the scheduler advances on micro-steps" in said


def test_gradients_cleared_inside_the_window() -> None:
    workload = check()

    def backward(self: Trainer, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        (loss / self.micro_steps).backward()

    plant(trainer_of(workload), backward)
    said = causes(workload)
    assert "zero_grad was called 10 times instead of 2: gradients are cleared inside the window" in said[0]
    assert said[1].startswith("student: gradients ")


def test_an_average_updated_on_micro_steps() -> None:
    workload = check()
    average = workload._recipe.inventory().average
    assert average is not None

    def backward(self: Trainer, loss: Tensor) -> None:
        (loss / self.micro_steps).backward()
        average.update()

    plant(trainer_of(workload), backward)
    assert causes(workload) == ["the weight average was updated 10 times instead of 2"]


def test_a_layer_that_couples_the_samples_of_a_batch() -> None:
    workload = check(recipe=Recipe(name="sft"), batch=Batch(2), accumulation=Accumulation(2))
    module = workload._recipe.inventory().student.backbone.module
    module.conv_in = nn.Sequential(module.conv_in, nn.BatchNorm2d(module.conv_in.out_channels))
    (said,) = causes(workload)
    assert "layers couple the samples of a batch (student: conv_in.1), so that equality cannot hold" in said


def test_agreement_is_of_all_tensors_together() -> None:
    whole = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    same = agreement(whole, [t.clone() for t in whole])
    assert (same.norm, same.accumulated_norm, same.relative_l2, same.cosine) == (5.0, 5.0, 0.0, 1.0)
    half = agreement(whole, [t / 2 for t in whole])
    assert (half.norm_ratio, half.relative_l2, half.cosine) == (0.5, 0.5, 1.0)
    turned = agreement(whole, [torch.tensor([0.0, 3.0]), torch.tensor([[4.0]])])
    assert turned.norm_ratio == 1.0  # the norm alone would have passed it
    assert turned.relative_l2 > 0.8
    nothing = agreement([torch.zeros(2)], [torch.zeros(2)])
    assert judge(Verification(micro_steps=2, computed_in="float32", agreements={"a": nothing}))[0] == "fail"
