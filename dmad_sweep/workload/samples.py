"""The samples that a sweep trains on: sample *i* is the same in every combination."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dmad_sweep.workload.condition import Condition
from dmad_sweep.workload.draws import Draws

WAVES = 8


@dataclass(frozen=True)
class Samples:
    """Clean latents (n, C, h, w) float32 with their conditions, in order."""

    latents: Tensor
    condition: Condition

    def to(self, device: torch.device) -> "Samples":
        return Samples(self.latents.to(device), self.condition.to(device))

    def __getitem__(self, part: slice) -> "Samples":
        return Samples(self.latents[part], self.condition[part])


class LatentSource(Protocol):
    """Latents by sample id."""

    def latent(self, sample_id: int) -> Tensor:
        """(C, h, w), float32, on the CPU."""

    def __len__(self) -> int: ...


class SyntheticLatents:
    """Smooth random fields: a few plane waves drawn from the id, so one id is one picture at every size."""

    def __init__(self, count: int, channels: int, height: int, width: int, seed: int) -> None:
        self._count, self._channels, self._seed = count, channels, seed
        self._y = torch.linspace(0, 1, height)[:, None]
        self._x = torch.linspace(0, 1, width)[None, :]

    def __len__(self) -> int:
        return self._count

    def latent(self, sample_id: int) -> Tensor:
        draws = Draws(torch.device("cpu"), self._seed, sample_id)
        shape = torch.empty(self._channels, WAVES, 1, 1)
        amplitude, phase = draws.noise_like(shape), draws.noise_like(shape) * math.pi
        across, down = 4 * draws.noise_like(shape), 4 * draws.noise_like(shape)
        waves = amplitude * torch.cos(2 * math.pi * (across * self._x + down * self._y) + phase)
        return waves.sum(dim=1) * math.sqrt(2 / WAVES)  # unit variance, as scaled latents have


class SampleList:
    """Samples by id from a source of latents, with random text embeddings derived from the id."""

    def __init__(
        self, latents: LatentSource, *, text_shape: tuple[int, int], pooled_width: int | None, seed: int
    ) -> None:
        self._latents = latents
        self._text_shape, self._pooled_width, self._seed = text_shape, pooled_width, seed

    def step(self, index: int, effective_batch: int) -> Samples:
        """Samples of optimizer step `index`: ids iE to (i+1)E-1, from the start again after the last."""
        first = index * effective_batch
        return self.collect([(first + i) % len(self._latents) for i in range(effective_batch)])

    def collect(self, ids: Sequence[int]) -> Samples:
        texts, pooled = [], []
        for sample_id in ids:
            draws = Draws(torch.device("cpu"), self._seed, sample_id, 1)
            texts.append(draws.noise_like(torch.empty(self._text_shape)))
            if self._pooled_width is not None:
                pooled.append(draws.noise_like(torch.empty(self._pooled_width)))
        condition = Condition(torch.stack(texts), torch.stack(pooled) if pooled else None)
        return Samples(torch.stack([self._latents.latent(i) for i in ids]), condition)
