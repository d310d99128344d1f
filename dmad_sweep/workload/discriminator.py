"""The discriminator head on a score network's features, built for the resolution."""

import math

import torch
from torch import Tensor, nn

WIDTH = 1280
"""Channels of SD1.5's and SDXL's mid-block, on which DMD2's head works."""


class DiscriminatorHead(nn.Module):
    """Strided convolutions down to one logit per sample.

    At the sizes DMD2 trains this is its head (sd_guidance.py: convolutions of kernel 4 and stride 2 until
    4×4 is left, one that takes the 4×4 whole, then one logit): 52,437,761 parameters for SD1.5 at 512 px,
    104,874,241 for SDXL at 1024 px. DMD2's layers are fixed and raise or average silently at other sizes;
    here as many are stacked as the feature map needs. Features wider than DMD2's, of large transformers, are
    projected to its width first: the convolutions grow with the square of the width.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if channels > WIDTH:
            layers.append(nn.Conv2d(channels, WIDTH, 1))
            channels = WIDTH
        while max(height, width) > 4 and min(height, width) > 1:
            layers += self._stage(channels, nn.Conv2d(channels, channels, 4, stride=2, padding=1))
            height, width = height // 2, width // 2
        layers += self._stage(channels, nn.Conv2d(channels, channels, (height, width)))
        layers.append(nn.Conv2d(channels, 1, 1))
        self.layers = nn.Sequential(*layers)

    @staticmethod
    def _stage(channels: int, convolution: nn.Conv2d) -> list[nn.Module]:
        groups = math.gcd(32, channels // 8)  # 32 as in DMD2; fewer in a small network, whose map ends at 1×1
        return [convolution, nn.GroupNorm(groups, channels), nn.SiLU()]

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, h, w) to logits (B,); more likely real is larger."""
        return torch.flatten(self.layers(features))
