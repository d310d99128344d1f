"""How each family of denoising networks is called, and where its features come from.

A backbone may be shared: teacher, student and fake score can be one frozen network with adapters. So each
forward is made in the name of a role, and a block that is recomputed in backward is recomputed in the name of
the role whose forward it belongs to.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dmad_sweep.workload.condition import Condition

SDXL_POOLED_WIDTH = 1280
"""Width of SDXL's pooled text embedding, from OpenCLIP bigG."""


class Acting:
    """In whose name a forward is made."""

    def __init__(self) -> None:
        self.role: str | None = None

    @contextmanager
    def as_(self, role: str | None) -> Iterator[None]:
        before, self.role = self.role, role
        try:
            yield
        finally:
            self.role = before


class Backbone(ABC):
    """A diffusers network whose weights are `dtype`; latents are (B, C, h, w) of that type."""

    def __init__(self, module: Any, dtype: torch.dtype, pixels_per_latent: int) -> None:
        self.module, self.dtype = module, dtype
        self.weights: list[nn.Parameter] = list(module.parameters())
        """Its own, without those of adapters that are added later."""
        self.acting = Acting()
        self.recomputations: Counter[str | None] = Counter()
        """By role, blocks that were run again inside a backward: checkpointing at work."""
        self._checkpointed: set[str | None] = set()
        self._pixels_per_latent = pixels_per_latent

    @property
    def latent_channels(self) -> int:
        return int(self.module.config.in_channels)

    @property
    @abstractmethod
    def text_width(self) -> int: ...

    @property
    def pooled_width(self) -> int | None:
        return None

    @property
    @abstractmethod
    def middle(self) -> nn.Module:
        """The module whose output the discriminator sees."""

    @abstractmethod
    def feature_shape(self, height: int, width: int) -> tuple[int, int, int]:
        """(C', h', w') of the features for latents of `height` × `width`."""

    @abstractmethod
    def features(self, output: Any, height: int, width: int) -> Tensor:
        """The output of `middle` as a map (B, C', h', w'); `height` × `width` are the latents'."""

    @abstractmethod
    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """Noise or velocity (B, C, h, w) at `timestep` (B,) of 0 to 1000."""

    def checkpoint_blocks_of(self, role: str) -> None:
        """Recompute blocks in the backwards of a role, and count it: no flag proves it (diffusers#9850)."""
        self.module.enable_gradient_checkpointing(self._run_block)
        self._checkpointed.add(role)

    def _run_block(self, block: Callable[..., Any], *args: Any) -> Any:
        role = self.acting.role
        if role not in self._checkpointed:
            return block(*args)

        def in_the_same_role(*inputs: Any) -> Any:
            if torch._C._current_graph_task_id() != -1:  # the autograd engine is running
                self.recomputations[role] += 1
            with self.acting.as_(role):
                return block(*inputs)

        return checkpoint(in_the_same_role, *args, use_reentrant=False)


class UNet(Backbone):
    """Stable Diffusion's UNet; its features are the mid-block's."""

    @property
    def text_width(self) -> int:
        return int(self.module.config.cross_attention_dim)

    @property
    def pooled_width(self) -> int | None:
        return SDXL_POOLED_WIDTH if self.module.config.addition_embed_type == "text_time" else None

    @property
    def middle(self) -> nn.Module:
        block: nn.Module = self.module.mid_block
        return block

    def feature_shape(self, height: int, width: int) -> tuple[int, int, int]:
        channels = self.module.config.block_out_channels
        for _ in channels[1:]:  # each downsampling convolution (kernel 3, stride 2) rounds up
            height, width = (height + 1) // 2, (width + 1) // 2
        return channels[-1], height, width

    def features(self, output: Any, height: int, width: int) -> Tensor:
        features: Tensor = output
        return features

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        added = None
        if condition.pooled is not None:
            added = {"text_embeds": condition.pooled, "time_ids": self._time_ids(noisy)}
        predicted: Tensor = self.module(
            noisy, timestep, condition.text, added_cond_kwargs=added, return_dict=False
        )[0]
        return predicted

    def _time_ids(self, noisy: Tensor) -> Tensor:
        """SDXL's micro-conditioning (B, 6): original size, crop corner, target size, in pixels."""
        height, width = (side * self._pixels_per_latent for side in noisy.shape[2:])
        ids = torch.tensor([height, width, 0, 0, height, width], device=noisy.device)
        return ids.expand(noisy.shape[0], -1).to(noisy.dtype)


class Transformer(Backbone):
    """A diffusion transformer; its features are the tokens of the middle block, put back on their grid."""

    @property
    def middle(self) -> nn.Module:
        return self.blocks[(len(self.blocks) - 1) // 2]

    @property
    def blocks(self) -> list[nn.Module]:
        return list(self.module.transformer_blocks)

    @property
    def _patch(self) -> int:
        return int(self.module.config.patch_size)

    def feature_shape(self, height: int, width: int) -> tuple[int, int, int]:
        config = self.module.config
        channels = config.num_attention_heads * config.attention_head_dim
        return channels, height // self._patch, width // self._patch

    def features(self, output: Any, height: int, width: int) -> Tensor:
        tokens: Tensor = output[1] if isinstance(output, tuple) else output  # text comes first
        channels, rows, columns = self.feature_shape(height, width)
        return tokens[:, -rows * columns :].transpose(1, 2).reshape(-1, channels, rows, columns)


class MaskedText(Transformer):
    """Text comes with a mask, as in the models' pipelines."""

    @property
    def text_width(self) -> int:
        return int(self.module.config.caption_channels)


class PixArt(MaskedText):
    """Predicts a variance too, which is left out."""

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        predicted: Tensor = self.module(
            noisy,
            encoder_hidden_states=condition.text,
            timestep=timestep,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
            encoder_attention_mask=_all_tokens(condition),
            return_dict=False,
        )[0]
        return predicted[:, : self.latent_channels]


class Sana(MaskedText):
    """Linear self-attention."""

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        predicted: Tensor = self.module(
            noisy,
            encoder_hidden_states=condition.text,
            timestep=timestep,
            encoder_attention_mask=_all_tokens(condition),
            return_dict=False,
        )[0]
        return predicted


class SD3(Transformer):
    """Text and image tokens in joint attention."""

    @property
    def text_width(self) -> int:
        return int(self.module.config.joint_attention_dim)

    @property
    def pooled_width(self) -> int | None:
        return int(self.module.config.pooled_projection_dim)

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        predicted: Tensor = self.module(
            noisy,
            encoder_hidden_states=condition.text,
            pooled_projections=condition.pooled,
            timestep=timestep,
            return_dict=False,
        )[0]
        return predicted


class Flux(SD3):
    """Double-stream, then single-stream blocks, on 2×2 latent cells packed into one token."""

    _patch = 2

    @property
    def latent_channels(self) -> int:
        return int(self.module.config.in_channels) // 4

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.module.transformer_blocks, *self.module.single_transformer_blocks]

    def predict(self, noisy: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        count, channels, height, width = noisy.shape
        rows, columns = height // 2, width // 2
        packed = noisy.reshape(count, channels, rows, 2, columns, 2).permute(0, 2, 4, 1, 3, 5)
        predicted: Tensor = self.module(
            packed.reshape(count, rows * columns, channels * 4),
            encoder_hidden_states=condition.text,
            pooled_projections=condition.pooled,
            timestep=timestep / 1000,
            img_ids=_grid(rows, columns, noisy),
            txt_ids=noisy.new_zeros(condition.text.shape[1], 3),
            return_dict=False,
        )[0]
        unpacked = predicted.reshape(count, rows, columns, channels, 2, 2).permute(0, 3, 1, 4, 2, 5)
        return unpacked.reshape(count, channels, height, width)


BACKBONES: dict[str, type[Backbone]] = {
    "UNet2DConditionModel": UNet,
    "PixArtTransformer2DModel": PixArt,
    "SanaTransformer2DModel": Sana,
    "SD3Transformer2DModel": SD3,
    "FluxTransformer2DModel": Flux,
}
"""By diffusers class."""


def _all_tokens(condition: Condition) -> Tensor:
    """A mask (B, tokens) that keeps every token."""
    return condition.text.new_ones(condition.text.shape[:2])


def _grid(rows: int, columns: int, like: Tensor) -> Tensor:
    """FLUX's position ids (rows · columns, 3): 0, row, column."""
    ids = like.new_zeros(rows, columns, 3)
    ids[..., 1] = torch.arange(rows, device=like.device)[:, None]
    ids[..., 2] = torch.arange(columns, device=like.device)[None, :]
    return ids.reshape(rows * columns, 3)
