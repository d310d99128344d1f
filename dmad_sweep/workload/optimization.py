"""Trained parameters with their optimizer: losses accumulate, and at the boundary one step is made."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.settings import Optimizer
from dmad_sweep.workload.precision import Regime


class Trainer:
    """An optimizer over parameters, with accumulation, clipping and loss scaling.

    `max_grad_norm` None leaves gradients unclipped.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        settings: Optimizer,
        regime: Regime,
        *,
        micro_steps: int,
        max_grad_norm: float | None,
    ) -> None:
        self.parameters = parameters
        self.optimizer = build_optimizer(self.parameters, settings)
        self._scaler = regime.scaler()
        self.micro_steps = micro_steps
        self._max_grad_norm = max_grad_norm
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / max(1, settings.warmup_steps))
        )
        self.inspect: Callable[[], None] | None = None
        """Called at the boundary with the gradients unscaled, instead of a step."""
        self.steps = 0
        """Optimizer steps that were really made: the scaler leaves one out when gradients overflow."""
        self.gradient_bytes: dict[nn.Parameter, int] = {}
        """Bytes of each parameter's gradient at the first step."""
        self.optimizer.register_step_post_hook(self._count)

    def backward(self, loss: Tensor) -> None:
        """Back-propagate one micro-step's mean loss; the micro-steps' gradients add up to the mean."""
        mean = loss if self.micro_steps == 1 else loss / self.micro_steps
        torch.autograd.backward(self._scaler.scale(mean))

    def step(self) -> None:
        """The boundary: unscale, clip, step, advance the schedule, free the gradients."""
        if self.inspect is not None:
            self._scaler.unscale_(self.optimizer)
            self.inspect()
            self._scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            return
        stepped = self.steps
        if not self.gradient_bytes:
            self.gradient_bytes = {p: bytes_of([p.grad]) for p in self.parameters if p.grad is not None}
        if self._max_grad_norm is not None:
            self._scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self._max_grad_norm)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self.steps > stepped:
            self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)

    def states_of(self, parameter: nn.Parameter) -> list[Tensor]:
        """A parameter's optimizer states on its own device; step counters may live on the host."""
        states = self.optimizer.state.get(parameter, {}).values()
        return [state for state in states if isinstance(state, Tensor) and state.device == parameter.device]

    def states(self) -> list[Tensor]:
        return [state for parameter in self.parameters for state in self.states_of(parameter)]

    def gradients(self) -> list[Tensor]:
        """Gradients that exist at the moment."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def has_states(self) -> bool:
        """Whether the optimizer has all state that it keeps: a skipped step leaves none (composer#3226)."""
        if isinstance(self.optimizer, torch.optim.SGD):  # without momentum it keeps none
            return True
        return all(parameter in self.optimizer.state for parameter in self.parameters)

    def _count(self, *_: object) -> None:
        self.steps += 1


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def build_optimizer(parameters: list[nn.Parameter], settings: Optimizer) -> torch.optim.Optimizer:
    """Raises UnsupportedError where the optimizer's package or device is missing."""
    rates: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    match settings.name:
        case "adamw":
            return torch.optim.AdamW(parameters, **rates)
        case "adamw_fused":
            return torch.optim.AdamW(parameters, **rates, fused=True)
        case "adafactor":
            return torch.optim.Adafactor(parameters, **rates)
        case "sgd":
            return torch.optim.SGD(parameters, **rates)
        case _:
            return _eight_bit_adamw(parameters, rates)


def _eight_bit_adamw(parameters: list[nn.Parameter], rates: dict[str, Any]) -> torch.optim.Optimizer:
    if parameters[0].device.type != "cuda":
        raise UnsupportedError("optimizer=adamw_8bit needs a CUDA device")
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise UnsupportedError(
            f"optimizer=adamw_8bit needs the package bitsandbytes ({error}); pip install bitsandbytes"
        ) from None
    optimizer: torch.optim.Optimizer = AdamW8bit(parameters, **rates)
    return optimizer
