"""Plain denoising fine-tuning of the student: the control without teacher, fake score and discriminator."""

import torch
import torch.nn.functional as F

from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.diffusion import TIMESTEPS
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.inventory import Inventory
from dmad_sweep.workload.networks import Feed, NetworkFactory
from dmad_sweep.workload.protocol import Span


class Sft:
    """One turn: predict the noise (or velocity) of noised latents."""

    turns = ("student",)

    def __init__(self, plan: Plan, device: torch.device, span: Span) -> None:
        self._plan, self._device, self._span = plan, device, span
        self._factory = NetworkFactory(plan, device)
        self.micro_batch = plan.batch.size

    def load(self) -> None:
        self._factory.prepare()
        self.student = self._factory.trained("student")
        self._diffusion = self._factory.diffusion()
        self.trainers = {"student": self._factory.trainer(self.student.trained)}
        self._average = self._factory.average(self.student)
        self._feed = Feed(self._plan, self.student, self._device)

    def fetch(self, cycle: int, turn: str) -> None:
        self._samples = self._feed.next()

    def run(self, cycle: int, turn: str) -> None:
        draws = Draws(self._device, self._plan.data.seed, cycle)
        latents, size = self._samples.latents, self.micro_batch
        noise, timesteps = draws.noise_like(latents), draws.timesteps(len(latents), 0, TIMESTEPS)
        for start in range(0, len(latents), size):
            part = slice(start, start + size)
            samples, timestep = self._samples[part], timesteps[part]
            with self._span("student.forward"):
                noisy = self._diffusion.add_noise(samples.latents, noise[part], timestep)
                predicted = self.student.predict(noisy, timestep, samples.condition)
                loss = F.mse_loss(predicted, self._diffusion.target(samples.latents, noise[part]))
            with self._span("student.backward"):
                self.trainers["student"].backward(loss)
            del noisy, predicted, loss
        with self._span("student.optimizer"):
            self.trainers["student"].step()
        if self._average is not None:
            with self._span("student.ema"):
                self._average.update()

    def inventory(self) -> Inventory:
        return Inventory(
            student=self.student,
            networks={"student": self.student},
            trainers=self.trainers,
            pixels_per_latent=self._factory.pixels_per_latent,
            average=self._average,
        )
