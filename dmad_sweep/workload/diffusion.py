"""How latents are noised, what a network predicts, and what its prediction says of clean latents."""

from typing import Protocol

import torch
from torch import Tensor

from dmad_sweep.workload.architectures import Architecture

TIMESTEPS = 1000


class Diffusion(Protocol):
    """Latents, noise and predictions are (B, C, h, w) float32, timesteps (B,) integers below 1000."""

    def add_noise(self, clean: Tensor, noise: Tensor, timestep: Tensor) -> Tensor: ...

    def target(self, clean: Tensor, noise: Tensor) -> Tensor:
        """What a perfect network predicts for `clean` noised with `noise`."""

    def clean_from(self, noisy: Tensor, predicted: Tensor, timestep: Tensor) -> Tensor:
        """The clean latents that a prediction implies."""


class NoisePrediction:
    """Variance-preserving noise; the network predicts it.

    Betas are linear in their square roots (`scaled_linear`, SD1.5 and SDXL) or linear (PixArt-Σ), from the
    scheduler configurations of the models.
    """

    def __init__(self, architecture: Architecture, device: torch.device) -> None:
        first, last = architecture.betas
        if architecture.beta_schedule == "scaled_linear":
            betas = torch.linspace(first**0.5, last**0.5, TIMESTEPS, dtype=torch.float64) ** 2
        else:
            betas = torch.linspace(first, last, TIMESTEPS, dtype=torch.float64)
        signal_power = torch.cumprod(1 - betas, dim=0)
        self._signal = signal_power.sqrt().float().to(device)
        self._noise = (1 - signal_power).sqrt().float().to(device)

    def add_noise(self, clean: Tensor, noise: Tensor, timestep: Tensor) -> Tensor:
        return _at(self._signal, timestep) * clean + _at(self._noise, timestep) * noise

    def target(self, clean: Tensor, noise: Tensor) -> Tensor:
        return noise

    def clean_from(self, noisy: Tensor, predicted: Tensor, timestep: Tensor) -> Tensor:
        remainder = noisy.float() - _at(self._noise, timestep) * predicted.float()
        return remainder / _at(self._signal, timestep)


class VelocityPrediction:
    """Rectified flow (Liu et al. 2022, arXiv 2209.03003): a straight line from clean latents to noise.

    The network predicts its direction, noise − clean. SD3, FLUX and SANA are trained so; their shift of the
    timesteps, which moves values and no memory, is left out.
    """

    def __init__(self, device: torch.device) -> None:
        self._noise = torch.arange(TIMESTEPS, dtype=torch.float32, device=device) / TIMESTEPS

    def add_noise(self, clean: Tensor, noise: Tensor, timestep: Tensor) -> Tensor:
        share = _at(self._noise, timestep)
        return (1 - share) * clean + share * noise

    def target(self, clean: Tensor, noise: Tensor) -> Tensor:
        return noise - clean

    def clean_from(self, noisy: Tensor, predicted: Tensor, timestep: Tensor) -> Tensor:
        return noisy.float() - _at(self._noise, timestep) * predicted.float()


def create_diffusion(architecture: Architecture, device: torch.device) -> Diffusion:
    if architecture.predicts == "noise":
        return NoisePrediction(architecture, device)
    return VelocityPrediction(device)


def _at(values: Tensor, timestep: Tensor) -> Tensor:
    return values[timestep].view(-1, 1, 1, 1)
