"""The networks: published configurations of Stable Diffusion's UNet and VAE, built on the device.

Configurations are those of the published checkpoints' config.json (runwayml stable-diffusion-v1-5 and
stabilityai stable-diffusion-xl-base-1.0). Weights are random: memory and time do not depend on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.settings import Model

TEXT_TOKENS = 77
"""Tokens of a CLIP text encoding."""

POOLED_WIDTH = 1280
"""Width of SDXL's pooled text embedding, from OpenCLIP bigG."""


@dataclass(frozen=True)
class Architecture:
    """One model family: the UNet that teacher, student and fake score share, and its VAE."""

    unet: dict[str, Any]
    vae: dict[str, Any]
    vae_factor: int = 8
    """Pixels per latent cell."""


SD_VAE: dict[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 4,
    "sample_size": 512,
    "scaling_factor": 0.18215,
}

ARCHITECTURES = {
    "tiny": Architecture(
        unet={
            "sample_size": 64,
            "block_out_channels": (8, 16, 32, 32),
            "down_block_types": (*("DownBlock2D",) * 2, *("CrossAttnDownBlock2D",) * 2),
            "up_block_types": (*("CrossAttnUpBlock2D",) * 2, *("UpBlock2D",) * 2),
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "attention_head_dim": 2,
            "cross_attention_dim": 32,
        },
        vae={
            "block_out_channels": (8, 8, 16, 16),
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "mid_block_add_attention": False,
            "latent_channels": 4,
            "sample_size": 512,
        },
    ),
    "sd15": Architecture(
        unet={
            "sample_size": 64,
            "block_out_channels": (320, 640, 1280, 1280),
            "down_block_types": (*("CrossAttnDownBlock2D",) * 3, "DownBlock2D"),
            "up_block_types": ("UpBlock2D", *("CrossAttnUpBlock2D",) * 3),
            "layers_per_block": 2,
            "attention_head_dim": 8,  # a count of heads in this family
            "cross_attention_dim": 768,
        },
        vae=SD_VAE,
    ),
    "sdxl": Architecture(
        unet={
            "sample_size": 128,
            "block_out_channels": (320, 640, 1280),
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "layers_per_block": 2,
            "transformer_layers_per_block": (1, 2, 10),
            "attention_head_dim": (5, 10, 20),
            "use_linear_projection": True,
            "cross_attention_dim": 2048,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
        },
        vae={**SD_VAE, "sample_size": 1024, "scaling_factor": 0.13025},
    ),
}


def build_unet(model: Model, dtype: torch.dtype, device: torch.device, seed: int) -> UNet2DConditionModel:
    """The UNet with random weights, or with those of `model.pretrained`/unet.

    Equal seeds give equal weights, so student and fake score start as one network, as DMD2's do.
    Built where and as it will live: a copy in another type would show up in the peak of `load`.
    """
    if model.pretrained is not None:
        return _from_folder(UNet2DConditionModel, model.pretrained, "unet", dtype, device)
    with placement(dtype, device, seed):
        return UNet2DConditionModel(**ARCHITECTURES[model.name].unet)


def build_vae(model: Model, device: torch.device, seed: int) -> AutoencoderKL:
    """The VAE in float32 (SDXL's overflows in float16), random or from `model.pretrained`/vae."""
    if model.pretrained is not None:
        return _from_folder(AutoencoderKL, model.pretrained, "vae", torch.float32, device)
    with placement(torch.float32, device, seed):
        return AutoencoderKL(**ARCHITECTURES[model.name].vae)


def vae_identity(model: Model, seed: int) -> str:
    """A text that differs whenever the VAE's output for a picture may differ."""
    if model.pretrained is None:
        return f"random {ARCHITECTURES[model.name].vae} seed {seed}"
    files = sorted((Path(model.pretrained) / "vae").iterdir())
    return f"{model.pretrained} " + " ".join(
        f"{file.name}:{file.stat().st_size}:{file.stat().st_mtime_ns}" for file in files
    )


def _from_folder(kind: Any, folder: str, subfolder: str, dtype: torch.dtype, device: torch.device) -> Any:
    if not (Path(folder) / subfolder / "config.json").is_file():
        raise UnsupportedError(
            f"model.pretrained={folder}: no {subfolder}/config.json there; give a local diffusers folder"
        )
    module = kind.from_pretrained(
        folder,
        subfolder=subfolder,
        torch_dtype=dtype,
        local_files_only=True,
        use_safetensors=True,
        low_cpu_mem_usage=False,
    ).to(device)
    if device.type == "cpu":
        # Weights may still be a mapping of the file, which is resident only where it was touched.
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()
    return module


@contextmanager
def placement(dtype: torch.dtype, device: torch.device, seed: int) -> Iterator[None]:
    """Parameters made inside are born on `device` as `dtype`, from `seed`."""
    before = torch.get_default_dtype()
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(before)
