"""The forward diffusion of Stable Diffusion and its inverse for noise-predicting networks."""

import torch
from torch import Tensor

TIMESTEPS = 1000


class NoiseSchedule:
    """Variance-preserving noise with the `scaled_linear` betas that SD1.5 and SDXL were trained with.

    Betas 0.00085 to 0.012, linear in their square roots (scheduler configuration of both models).
    """

    def __init__(self, device: torch.device) -> None:
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, TIMESTEPS, dtype=torch.float64) ** 2
        signal_power = torch.cumprod(1 - betas, dim=0)
        self._signal = signal_power.sqrt().float().to(device)
        self._noise = (1 - signal_power).sqrt().float().to(device)

    def add_noise(self, clean: Tensor, noise: Tensor, timestep: Tensor) -> Tensor:
        """Latents (B, C, h, w) noised to `timestep` (B,), as float32."""
        return self._at(self._signal, timestep) * clean + self._at(self._noise, timestep) * noise

    def clean_from_noise(self, noisy: Tensor, predicted_noise: Tensor, timestep: Tensor) -> Tensor:
        """Clean latents (B, C, h, w) that `predicted_noise` implies, as float32."""
        remainder = noisy.float() - self._at(self._noise, timestep) * predicted_noise.float()
        return remainder / self._at(self._signal, timestep)

    @staticmethod
    def _at(values: Tensor, timestep: Tensor) -> Tensor:
        return values[timestep].view(-1, 1, 1, 1)
