"""The baseline: the student's forward alone, without gradients, in the compute type."""

import torch

from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.inventory import Inventory
from dmad_sweep.workload.networks import Feed, NetworkFactory
from dmad_sweep.workload.protocol import Span


class Baseline:
    """What the card holds before training starts."""

    turns = ("inference",)

    def __init__(self, plan: Plan, device: torch.device, span: Span) -> None:
        self._plan, self._device, self._span = plan, device, span
        self._factory = NetworkFactory(plan, device)

    def load(self) -> None:
        self._factory.prepare()
        self.student = self._factory.frozen("student")
        self._feed = Feed(self._plan, self.student, self._device)

    def fetch(self, cycle: int, turn: str) -> None:
        self._samples = self._feed.next()

    def run(self, cycle: int, turn: str) -> None:
        draws = Draws(self._device, self._plan.data.seed, cycle)
        noise = draws.noise_like(self._samples.latents)
        size = self._plan.batch.size
        for start in range(0, len(noise), size):
            part = slice(start, start + size)
            timestep = torch.full((size,), self._plan.recipe.student_timestep, device=self._device)
            with self._span("student.forward"), torch.no_grad():
                self.student.predict(noise[part], timestep, self._samples[part].condition)

    def inventory(self) -> Inventory:
        return Inventory(
            student=self.student,
            networks={"student": self.student},
            trainers={},
            pixels_per_latent=self._factory.pixels_per_latent,
        )
