"""FastGen's DMD2 (NVlabs/FastGen, methods/distribution_matching/dmd2.py): the GAN on the teacher's features.

In the student turn gradients flow through the teacher, which runs once with gradients (its prediction
serves distribution matching, its features the GAN) and once without for the negative condition. In the
fake-score turn the fake score learns to denoise and the head to tell teacher features apart, each with an
optimizer of its own; only the student's gradients are clipped.
"""

import torch
import torch.nn.functional as F

from dmad_sweep.workload.diffusion import TIMESTEPS
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.recipes.distillation import DM_TIMESTEPS, Distillation


class FastGen(Distillation):
    """An iteration is a student turn or a fake-score turn, never both."""

    def _build_trainers(self) -> dict[str, Trainer]:
        return {
            "student": self._factory.trainer(self.student.trained),
            "fake_score": self._factory.trainer(self.fake_score.trained, clipped=False),
            "discriminator": self._factory.trainer(self.head.parameters(), clipped=False),
        }

    def _student_turn(self, draws: Draws) -> None:
        recipe, count, latents = self._recipe, len(self._samples.latents), self._samples.latents
        start, noise = draws.noise_like(latents), draws.noise_like(latents)
        timesteps = draws.timesteps(count, *DM_TIMESTEPS)
        self.head.requires_grad_(False)
        for part, samples in self._micro_batches():
            condition, timestep = samples.condition, timesteps[part]
            with self._span("student.forward"):
                generated = self.generate(start[part], condition)
                noisy = self._diffusion.add_noise(generated, noise[part], timestep)
            with self._span("scores.forward"), torch.no_grad():
                by_fake = self.fake_score.predict(noisy, timestep, condition)
                negative = self.teacher.predict(noisy, timestep, condition.empty())
            with self._span("gan.forward"):
                positive, features = self.teacher.predict_with_features(noisy, timestep, condition)
                with torch.no_grad():
                    direction = self._matching_direction(
                        generated, noisy, timestep, by_fake, self._guided(negative, positive)
                    )
                matching = 0.5 * F.mse_loss(generated, generated.detach() - direction)
                loss = matching + recipe.gan_weight * F.softplus(-self._logits(features)).mean()
            with self._span("student.backward"):
                self.trainers["student"].backward(loss)
            del generated, noisy, by_fake, negative, positive, features, direction, matching, loss
        self.head.requires_grad_(True)
        with self._span("student.optimizer"):
            self.trainers["student"].step()

    def _fake_score_turn(self, draws: Draws) -> None:
        recipe, count, latents = self._recipe, len(self._samples.latents), self._samples.latents
        start, denoising_noise, real_noise, fake_noise = (draws.noise_like(latents) for _ in range(4))
        denoising_timestep = draws.timesteps(count, 0, TIMESTEPS)
        real_timestep, fake_timestep = (draws.timesteps(count, 0, recipe.gan_max_timestep) for _ in range(2))
        for part, samples in self._micro_batches():
            condition = samples.condition
            with self._span("student.sample"), torch.no_grad():
                generated = self.generate(start[part], condition)
            with self._span("fake_score.forward"):
                added, timestep = denoising_noise[part], denoising_timestep[part]
                noisy = self._diffusion.add_noise(generated, added, timestep)
                target = self._diffusion.target(generated, added)
                denoising = F.mse_loss(self.fake_score.predict(noisy, timestep, condition), target)
            with self._span("gan.forward"):
                with torch.no_grad():
                    real_features, fake_features = (
                        self.teacher.features(
                            self._diffusion.add_noise(clean, noise[part], step[part]), step[part], condition
                        )
                        for clean, noise, step in (
                            (samples.latents, real_noise, real_timestep),
                            (generated, fake_noise, fake_timestep),
                        )
                    )
                telling_apart = (
                    F.softplus(self._logits(fake_features)).mean()
                    + F.softplus(-self._logits(real_features)).mean()
                )
            with self._span("fake_score.backward"):
                self.trainers["fake_score"].backward(denoising)
                self.trainers["discriminator"].backward(telling_apart)
            del generated, noisy, target, denoising, real_features, fake_features, telling_apart
        with self._span("fake_score.optimizer"):
            self.trainers["fake_score"].step()
            self.trainers["discriminator"].step()
