"""Random draws of a turn: made once for the effective batch, then sliced into micro-batches.

So a micro-batch of 4 and four micro-batches of 1 see the same numbers.
"""

import torch
from torch import Tensor


class Draws:
    """A generator seeded by what the draw is for: seed, cycle and turn."""

    def __init__(self, device: torch.device, *key: int) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(mix(*key))
        self._device = device

    def noise_like(self, latents: Tensor) -> Tensor:
        """Standard normal float32 of the same shape."""
        return torch.randn(latents.shape, generator=self._generator, device=self._device)

    def timesteps(self, count: int, low: int, high: int) -> Tensor:
        """`count` timesteps in [low, high)."""
        return torch.randint(low, high, (count,), generator=self._generator, device=self._device)


def mix(*key: int) -> int:
    """One 63-bit seed from several small integers (the multiply-and-add of a polynomial hash)."""
    seed = 0x9E3779B97F4A7C15
    for part in key:
        seed = (seed * 6364136223846793005 + part + 1442695040888963407) % 2**63
    return seed
