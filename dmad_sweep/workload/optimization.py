"""Trained parameters with their optimizer: losses accumulate, and at the boundary one step is made."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from dmad_sweep.records.settings import Recipe
from dmad_sweep.workload.precision import Regime


class Trainer:
    """AdamW over some modules' parameters, with gradient accumulation, clipping and loss scaling."""

    def __init__(
        self, modules: Iterable[nn.Module], recipe: Recipe, regime: Regime, micro_steps: int
    ) -> None:
        self._parameters = [parameter for module in modules for parameter in module.parameters()]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self._scaler = regime.scaler()
        self._micro_steps = micro_steps
        self._max_grad_norm = recipe.max_grad_norm
        self.steps = 0
        """Optimizer steps that were really made: the scaler leaves one out when gradients overflow."""
        self._optimizer.register_step_post_hook(self._count)

    def backward(self, loss: Tensor) -> None:
        """Back-propagate one micro-step's mean loss; the micro-steps' gradients add up to the mean."""
        torch.autograd.backward(self._scaler.scale(loss / self._micro_steps))

    def step(self) -> None:
        """The boundary: unscale, clip, step, free the gradients."""
        self._scaler.unscale_(self._optimizer)
        nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def _count(self, *_: object) -> None:
        self.steps += 1
