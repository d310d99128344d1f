"""DMD2 (Yin et al. 2024, arXiv 2405.14867): distribution matching and a GAN on the fake score's features.

The two turns of a cycle follow main/sd_unified_model.py and main/sd_guidance.py of its repository, with
one difference that is on purpose: DMD2 runs its gradient-free forwards of student and fake score in
float32 outside autocast; here every forward runs in the regime under test.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.result import NetworkSize, Observed
from dmad_sweep.workload.diffusion import TIMESTEPS, NoiseSchedule
from dmad_sweep.workload.discriminator import DiscriminatorHead, feature_size
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.networks import Feed, NetworkFactory, observe
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.protocol import Span
from dmad_sweep.workload.samples import Samples
from dmad_sweep.workload.score import Condition, join, size_of

DM_TIMESTEPS = (int(0.02 * TIMESTEPS), int(0.98 * TIMESTEPS) + 1)
"""Timesteps at which the two scores are compared (min_step_percent, max_step_percent of DMD2)."""


class Dmd2:
    """One-step student, its fake score, the frozen teacher and the discriminator head."""

    turns = ("student", "fake_score")

    def __init__(self, plan: Plan, device: torch.device, span: Span) -> None:
        self._plan, self._recipe, self._device, self._span = plan, plan.recipe, device, span
        self._factory = NetworkFactory(plan, device)

    def load(self) -> None:
        plan, factory = self._plan, self._factory
        factory.regime.apply_globally()
        self.teacher = factory.frozen()
        self.student = factory.trained("student")
        self.fake_score = factory.trained("fake_score")
        self.head = self._build_head()
        self._schedule = NoiseSchedule(self._device)
        micro_steps = plan.accumulation.steps
        self._student_trainer = Trainer([self.student.unet], self._recipe, factory.regime, micro_steps)
        self._fake_score_trainer = Trainer(
            [self.fake_score.unet, self.head], self._recipe, factory.regime, micro_steps
        )
        self._feed = Feed(plan, self.student, self._device)

    def fetch(self, cycle: int, turn: str) -> None:
        self._samples = self._feed.next()

    def run(self, cycle: int, turn: str) -> None:
        draws = Draws(self._device, self._plan.data.seed, cycle, self.turns.index(turn))
        if turn == "student":
            self._student_turn(draws)
        else:
            self._fake_score_turn(draws)

    def sizes(self) -> dict[str, NetworkSize]:
        return {
            "teacher": self.teacher.size(),
            "student": self.student.size(),
            "fake_score": self.fake_score.size(),
            "discriminator": size_of(self.head),
        }

    def observed(self) -> Observed:
        steps = {"student": self._student_trainer.steps, "fake_score": self._fake_score_trainer.steps}
        return observe(self.student, self._factory, steps)

    def generate(self, noise: Tensor, condition: Condition) -> Tensor:
        """The one-step student: clean latents (B, C, h, w) from noise of the same shape, float32."""
        timestep = torch.full((len(noise),), self._recipe.student_timestep, device=self._device)
        predicted = self.student.predict_noise(noise, timestep, condition)
        return self._schedule.clean_from_noise(noise, predicted, timestep)

    def _student_turn(self, draws: Draws) -> None:
        recipe, count, latents = self._recipe, len(self._samples.latents), self._samples.latents
        noise, dm_noise, gan_noise = (draws.noise_like(latents) for _ in range(3))
        dm_timestep = draws.timesteps(count, *DM_TIMESTEPS)
        gan_timestep = draws.timesteps(count, 0, recipe.gan_max_timestep)
        self.fake_score.train_weights(False)
        self.head.requires_grad_(False)
        for part, samples in self._micro_batches():
            condition = samples.condition
            with self._span("student.forward"):
                generated = self.generate(noise[part], condition)
            with self._span("scores.forward"), torch.no_grad():
                direction = self._matching_direction(generated, dm_noise[part], dm_timestep[part], condition)
            with self._span("gan.forward"):
                matching = 0.5 * F.mse_loss(generated, generated.detach() - direction)
                realness = self._realness(generated, gan_noise[part], gan_timestep[part], condition)
                loss = matching + recipe.gan_weight * F.softplus(-realness).mean()
            with self._span("student.backward"):
                self._student_trainer.backward(loss)
            del generated, direction, matching, realness, loss
        self.fake_score.train_weights(True)
        self.head.requires_grad_(True)
        with self._span("student.optimizer"):
            self._student_trainer.step()

    def _fake_score_turn(self, draws: Draws) -> None:
        recipe, count, latents = self._recipe, len(self._samples.latents), self._samples.latents
        noise, denoising_noise, real_noise, fake_noise = (draws.noise_like(latents) for _ in range(4))
        denoising_timestep = draws.timesteps(count, 0, TIMESTEPS)
        real_timestep, fake_timestep = (draws.timesteps(count, 0, recipe.gan_max_timestep) for _ in range(2))
        for part, samples in self._micro_batches():
            condition = samples.condition
            with self._span("student.sample"), torch.no_grad():
                generated = self.generate(noise[part], condition)
            with self._span("fake_score.forward"):
                target, timestep = denoising_noise[part], denoising_timestep[part]
                noisy = self._schedule.add_noise(generated, target, timestep)
                denoising = F.mse_loss(self.fake_score.predict_noise(noisy, timestep, condition), target)
                real = self._realness(samples.latents, real_noise[part], real_timestep[part], condition)
                fake = self._realness(generated, fake_noise[part], fake_timestep[part], condition)
                telling_apart = F.softplus(fake).mean() + F.softplus(-real).mean()
                loss = denoising + recipe.discriminator_weight * telling_apart
            with self._span("fake_score.backward"):
                self._fake_score_trainer.backward(loss)
            del generated, noisy, denoising, real, fake, telling_apart, loss
        with self._span("fake_score.optimizer"):
            self._fake_score_trainer.step()

    def _micro_batches(self) -> Iterator[tuple[slice, Samples]]:
        size = self._plan.batch.size
        for start in range(0, len(self._samples.latents), size):
            part = slice(start, start + size)
            yield part, self._samples[part]

    def _matching_direction(
        self, generated: Tensor, noise: Tensor, timestep: Tensor, condition: Condition
    ) -> Tensor:
        """Gradient of distribution matching with respect to `generated` (equation 7 and 8 of DMD).

        The difference of the clean latents that fake score and guided teacher see in the same noisy one,
        normalised per sample.
        """
        noisy = self._schedule.add_noise(generated, noise, timestep)
        seen_by_fake = self._schedule.clean_from_noise(
            noisy, self.fake_score.predict_noise(noisy, timestep, condition), timestep
        )
        seen_by_teacher = self._schedule.clean_from_noise(
            noisy, self._guided_teacher(noisy, timestep, condition), timestep
        )
        scale = (generated - seen_by_teacher).abs().mean(dim=(1, 2, 3), keepdim=True)
        return torch.nan_to_num((seen_by_fake - seen_by_teacher) / scale)

    def _guided_teacher(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Classifier-free guidance, the negative and the positive pass as one batch of twice the size."""
        both = self.teacher.predict_noise(
            torch.cat([noisy, noisy]), torch.cat([timestep, timestep]), join(condition.empty(), condition)
        )
        negative, positive = both.chunk(2)
        return negative + self._recipe.guidance_scale * (positive - negative)

    def _realness(self, latents: Tensor, noise: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Logits (B,) of the head on the fake score's features of re-noised latents."""
        noisy = self._schedule.add_noise(latents, noise, timestep)
        logits: Tensor = self.head(self.fake_score.features(noisy, timestep, condition))
        return logits

    def _build_head(self) -> DiscriminatorHead:
        config = self.fake_score.unet.config
        downsamplings = len(config.block_out_channels) - 1
        height, width = (
            feature_size(side // self._factory.pixels_per_latent, downsamplings)
            for side in (self._plan.resolution.height, self._plan.resolution.width)
        )
        torch.manual_seed(self._plan.data.seed)
        with self._device:
            return DiscriminatorHead(config.block_out_channels[-1], height, width)
