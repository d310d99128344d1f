"""A score network: a noise-predicting UNet with its conditioning, in one precision regime."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from torch import Tensor, nn

from dmad_sweep.workload.attention import kernels_in_graph
from dmad_sweep.workload.precision import Regime


@dataclass(frozen=True)
class Condition:
    """What steers a forward: text (B, tokens, width) and, for SDXL, pooled text (B, width)."""

    text: Tensor
    pooled: Tensor | None = None

    def __getitem__(self, part: slice) -> "Condition":
        return Condition(self.text[part], None if self.pooled is None else self.pooled[part])

    def empty(self) -> "Condition":
        """The negative condition of classifier-free guidance: zeros, as SDXL uses."""
        return Condition(
            torch.zeros_like(self.text), None if self.pooled is None else torch.zeros_like(self.pooled)
        )

    def to(self, device: torch.device) -> "Condition":
        return replace(
            self, text=self.text.to(device), pooled=None if self.pooled is None else self.pooled.to(device)
        )


def join(first: Condition, second: Condition) -> Condition:
    """Both, one after the other along the batch."""
    pooled = None
    if first.pooled is not None and second.pooled is not None:
        pooled = torch.cat([first.pooled, second.pooled])
    return Condition(torch.cat([first.text, second.text]), pooled)


class _FeaturesReached(Exception):  # noqa: N818 - not an error: it ends a forward early
    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


class ScoreNetwork:
    """A UNet used for noise prediction and, up to its mid-block, for the discriminator's features."""

    def __init__(self, unet: UNet2DConditionModel, regime: Regime, pixels_per_latent: int) -> None:
        self.unet = unet
        self.last_input_shape: list[int] | None = None
        self.attention: list[str] | None = None
        """Attention kernels of the first forward with gradients."""
        self.recomputations = 0
        """Forwards of the first block inside a backward: checkpointing at work."""
        self._regime = regime
        self._pixels_per_latent = pixels_per_latent

    def predict_noise(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Noise (B, C, h, w) in float32 for latents of the same shape at `timestep` (B,)."""
        predicted = self._forward(noisy, timestep, condition).float()
        if self.attention is None and predicted.requires_grad:
            self.attention = kernels_in_graph(predicted)
        return predicted

    def predict_noise_with_features(
        self, noisy: Tensor, timestep: Tensor, condition: Condition
    ) -> tuple[Tensor, Tensor]:
        """Noise as `predict_noise`, and mid-block features as `features`, from one whole forward."""
        seen: list[Tensor] = []
        hook = self.unet.mid_block.register_forward_hook(lambda module, inputs, output: seen.append(output))
        try:
            predicted = self.predict_noise(noisy, timestep, condition)
        finally:
            hook.remove()
        return predicted, seen[0].float()

    def checkpoint_blocks(self) -> None:
        """Recompute blocks in backward, and count it: a flag alone proves nothing (diffusers#9850)."""
        self.unet.enable_gradient_checkpointing()
        self.unet.down_blocks[0].resnets[0].register_forward_pre_hook(self._count_recomputation)

    def features(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Mid-block features (B, C', h', w') in float32. The decoder does not run, as in DMD2.

        The forward is left by an exception from a hook on the mid-block; its traceback, which would keep
        the encoder's activations alive, goes with the exception at the end of the except clause.
        """

        def leave(module: nn.Module, inputs: Any, output: Tensor) -> None:
            raise _FeaturesReached(output)

        hook = self.unet.mid_block.register_forward_hook(leave)
        try:
            self._forward(noisy, timestep, condition)
        except _FeaturesReached as reached:
            return reached.features.float()
        finally:
            hook.remove()
        raise AssertionError("the forward ended without passing the mid-block")

    def train_weights(self, on: bool) -> None:
        """Let gradients reach the weights, or pass through them only."""
        self.unet.requires_grad_(on)

    def _count_recomputation(self, *_: object) -> None:
        if torch._C._current_graph_task_id() != -1:  # the autograd engine is running
            self.recomputations += 1

    def _forward(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        self.last_input_shape = list(noisy.shape)
        dtype = self.unet.dtype
        added = None
        if condition.pooled is not None:
            added = {"text_embeds": condition.pooled.to(dtype), "time_ids": self._time_ids(noisy).to(dtype)}
        with self._regime.autocast():
            output = self.unet(
                noisy.to(dtype),
                timestep,
                condition.text.to(dtype),
                added_cond_kwargs=added,
                return_dict=False,
            )
        return torch.as_tensor(output[0])

    def _time_ids(self, noisy: Tensor) -> Tensor:
        """SDXL's micro-conditioning (B, 6): original size, crop corner, target size, in pixels."""
        height, width = (side * self._pixels_per_latent for side in noisy.shape[2:])
        ids = torch.tensor([height, width, 0, 0, height, width], device=noisy.device)
        return ids.expand(noisy.shape[0], -1)
