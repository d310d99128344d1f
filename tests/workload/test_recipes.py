"""Every recipe, precision, optimizer and average that the configuration offers does what its name says."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.settings import (
    Accumulation,
    Batch,
    Checkpointing,
    Ema,
    Optimizer,
    Precision,
    Recipe,
    Resolution,
)
from dmad_sweep.workload.attention import kernels_in_graph
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.optimization import build_optimizer
from dmad_sweep.workload.recipes.fastgen import FastGen
from plans import BF16, FP16, FP32, make_plan

CPU = torch.device("cpu")
TF32 = replace(FP32, name="tf32", tf32=True)
BF16_PURE = Precision(name="bf16_pure", weights="bfloat16", frozen="bfloat16", autocast=None)
RECIPES = ("dmd2", "fastgen", "sft")


def loaded(plan: Plan, span: Any = lambda stage: nullcontext()) -> Any:
    workload = create_workload(plan, CPU, span)
    workload.load()
    return workload


def cycle(workload: Any, index: int = 1) -> Any:
    for turn in workload.turns:
        workload.fetch(index, turn)
        workload.run(index, turn)
    return workload.inventory().observed()


@pytest.mark.parametrize("precision", [FP32, TF32, BF16, FP16, BF16_PURE], ids=lambda p: p.name)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_in_every_regime(recipe: str, precision: Precision) -> None:
    workload = loaded(make_plan(recipe=Recipe(name=recipe), precision=precision))
    weights = {p.dtype for p in workload.student.backbone.weights}
    assert weights == {getattr(torch, precision.weights)}
    before = [p.clone() for p in workload.student.backbone.weights]
    observed = cycle(workload)
    assert observed.optimizer_states == dict.fromkeys(observed.optimizer_states, True)
    assert observed.optimizer_steps == dict.fromkeys(observed.optimizer_steps, 1)
    if precision is not BF16_PURE:  # where a step may be below the type's resolution
        assert any(
            not torch.equal(a, b) for a, b in zip(before, workload.student.backbone.weights, strict=True)
        )


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_fused", "adafactor", "sgd"])
def test_every_optimizer_steps(recipe: str, optimizer: str) -> None:
    observed = cycle(loaded(make_plan(recipe=Recipe(name=recipe), optimizer=Optimizer(name=optimizer))))
    assert set(observed.optimizer_steps.values()) == {1}
    assert set(observed.optimizer_states.values()) == {True}


def test_a_step_that_loss_scaling_skipped_is_noticed() -> None:
    workload = loaded(make_plan(recipe=Recipe(name="sft"), precision=FP16))
    with torch.no_grad():
        workload.student.backbone.weights[0].fill_(float("inf"))
    observed = cycle(workload)
    assert observed.optimizer_steps == {"student": 0}
    assert observed.optimizer_states == {"student": False}


def test_optimizers_are_the_ones_named() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(4))]
    kinds = {
        name: type(build_optimizer(parameters, Optimizer(name=name)))
        for name in ("adamw", "adamw_fused", "adafactor", "sgd")
    }
    assert kinds["adamw"] is kinds["adamw_fused"] is torch.optim.AdamW
    assert kinds["adafactor"] is torch.optim.Adafactor
    assert kinds["sgd"] is torch.optim.SGD
    assert build_optimizer(parameters, Optimizer(name="adamw_fused")).defaults["fused"]
    assert not build_optimizer(parameters, Optimizer()).defaults["fused"]


def test_an_optimizer_that_cannot_be_had_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="adamw_8bit needs a CUDA device"):
        loaded(make_plan(optimizer=Optimizer(name="adamw_8bit")))


def gradients(plan: Plan, turn: str) -> dict[str, list[Tensor]]:
    """Gradients by optimizer, before a step; scores part from each other first."""
    workload = loaded(plan)
    generator = torch.Generator().manual_seed(1)
    if hasattr(workload, "fake_score"):
        with torch.no_grad():
            for parameter in workload.fake_score.backbone.weights:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    trainers = getattr(workload, "trainers", None) or {"student": workload._trainer}
    for trainer in trainers.values():
        trainer.step = lambda: None
    workload.fetch(1, turn)
    workload.run(1, turn)
    return {
        name: [torch.zeros_like(p) if p.grad is None else p.grad for p in trainer.parameters]
        for name, trainer in trainers.items()
    }


def difference(first: list[Tensor], second: list[Tensor]) -> float:
    norm = sum(g.square().sum() for g in first) ** 0.5
    return float(sum((a - b).square().sum() for a, b in zip(first, second, strict=True)) ** 0.5 / norm)


@pytest.mark.parametrize(
    ("recipe", "turn", "trained"),
    [
        ("fastgen", "student", {"student"}),
        ("fastgen", "fake_score", {"fake_score", "discriminator"}),
        ("sft", "student", {"student"}),
    ],
)
def test_accumulated_gradients_equal_the_true_batch(recipe: str, turn: str, trained: set[str]) -> None:
    plan = make_plan(recipe=Recipe(name=recipe))
    whole = gradients(replace(plan, batch=Batch(4)), turn)
    parts = gradients(replace(plan, accumulation=Accumulation(4)), turn)
    assert {name for name, values in whole.items() if any(g.abs().sum() > 0 for g in values)} == trained
    for name in trained:
        assert difference(whole[name], parts[name]) < 1e-4


def test_fastgens_gan_reaches_the_student_through_the_teacher() -> None:
    plain, with_gan = (
        gradients(make_plan(recipe=Recipe(name="fastgen", gan_weight=weight)), "student")["student"]
        for weight in (0.0, 10.0)
    )
    assert difference(plain, with_gan) > 1e-3


def test_fastgen_leaves_the_teacher_as_it_was() -> None:
    workload = loaded(make_plan(recipe=Recipe(name="fastgen"), optimizer=Optimizer(learning_rate=1e-2)))
    assert isinstance(workload, FastGen)
    before = [p.clone() for p in workload.teacher.backbone.weights]
    cycle(workload)
    assert all(torch.equal(a, b) for a, b in zip(before, workload.teacher.backbone.weights, strict=True))
    assert all(p.grad is None for p in workload.teacher.backbone.weights)


@pytest.mark.parametrize(
    ("recipe", "networks", "recomputing"),
    [
        ("dmd2", ["student"], {"student"}),
        ("dmd2", ["student", "fake_score"], {"student", "fake_score"}),
        ("dmd2", ["student", "fake_score", "teacher"], {"student", "fake_score"}),
        ("fastgen", ["student", "fake_score", "teacher"], {"student", "fake_score", "teacher"}),
        ("fastgen", [], set()),
        ("sft", ["student"], {"student"}),
    ],
)
def test_checkpointing_recomputes_where_gradients_pass(
    recipe: str, networks: list[str], recomputing: set[str]
) -> None:
    plan = make_plan(recipe=Recipe(name=recipe), checkpointing=Checkpointing("some", networks))
    observed = cycle(loaded(plan))
    assert {name for name, count in observed.recomputations.items() if count} == recomputing


@pytest.mark.parametrize(
    ("optimizer", "precision", "states_per_weight"),
    [("adamw", FP32, 2), ("adamw", BF16, 2), ("adamw", BF16_PURE, 2), ("sgd", FP32, 0)],
)
def test_the_floor_is_counted_from_the_tensors(
    optimizer: str, precision: Precision, states_per_weight: int
) -> None:
    plan = make_plan(optimizer=Optimizer(name=optimizer), precision=precision)
    workload = loaded(plan)
    before = workload.inventory().sizes()
    assert all(size.gradient_bytes == size.state_bytes == 0 for size in before.values())
    cycle(workload)
    sizes = workload.inventory().sizes()
    assert sizes["teacher"].floor_bytes == sizes["teacher"].parameter_bytes
    for name in ("student", "fake_score", "discriminator"):
        size = sizes[name]
        assert size.gradient_bytes == size.parameter_bytes
        states = states_per_weight * size.parameter_bytes
        assert states <= size.state_bytes <= states * 1.01  # AdamW's step counters are on the CPU too here
        assert size.floor_bytes == size.parameter_bytes + size.gradient_bytes + size.state_bytes


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ["gpu", "cpu"])
def test_the_average_follows_the_student_once_a_step(recipe: str, name: str) -> None:
    plan = make_plan(
        recipe=Recipe(name=recipe),
        ema=Ema(name=name, decay=0.5),
        accumulation=Accumulation(2),
        optimizer=Optimizer(name="sgd", learning_rate=1.0),
    )
    workload = loaded(plan)
    before = [p.clone() for p in workload.student.backbone.weights]
    cycle(workload)
    assert workload._average.updates == 1
    for start, average, now in zip(
        before, workload._average.averages, workload.student.backbone.weights, strict=True
    ):
        assert torch.allclose(average, (start + now) / 2, atol=1e-6)


def test_the_kernel_that_ran_is_read_off_the_graph() -> None:
    query = torch.randn(1, 2, 16, 8, requires_grad=True)
    fused = torch.nn.functional.scaled_dot_product_attention(query, query, query)
    assert kernels_in_graph(fused) == ["flash"]  # the CPU's fused kernel goes by that name
    by_hand = (query @ query.transpose(-1, -2)).softmax(-1) @ query
    assert kernels_in_graph(by_hand) == ["math"]
    observed = cycle(loaded(make_plan(resolution=Resolution(128, 128))))
    assert observed.attention == ["flash"]


def test_stages_of_fastgen_and_sft() -> None:
    stages: list[str] = []

    @contextmanager
    def span(stage: str) -> Iterator[None]:
        stages.append(stage)
        yield

    cycle(loaded(make_plan(recipe=Recipe(name="fastgen"), ema=Ema("gpu")), span))
    assert stages == [
        "student.forward",
        "scores.forward",
        "gan.forward",
        "student.backward",
        "student.optimizer",
        "student.ema",
        "student.sample",
        "fake_score.forward",
        "gan.forward",
        "fake_score.backward",
        "fake_score.optimizer",
    ]
    stages.clear()
    cycle(loaded(make_plan(recipe=Recipe(name="sft")), span))
    assert stages == ["student.forward", "student.backward", "student.optimizer"]
