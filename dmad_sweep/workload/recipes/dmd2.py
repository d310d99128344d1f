"""DMD2 (Yin et al. 2024, arXiv 2405.14867): distribution matching and a GAN on the fake score's features.

The two turns of a cycle follow main/sd_unified_model.py and main/sd_guidance.py of its repository, with
one difference that is on purpose: DMD2 runs its gradient-free forwards of student and fake score in
float32 outside autocast; here every forward runs in the regime under test.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dmad_sweep.workload.condition import Condition, join
from dmad_sweep.workload.diffusion import TIMESTEPS
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.recipes.distillation import DM_TIMESTEPS, Distillation


class Dmd2(Distillation):
    """The fake score is denoiser and discriminator in one; its three graphs are back-propagated together."""

    def _build_trainers(self) -> dict[str, Trainer]:
        return {
            "student": self._factory.trainer(self.student.trained),
            "fake_score": self._factory.trainer(self.fake_score.trained, self.head.parameters()),
        }

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
                direction = self._direction(generated, dm_noise[part], dm_timestep[part], condition)
            with self._span("gan.forward"):
                matching = 0.5 * F.mse_loss(generated, generated.detach() - direction)
                realness = self._realness(generated, gan_noise[part], gan_timestep[part], condition)
                loss = matching + recipe.gan_weight * F.softplus(-realness).mean()
            with self._span("student.backward"):
                self.trainers["student"].backward(loss)
            del generated, direction, matching, realness, loss
        self.fake_score.train_weights(True)
        self.head.requires_grad_(True)
        with self._span("student.optimizer"):
            self.trainers["student"].step()

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
                added, timestep = denoising_noise[part], denoising_timestep[part]
                noisy = self._diffusion.add_noise(generated, added, timestep)
                target = self._diffusion.target(generated, added)
                denoising = F.mse_loss(self.fake_score.predict(noisy, timestep, condition), target)
                real = self._realness(samples.latents, real_noise[part], real_timestep[part], condition)
                fake = self._realness(generated, fake_noise[part], fake_timestep[part], condition)
                telling_apart = F.softplus(fake).mean() + F.softplus(-real).mean()
                loss = denoising + recipe.discriminator_weight * telling_apart
            with self._span("fake_score.backward"):
                self.trainers["fake_score"].backward(loss)
            del generated, noisy, target, denoising, real, fake, telling_apart, loss
        with self._span("fake_score.optimizer"):
            self.trainers["fake_score"].step()

    def _direction(self, generated: Tensor, noise: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Distribution matching; the teacher's negative and positive pass are one batch of twice the size."""
        noisy = self._diffusion.add_noise(generated, noise, timestep)
        by_fake = self.fake_score.predict(noisy, timestep, condition)
        both = self.teacher.predict(
            torch.cat([noisy, noisy]), torch.cat([timestep, timestep]), join(condition.empty(), condition)
        )
        return self._matching_direction(generated, noisy, timestep, by_fake, self._guided(*both.chunk(2)))

    def _realness(self, latents: Tensor, noise: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Logits (B,) of the head on the fake score's features of re-noised latents."""
        noisy = self._diffusion.add_noise(latents, noise, timestep)
        return self._logits(self.fake_score.features(noisy, timestep, condition))
