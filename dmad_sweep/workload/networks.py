"""Networks and samples of a plan, as every built-in recipe needs them."""

from collections.abc import Iterable

import torch
from torch import nn

from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.adapters import add_adapter
from dmad_sweep.workload.architectures import ARCHITECTURES
from dmad_sweep.workload.attention import allow_kernels
from dmad_sweep.workload.backbones import BACKBONES, Backbone
from dmad_sweep.workload.diffusion import Diffusion, create_diffusion
from dmad_sweep.workload.discriminator import DiscriminatorHead
from dmad_sweep.workload.ema import WeightAverage
from dmad_sweep.workload.images import CachedLatents
from dmad_sweep.workload.models import build_denoiser, placement
from dmad_sweep.workload.optimization import Trainer
from dmad_sweep.workload.precision import Regime
from dmad_sweep.workload.samples import LatentSource, SampleList, Samples, SyntheticLatents
from dmad_sweep.workload.score import ScoreNetwork


class NetworkFactory:
    """Builds score networks of a plan on its device."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self._architecture = ARCHITECTURES[plan.model.name]
        self.regime = Regime(plan.precision, device)
        self.pixels_per_latent = self._architecture.vae_factor
        self._shared: Backbone | None = None
        self._owned: set[Backbone] = set()

    def prepare(self) -> None:
        """Settings that hold for the whole process."""
        self.regime.apply_globally()
        allow_kernels(self._plan.attention)

    def diffusion(self) -> Diffusion:
        return create_diffusion(self._architecture, self._device)

    def frozen(self, role: str) -> ScoreNetwork:
        """In the compute type, its weights without gradients."""
        return self._network(role, self._frozen_backbone(), trained=[])

    def trained(self, role: str) -> ScoreNetwork:
        """Whole, in the type of trained weights, or as an adapter on a frozen backbone."""
        adapter = self._plan.adapter
        if role in adapter.networks:
            backbone = self._frozen_backbone()
            with placement(self.regime.weights, self._device, self._plan.data.seed):
                trained = add_adapter(backbone, role, adapter.rank, adapter.targets)
        else:
            backbone = self._backbone(self.regime.weights)
            trained = backbone.weights
        backbone.module.train()
        return self._network(role, backbone, trained=trained)

    def trainer(self, *parameters: Iterable[nn.Parameter], clipped: bool = True) -> Trainer:
        """An optimizer as the plan wants it, for all of `parameters`."""
        return Trainer(
            [parameter for group in parameters for parameter in group],
            self._plan.optimizer,
            self.regime,
            micro_steps=self._plan.accumulation.steps,
            max_grad_norm=self._plan.recipe.max_grad_norm if clipped else None,
        )

    def average(self, network: ScoreNetwork) -> WeightAverage | None:
        """The moving average of a network's trained weights, where the plan wants one."""
        return None if self._plan.ema.name == "none" else WeightAverage(network.trained, self._plan.ema)

    def head(self, features_of: ScoreNetwork) -> DiscriminatorHead:
        """A discriminator head for a network's features at the plan's resolution."""
        shape = features_of.backbone.feature_shape(
            self._plan.resolution.height // self.pixels_per_latent,
            self._plan.resolution.width // self.pixels_per_latent,
        )
        with placement(self.regime.weights, self._device, self._plan.data.seed):
            return DiscriminatorHead(*shape)

    def _frozen_backbone(self) -> Backbone:
        """A new one, or with `adapter.share_backbone` the one that all frozen and adapted networks share."""
        if self._shared is not None:
            return self._shared
        backbone = self._backbone(self.regime.frozen)
        backbone.module.requires_grad_(False).eval()
        if self._plan.adapter.networks and self._plan.adapter.share_backbone:
            self._shared = backbone
        return backbone

    def _backbone(self, dtype: torch.dtype) -> Backbone:
        module = build_denoiser(self._plan.model, dtype, self._device, self._plan.data.seed)
        return BACKBONES[self._architecture.backbone](module, dtype, self.pixels_per_latent)

    def _network(self, role: str, backbone: Backbone, *, trained: list[nn.Parameter]) -> ScoreNetwork:
        """The first network on a backbone owns it."""
        first = backbone not in self._owned
        self._owned.add(backbone)
        network = ScoreNetwork(role, backbone, self.regime, trained=trained, owns_backbone=first)
        if role in self._plan.checkpointing.networks:
            network.checkpoint_blocks()
        return network


class Feed:
    """Hands each turn the samples of its optimizer step, on the device."""

    def __init__(self, plan: Plan, network: ScoreNetwork, device: torch.device) -> None:
        architecture, backbone = ARCHITECTURES[plan.model.name], network.backbone
        factor = architecture.vae_factor
        height, width = plan.resolution.height // factor, plan.resolution.width // factor
        latents: LatentSource
        if plan.data.source == "images":
            latents = CachedLatents(plan)
        else:
            latents = SyntheticLatents(
                plan.data.num_samples, backbone.latent_channels, height, width, plan.data.seed
            )
        self._samples = SampleList(
            latents,
            text_shape=(architecture.text_tokens, backbone.text_width),
            pooled_width=backbone.pooled_width,
            seed=plan.data.seed,
        )
        self._effective_batch = plan.effective_batch
        self._device = device
        self._step = 0

    def next(self) -> Samples:
        """Samples of the next optimizer step, for the whole effective batch."""
        samples = self._samples.step(self._step, self._effective_batch).to(self._device)
        self._step += 1
        return samples
