"""A precision regime as torch types."""

from contextlib import AbstractContextManager, nullcontext

import torch

from dmad_sweep.records.settings import Precision


class Regime:
    """Types of weights and of computation, and the autocast and loss scaling they need.

    Every network call opens an autocast context of its own. Autocast keeps cast copies of the weights
    until its outermost context ends, and a copy made under no_grad and used again with gradients would
    lose them (pytorch#105211); DMD2 opens one context a call too.
    """

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.weights: torch.dtype = getattr(torch, precision.weights)
        self.frozen: torch.dtype = getattr(torch, precision.frozen)
        self._autocast: torch.dtype | None = (
            getattr(torch, precision.autocast) if precision.autocast else None
        )
        self._scale_gradients = precision.grad_scaler
        self._tf32 = precision.tf32
        self._device = device

    def apply_globally(self) -> None:
        """float32 means float32: TF32 is off in matrix products and convolutions unless asked for."""
        torch.backends.cuda.matmul.allow_tf32 = self._tf32
        torch.backends.cudnn.allow_tf32 = self._tf32

    def autocast(self) -> AbstractContextManager[object]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._autocast)

    def scaler(self) -> torch.amp.GradScaler:
        """A gradient scaler; without loss scaling it passes everything through."""
        return torch.amp.GradScaler(self._device.type, enabled=self._scale_gradients)
