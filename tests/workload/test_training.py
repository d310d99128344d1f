"""The step trains: its gradients move the student's distribution to the data's."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from dmad_sweep.records.settings import Batch, Optimizer, Recipe
from dmad_sweep.workload.condition import Condition
from dmad_sweep.workload.recipes.dmd2 import Dmd2
from dmad_sweep.workload.samples import Samples
from plans import make_plan

BATCH, TEACHER_STEPS, CYCLES, STUDENT_EVERY = 16, 500, 300, 2
LEARNING_RATE = 1e-3


class TwoModes:
    """Latents near +1 or near -1 everywhere, which of the two told by the condition."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def next(self) -> Samples:
        sign = torch.randint(0, 2, (BATCH,), generator=self._generator) * 2.0 - 1
        noise = 0.1 * torch.randn(BATCH, 4, 8, 8, generator=self._generator)
        return Samples(sign.view(-1, 1, 1, 1) + noise, condition_of(sign))


def condition_of(sign: Tensor) -> Condition:
    return Condition(sign.view(-1, 1, 1).expand(-1, 77, 32).contiguous())


def train_teacher(workload: Dmd2, data: TwoModes) -> None:
    """Plain denoising, so that there is a distribution to be matched."""
    workload.teacher.backbone.module.requires_grad_(True)
    optimizer = torch.optim.Adam(workload.teacher.backbone.module.parameters())
    draws = torch.Generator().manual_seed(2)
    for step in range(TEACHER_STEPS):
        samples = data.next()
        noise = torch.randn(samples.latents.shape, generator=draws)
        timestep = torch.randint(0, 1000, (BATCH,), generator=draws)
        noisy = workload._diffusion.add_noise(samples.latents, noise, timestep)
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / TEACHER_STEPS)
        optimizer.zero_grad()
        F.mse_loss(workload.teacher.predict(noisy, timestep, samples.condition), noise).backward()
        optimizer.step()
    workload.teacher.backbone.module.requires_grad_(False)


def distance_to_data(workload: Dmd2) -> tuple[float, float]:
    """Wasserstein-1 distance between means of generated and true latents; share on its condition's side."""
    sign = torch.tensor([1.0, -1.0]).repeat(128)
    noise = torch.randn(256, 4, 8, 8, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        generated = workload.generate(noise, condition_of(sign)).mean(dim=(1, 2, 3))
    distance = (generated.sort().values - sign.sort().values).abs().mean()
    return float(distance), float((generated * sign > 0).float().mean())


def test_a_few_hundred_steps_move_the_student_to_the_data() -> None:
    torch.manual_seed(0)
    recipe = Recipe(
        student_timestep=399,
        guidance_scale=1.0,
        gan_weight=0.3,
        discriminator_weight=0.5,
    )
    workload = Dmd2(
        make_plan(
            batch=Batch(BATCH),
            recipe=recipe,
            optimizer=Optimizer(learning_rate=LEARNING_RATE, weight_decay=0.0),
        ),
        torch.device("cpu"),
        lambda _: nullcontext(),
    )
    workload.load()
    data = TwoModes(seed=1)
    train_teacher(workload, data)
    for network in (workload.student, workload.fake_score):
        network.backbone.module.load_state_dict(workload.teacher.backbone.module.state_dict())
    workload._feed = data  # type: ignore[assignment]
    before, _ = distance_to_data(workload)
    for cycle in range(1, CYCLES + 1):
        for trainer in workload.trainers.values():
            trainer.optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - (cycle - 1) / CYCLES)
        for turn in workload.turns if cycle % STUDENT_EVERY == 0 else ("fake_score",):
            workload.fetch(cycle, turn)
            workload.run(cycle, turn)
    after, on_its_side = distance_to_data(workload)
    assert before > 0.8  # one step of the teacher gives the mean of both modes
    assert after < 0.6 * before
    assert on_its_side > 0.95
