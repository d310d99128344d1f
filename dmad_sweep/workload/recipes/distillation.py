"""What the distillation recipes share: networks, the one-step student, distribution matching."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.condition import Condition
from dmad_sweep.workload.diffusion import TIMESTEPS
from dmad_sweep.workload.draws import Draws
from dmad_sweep.workload.inventory import Inventory
from dmad_sweep.workload.networks import Feed, NetworkFactory
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.protocol import Span
from dmad_sweep.workload.samples import Samples

DM_TIMESTEPS = (int(0.02 * TIMESTEPS), int(0.98 * TIMESTEPS) + 1)
"""Timesteps at which the two scores are compared (min_step_percent, max_step_percent of DMD2)."""


class Distillation(ABC):
    """A student turn and a fake-score turn on teacher, student, fake score and discriminator head."""

    turns = ("student", "fake_score")

    def __init__(self, plan: Plan, device: torch.device, span: Span) -> None:
        self._plan, self._recipe, self._device, self._span = plan, plan.recipe, device, span
        self._factory = NetworkFactory(plan, device)
        self.micro_batch = plan.batch.size

    def load(self) -> None:
        factory = self._factory
        factory.prepare()
        self.teacher = factory.frozen("teacher")
        self.student = factory.trained("student")
        self.fake_score = factory.trained("fake_score")
        self.head = factory.head(self.teacher)
        self._diffusion = factory.diffusion()
        self.trainers = self._build_trainers()
        self._average = factory.average(self.student)
        self._feed = Feed(self._plan, self.student, self._device)

    def fetch(self, cycle: int, turn: str) -> None:
        self._samples = self._feed.next()

    def run(self, cycle: int, turn: str) -> None:
        draws = Draws(self._device, self._plan.data.seed, cycle, self.turns.index(turn))
        if turn == "student":
            self._student_turn(draws)
            if self._average is not None:
                with self._span("student.ema"):
                    self._average.update()
        else:
            self._fake_score_turn(draws)

    def inventory(self) -> Inventory:
        return Inventory(
            student=self.student,
            networks={"teacher": self.teacher, "student": self.student, "fake_score": self.fake_score},
            trainers=self.trainers,
            pixels_per_latent=self._factory.pixels_per_latent,
            head=self.head,
            average=self._average,
        )

    def generate(self, noise: Tensor, condition: Condition) -> Tensor:
        """The one-step student: clean latents (B, C, h, w) from noise of the same shape, float32."""
        timestep = torch.full((len(noise),), self._recipe.student_timestep, device=self._device)
        predicted = self.student.predict(noise, timestep, condition)
        return self._diffusion.clean_from(noise, predicted, timestep)

    @abstractmethod
    def _build_trainers(self) -> dict[str, Trainer]:
        """One for each optimizer; called on loaded networks."""

    @abstractmethod
    def _student_turn(self, draws: Draws) -> None: ...

    @abstractmethod
    def _fake_score_turn(self, draws: Draws) -> None: ...

    def _micro_batches(self) -> Iterator[tuple[slice, Samples]]:
        size = self.micro_batch
        for start in range(0, len(self._samples.latents), size):
            part = slice(start, start + size)
            yield part, self._samples[part]

    def _matching_direction(
        self, generated: Tensor, noisy: Tensor, timestep: Tensor, by_fake: Tensor, by_teacher: Tensor
    ) -> Tensor:
        """Gradient of distribution matching with respect to `generated` (equations 7 and 8 of DMD).

        The difference of the clean latents that the predictions of fake score and guided teacher imply for
        the same noisy one, normalised per sample.
        """
        seen_by_fake = self._diffusion.clean_from(noisy, by_fake, timestep)
        seen_by_teacher = self._diffusion.clean_from(noisy, by_teacher, timestep)
        scale = (generated - seen_by_teacher).abs().mean(dim=(1, 2, 3), keepdim=True)
        return torch.nan_to_num((seen_by_fake - seen_by_teacher) / scale)

    def _guided(self, negative: Tensor, positive: Tensor) -> Tensor:
        """Classifier-free guidance."""
        return negative + self._recipe.guidance_scale * (positive - negative)

    def _logits(self, features: Tensor) -> Tensor:
        """The head's logits (B,), float32; the head's weights are of the regime's type, without autocast."""
        logits: Tensor = self.head(features.to(next(self.head.parameters()).dtype))
        return logits.float()
