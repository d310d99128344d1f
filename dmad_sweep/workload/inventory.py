"""What a workload holds, counted from its tensors, and what its networks and optimizers really did."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dmad_sweep.records.result import NetworkSize, Observed
from dmad_sweep.records.verification import Verification
from dmad_sweep.workload.discriminator import DiscriminatorHead
from dmad_sweep.workload.ema import WeightAverage
from dmad_sweep.workload.optimization import Trainer, bytes_of
from dmad_sweep.workload.score import ScoreNetwork


@dataclass
class Inventory:
    """Networks by role, optimizers by what they train, and what else stays on the device between turns."""

    student: ScoreNetwork
    networks: dict[str, ScoreNetwork]
    trainers: dict[str, Trainer]
    pixels_per_latent: int
    head: DiscriminatorHead | None = None
    average: WeightAverage | None = None
    verification: Verification | None = None

    def sizes(self) -> dict[str, NetworkSize]:
        """By network: weights and buffers, and gradients and states by the trainers' account."""
        sizes = {name: self._size(network.owned, network.buffers) for name, network in self.networks.items()}
        if self.head is not None:
            sizes["discriminator"] = self._size(list(self.head.parameters()), list(self.head.buffers()))
        return sizes

    def observed(self) -> Observed:
        """What went into the student last, and what was really stepped, kept and recomputed."""
        shape, pixels = self.student.last_input_shape, self.pixels_per_latent
        return Observed(
            micro_batch=shape[0] if shape else None,
            height=shape[2] * pixels if shape else None,
            width=shape[3] * pixels if shape else None,
            latent_shape=shape,
            optimizer_steps={name: trainer.steps for name, trainer in self.trainers.items()},
            optimizer_states={name: trainer.has_states() for name, trainer in self.trainers.items()},
            recomputations={name: network.recomputations for name, network in self.networks.items()},
            attention=self.student.attention,
            verification=self.verification,
        )

    def trained(self) -> dict[str, list[nn.Parameter]]:
        """By network, the weights that an optimizer changes."""
        trained = {name: network.trained for name, network in self.networks.items() if network.trained}
        if self.head is not None:
            trained["discriminator"] = list(self.head.parameters())
        return trained

    def coupled_layers(self) -> list[str]:
        """Names of layers whose output for a sample depends on the others of its micro-batch."""
        modules = {name: network.backbone.module for name, network in self.networks.items()}
        if self.head is not None:
            modules["discriminator"] = self.head
        return [
            f"{name}: {path or type(layer).__name__}"
            for name, module in modules.items()
            for path, layer in module.named_modules()
            if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        ]

    def weights(self) -> list[Tensor]:
        """Weights and buffers of all networks."""
        own = [t for network in self.networks.values() for t in (*network.owned, *network.buffers)]
        return own + ([] if self.head is None else [*self.head.parameters(), *self.head.buffers()])

    def states(self) -> list[Tensor]:
        """Optimizer states, and the average of weights, that live on the weights' device."""
        states = [state for trainer in self.trainers.values() for state in trainer.states()]
        return states + ([] if self.average is None else self.average.on_device())

    def gradients(self) -> list[Tensor]:
        """Gradients that exist at the moment."""
        return [gradient for trainer in self.trainers.values() for gradient in trainer.gradients()]

    def _size(self, parameters: list[nn.Parameter], buffers: Iterable[torch.Tensor]) -> NetworkSize:
        trainers = self.trainers.values()
        return NetworkSize(
            parameters=sum(p.numel() for p in parameters),
            trained_parameters=sum(p.numel() for p in parameters if p.requires_grad),
            parameter_bytes=bytes_of(parameters),
            buffer_bytes=bytes_of(buffers),
            gradient_bytes=sum(t.gradient_bytes.get(p, 0) for t in trainers for p in parameters),
            state_bytes=sum(bytes_of(t.states_of(p)) for t in trainers for p in parameters),
        )
