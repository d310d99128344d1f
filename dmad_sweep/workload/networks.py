"""Networks and samples of a plan, as every built-in recipe needs them."""

import torch

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.result import Observed
from dmad_sweep.workload.images import CachedLatents
from dmad_sweep.workload.models import ARCHITECTURES, POOLED_WIDTH, TEXT_TOKENS, build_unet
from dmad_sweep.workload.precision import Regime
from dmad_sweep.workload.samples import LatentSource, SampleList, Samples, SyntheticLatents
from dmad_sweep.workload.score import ScoreNetwork


class NetworkFactory:
    """Builds score networks of a plan on its device."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self._plan, self._device = plan, device
        self.regime = Regime(plan.precision, device)
        self.pixels_per_latent = ARCHITECTURES[plan.model.name].vae_factor

    def frozen(self) -> ScoreNetwork:
        """In the compute type, without gradients: the teacher, and the student of the baseline."""
        network = self._build(self.regime.frozen)
        network.train_weights(False)
        network.unet.eval()
        return network

    def trained(self, name: str) -> ScoreNetwork:
        """In the type of trained weights; checkpointed when the plan names it."""
        network = self._build(self.regime.weights)
        network.unet.train()
        if name in self._plan.checkpointing.networks:
            network.unet.enable_gradient_checkpointing()
        return network

    def _build(self, dtype: torch.dtype) -> ScoreNetwork:
        unet = build_unet(self._plan.model, dtype, self._device, self._plan.data.seed)
        return ScoreNetwork(unet, self.regime, self.pixels_per_latent)


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


def observe(student: ScoreNetwork, factory: NetworkFactory, optimizer_steps: dict[str, int]) -> Observed:
    """What went into the student last."""
    shape = student.last_input_shape
    if shape is None:
        return Observed(optimizer_steps=optimizer_steps)
    return Observed(
        micro_batch=shape[0],
        height=shape[2] * factory.pixels_per_latent,
        width=shape[3] * factory.pixels_per_latent,
        latent_shape=shape,
        optimizer_steps=optimizer_steps,
    )
