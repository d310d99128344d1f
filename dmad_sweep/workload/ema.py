"""An exponential moving average of trained weights."""

import torch
from torch import Tensor, nn

from dmad_sweep.records.settings import Ema


class WeightAverage:
    """Float32 averages of trained parameters, on their device or in host memory."""

    def __init__(self, parameters: list[nn.Parameter], settings: Ema) -> None:
        self._decay = settings.decay
        self._parameters = parameters
        device = torch.device("cpu") if settings.name == "cpu" else None
        self.averages = [
            parameter.detach().to(device=device, dtype=torch.float32, copy=True)
            for parameter in self._parameters
        ]
        self.updates = 0

    def on_device(self) -> list[Tensor]:
        """The averages that take memory where the weights are."""
        pairs = zip(self.averages, self._parameters, strict=True)
        return [average for average, parameter in pairs if average.device == parameter.device]

    @torch.no_grad()
    def update(self) -> None:
        """One step towards the current weights: once for each optimizer step."""
        for average, parameter in zip(self.averages, self._parameters, strict=True):
            average.lerp_(parameter.detach().to(average), 1 - self._decay)
        self.updates += 1
