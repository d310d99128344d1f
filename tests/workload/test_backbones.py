"""Every family of networks, small: predictions, features, checkpointing, adapters, whole recipes."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.settings import Adapter, Batch, Checkpointing, Ema, Model, Recipe, Resolution
from dmad_sweep.workload import architectures
from dmad_sweep.workload.architectures import ARCHITECTURES
from dmad_sweep.workload.condition import Condition
from dmad_sweep.workload.create import create_workload
from dmad_sweep.workload.networks import NetworkFactory
from plans import make_plan

CPU = torch.device("cpu")

SMALL: dict[str, dict[str, Any]] = {
    "tiny": {},
    "pixart_sigma": {
        "num_layers": 3,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "cross_attention_dim": 16,
        "caption_channels": 32,
    },
    "sana_0.6b": {
        "num_layers": 3,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 8,
        "cross_attention_dim": 16,
        "caption_channels": 32,
    },
    "sd3_medium": {
        "num_layers": 3,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "joint_attention_dim": 32,
        "caption_projection_dim": 16,
        "pooled_projection_dim": 24,
    },
    "flux_schnell": {
        "num_layers": 1,
        "num_single_layers": 3,
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "joint_attention_dim": 32,
        "pooled_projection_dim": 24,
        "axes_dims_rope": (4, 6, 6),
    },
}
LORA = Adapter(name="lora", networks=["student", "fake_score"], rank=4)


@pytest.fixture(params=list(SMALL))
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan for a shrunk model of each family, at a size that is not square."""
    name = request.param
    whole = ARCHITECTURES[name]
    monkeypatch.setitem(
        architectures.ARCHITECTURES,
        name,
        replace(whole, config={**whole.config, **SMALL[name]}, text_tokens=5),
    )
    return make_plan(model=Model(name), batch=Batch(2), resolution=Resolution(128, 192))


def inputs(plan: Plan, factory: NetworkFactory) -> tuple[Tensor, Tensor, Condition]:
    torch.manual_seed(1)
    backbone = factory.frozen("probe").backbone
    factor = factory.pixels_per_latent
    latents = torch.randn(
        2, backbone.latent_channels, plan.resolution.height // factor, plan.resolution.width // factor
    )
    pooled = None if backbone.pooled_width is None else torch.randn(2, backbone.pooled_width)
    return latents, torch.tensor([3, 700]), Condition(torch.randn(2, 5, backbone.text_width), pooled)


def _keep_gradients(trainer: Any, step: Any, seen: dict[str, list[Tensor]], name: str) -> None:
    assert all(p.grad is not None for p in trainer.parameters)
    seen[name] = [p.grad.clone() for p in trainer.parameters]
    step()


def test_prediction_and_features_have_their_shapes(plan: Plan) -> None:
    factory = NetworkFactory(plan, CPU)
    network = factory.trained("student")
    latents, timestep, condition = inputs(plan, factory)
    predicted, features = network.predict_with_features(latents, timestep, condition)
    assert predicted.shape == latents.shape
    assert features.shape == (2, *network.backbone.feature_shape(*latents.shape[2:]))
    assert torch.equal(features, network.features(latents, timestep, condition))
    assert factory.head(network)(features).shape == (2,)


def test_features_keep_their_places(plan: Plan) -> None:
    """What is noised at the right edge of the latents moves the right edge of the map most."""
    factory = NetworkFactory(plan, CPU)
    network = factory.frozen("teacher")
    latents, timestep, condition = inputs(plan, factory)
    touched = latents.clone()
    touched[..., -1] += 3
    moved = network.features(touched, timestep, condition) - network.features(latents, timestep, condition)
    by_column = moved.abs().mean(dim=(0, 1, 2))
    assert by_column.argmax() == len(by_column) - 1


def test_timesteps_and_text_matter(plan: Plan) -> None:
    factory = NetworkFactory(plan, CPU)
    network = factory.frozen("teacher")
    # Transformers start with gates that are zero, through which neither would be seen.
    for parameter in network.backbone.weights:
        torch.nn.init.normal_(parameter, std=0.2)
    latents, timestep, condition = inputs(plan, factory)
    predicted = network.predict(latents, timestep, condition)
    assert not torch.equal(predicted, network.predict(latents, timestep + 100, condition))
    assert not torch.equal(predicted, network.predict(latents, timestep, condition.empty()))


@pytest.mark.parametrize("adapter", [Adapter(), LORA], ids=["full", "lora"])
@pytest.mark.parametrize("recipe", ["dmd2", "fastgen"])
def test_checkpointing_changes_no_gradient(plan: Plan, recipe: str, adapter: Adapter) -> None:
    gradients = []
    everything = Checkpointing(name="all", networks=["student", "fake_score", "teacher"])
    for checkpointing in (Checkpointing(), everything):
        changed = replace(plan, checkpointing=checkpointing, adapter=adapter, recipe=Recipe(name=recipe))
        workload: Any = create_workload(changed, CPU, lambda _: nullcontext())
        workload.load()
        seen: dict[str, list[Tensor]] = {}
        for name, trainer in workload.trainers.items():
            trainer.step = partial(_keep_gradients, trainer, trainer.step, seen, name)
        for turn in workload.turns:
            workload.fetch(1, turn)
            workload.run(1, turn)
        gradients.append(seen)
        counted = workload.inventory().observed().recomputations
        if checkpointing.networks:
            assert counted["student"] > 0
            assert counted["fake_score"] > 0
        else:
            assert set(counted.values()) == {0}
    for name, plain in gradients[0].items():
        for first, second in zip(plain, gradients[1][name], strict=True):
            torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-7)


def test_adapters_share_one_frozen_backbone(plan: Plan) -> None:
    changed = replace(plan, adapter=LORA, ema=Ema(name="gpu"))
    workload: Any = create_workload(changed, CPU, lambda _: nullcontext())
    workload.load()
    assert workload.student.backbone is workload.teacher.backbone is workload.fake_score.backbone
    frozen = {p: p.clone() for p in workload.teacher.backbone.weights}
    adapters = {p: p.clone() for p in (*workload.student.trained, *workload.fake_score.trained)}
    for cycle in (1, 2):  # the second cycle moves the first factor too: the other starts at zero
        for turn in workload.turns:
            workload.fetch(cycle, turn)
            workload.run(cycle, turn)
    assert all(torch.equal(p, before) for p, before in frozen.items())
    assert all(not torch.equal(p, before) for p, before in adapters.items())
    sizes = workload.inventory().sizes()
    whole = sum(p.numel() for p in workload.teacher.backbone.weights)
    assert sizes["teacher"].parameters == whole
    assert sizes["teacher"].trained_parameters == 0
    assert 0 < sizes["student"].parameters == sizes["student"].trained_parameters < whole
    assert sizes["student"].state_bytes >= 2 * sizes["student"].parameter_bytes


def test_a_network_without_an_adapter_is_whole(plan: Plan) -> None:
    changed = replace(plan, adapter=Adapter(name="lora_student", networks=["student"], rank=4))
    workload: Any = create_workload(changed, CPU, lambda _: nullcontext())
    workload.load()
    assert workload.student.backbone is workload.teacher.backbone
    assert workload.fake_score.backbone is not workload.teacher.backbone
    assert workload.fake_score.trained == workload.fake_score.backbone.weights


def test_the_adapted_student_starts_as_the_teacher_and_leaves_it(plan: Plan) -> None:
    factory = NetworkFactory(replace(plan, adapter=LORA), CPU)
    teacher, student, fake = (
        factory.frozen("teacher"),
        factory.trained("student"),
        factory.trained("fake_score"),
    )
    latents, timestep, condition = inputs(plan, factory)
    for parameter in teacher.backbone.weights:
        torch.nn.init.normal_(parameter, std=0.2)
    start = teacher.predict(latents, timestep, condition)
    assert torch.equal(start, student.predict(latents, timestep, condition))
    for parameter in student.trained:
        torch.nn.init.normal_(parameter, std=0.2)
    assert torch.equal(start, teacher.predict(latents, timestep, condition))
    assert torch.equal(start, fake.predict(latents, timestep, condition))
    assert not torch.equal(start, student.predict(latents, timestep, condition))
