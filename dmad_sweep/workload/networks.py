"""Networks and samples of a plan, as every built-in recipe needs them."""

from collections.abc import Iterable

import torch
from torch import nn

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.result import NetworkSize, Observed
from dmad_sweep.workload.attention import allow_kernels, require_possible
from dmad_sweep.workload.discriminator import DiscriminatorHead, feature_size
from dmad_sweep.workload.ema import WeightAverage
from dmad_sweep.workload.images import CachedLatents
from dmad_sweep.workload.models import ARCHITECTURES, POOLED_WIDTH, TEXT_TOKENS, build_unet, placement
from dmad_sweep.workload.optimization import Trainer, bytes_of
from dmad_sweep.workload.precision import Regime
from dmad_sweep.workload.samples import LatentSource, SampleList, Samples, SyntheticLatents
from dmad_sweep.workload.score import ScoreNetwork


class NetworkFactory:
    """Builds score networks of a plan on its device."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self.regime = Regime(plan.precision, device)
        self.pixels_per_latent = ARCHITECTURES[plan.model.name].vae_factor

    def prepare(self) -> None:
        """Settings that hold for the whole process. Raises UnsupportedError."""
        require_possible(self._plan.attention, self._plan.precision)
        self.regime.apply_globally()
        allow_kernels(self._plan.attention)

    def frozen(self, name: str) -> ScoreNetwork:
        """In the compute type, its weights without gradients."""
        network = self._build(self.regime.frozen, name)
        network.train_weights(False)
        network.unet.eval()
        return network

    def trained(self, name: str) -> ScoreNetwork:
        """In the type of trained weights."""
        network = self._build(self.regime.weights, name)
        network.unet.train()
        return network

    def trainer(self, modules: list[nn.Module], *, clipped: bool = True) -> Trainer:
        """An optimizer as the plan wants it."""
        return Trainer(
            modules,
            self._plan.optimizer,
            self.regime,
            micro_steps=self._plan.accumulation.steps,
            max_grad_norm=self._plan.recipe.max_grad_norm if clipped else None,
        )

    def average(self, network: ScoreNetwork) -> WeightAverage | None:
        """The moving average of a network's weights, where the plan wants one."""
        return None if self._plan.ema.name == "none" else WeightAverage(network.unet, self._plan.ema)

    def head(self, features_of: ScoreNetwork) -> DiscriminatorHead:
        """A discriminator head for a network's mid-block features at the plan's resolution."""
        config = features_of.unet.config
        height, width = (
            feature_size(side // self.pixels_per_latent, len(config.block_out_channels) - 1)
            for side in (self._plan.resolution.height, self._plan.resolution.width)
        )
        with placement(self.regime.weights, self._device, self._plan.data.seed):
            return DiscriminatorHead(config.block_out_channels[-1], height, width)

    def _build(self, dtype: torch.dtype, name: str) -> ScoreNetwork:
        unet = build_unet(self._plan.model, dtype, self._device, self._plan.data.seed)
        network = ScoreNetwork(unet, self.regime, self.pixels_per_latent)
        if name in self._plan.checkpointing.networks:
            network.checkpoint_blocks()
        return network


class Feed:
    """Hands each turn the samples of its optimizer step, on the device."""

    def __init__(self, plan: Plan, network: ScoreNetwork, device: torch.device) -> None:
        config = network.unet.config
        factor = ARCHITECTURES[plan.model.name].vae_factor
        height, width = plan.resolution.height // factor, plan.resolution.width // factor
        latents: LatentSource
        if plan.data.source == "images":
            latents = CachedLatents(plan)
        else:
            latents = SyntheticLatents(
                plan.data.num_samples, config.in_channels, height, width, plan.data.seed
            )
        self._samples = SampleList(
            latents,
            text_shape=(TEXT_TOKENS, config.cross_attention_dim),
            pooled_width=POOLED_WIDTH if config.addition_embed_type == "text_time" else None,
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


def sizes_of(modules: dict[str, nn.Module], trainers: Iterable[Trainer]) -> dict[str, NetworkSize]:
    """What each module holds: weights, and gradients and states by the trainers' account."""
    trainers = list(trainers)
    sizes = {}
    for name, module in modules.items():
        parameters = list(module.parameters())
        sizes[name] = NetworkSize(
            parameters=sum(p.numel() for p in parameters),
            trained_parameters=sum(p.numel() for p in parameters if p.requires_grad),
            parameter_bytes=bytes_of(parameters),
            gradient_bytes=sum(t.gradient_bytes.get(p, 0) for t in trainers for p in parameters),
            state_bytes=sum(t.state_bytes(p) for t in trainers for p in parameters),
        )
    return sizes


def observe(
    student: ScoreNetwork,
    factory: NetworkFactory,
    networks: dict[str, ScoreNetwork],
    trainers: dict[str, Trainer],
) -> Observed:
    """What went into the student last, and what networks and optimizers really did."""
    shape = student.last_input_shape
    pixels = factory.pixels_per_latent
    return Observed(
        micro_batch=shape[0] if shape else None,
        height=shape[2] * pixels if shape else None,
        width=shape[3] * pixels if shape else None,
        latent_shape=shape,
        optimizer_steps={name: trainer.steps for name, trainer in trainers.items()},
        optimizer_states={name: trainer.has_states() for name, trainer in trainers.items()},
        recomputations={name: network.recomputations for name, network in networks.items()},
        attention=student.attention,
    )
