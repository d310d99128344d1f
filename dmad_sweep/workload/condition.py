"""What steers a forward beside latents and timestep."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Condition:
    """Text (B, tokens, width) and, for models that take it, pooled text (B, width)."""

    text: Tensor
    pooled: Tensor | None = None

    def __getitem__(self, part: slice) -> "Condition":
        return Condition(self.text[part], None if self.pooled is None else self.pooled[part])

    def empty(self) -> "Condition":
        """The negative condition of classifier-free guidance: zeros, as SDXL uses."""
        return Condition(
            torch.zeros_like(self.text), None if self.pooled is None else torch.zeros_like(self.pooled)
        )

    def to(self, target: torch.device | torch.dtype) -> "Condition":
        return Condition(self.text.to(target), None if self.pooled is None else self.pooled.to(target))


def join(first: Condition, second: Condition) -> Condition:
    """Both, one after the other along the batch."""
    pooled = None
    if first.pooled is not None and second.pooled is not None:
        pooled = torch.cat([first.pooled, second.pooled])
    return Condition(torch.cat([first.text, second.text]), pooled)
