"""Networks and VAEs, built on the device where and as they will live.

Weights are random unless `model.pretrained` names a folder: memory and time do not depend on them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderDC,
    AutoencoderKL,
    FluxTransformer2DModel,
    PixArtTransformer2DModel,
    SanaTransformer2DModel,
    SD3Transformer2DModel,
    UNet2DConditionModel,
)
from torch import nn

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.settings import Model
from dmad_sweep.workload.architectures import ARCHITECTURES

CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        AutoencoderDC,
        AutoencoderKL,
        FluxTransformer2DModel,
        PixArtTransformer2DModel,
        SD3Transformer2DModel,
        SanaTransformer2DModel,
        UNet2DConditionModel,
    )
}
"""diffusers loads a class, for seconds, when it is first named: here, so that a preloaded server has it."""

SUBFOLDERS = {"UNet2DConditionModel": "unet"}
"""Where diffusers' folders keep a denoiser; transformers are in `transformer`."""


def build_denoiser(model: Model, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
    """The denoising network with random weights, or with those of `model.pretrained`.

    Equal seeds give equal weights, so student and fake score start as one network, as DMD2's do.
    Built where and as it will live: a copy in another type would show up in the peak of `load`.
    """
    architecture = ARCHITECTURES[model.name]
    kind = CLASSES[architecture.backbone]
    network: nn.Module
    if model.pretrained is not None:
        subfolder = SUBFOLDERS.get(architecture.backbone, "transformer")
        network = _from_folder(kind, model.pretrained, subfolder, dtype, device)
        return network
    with placement(dtype, device, seed):
        network = kind(**architecture.config)
    return network


def build_vae(model: Model, device: torch.device, seed: int) -> Any:
    """The VAE in float32 (SDXL's overflows in float16), random or from `model.pretrained`/vae."""
    vae = ARCHITECTURES[model.name].vae
    kind = CLASSES[vae.kind]
    if model.pretrained is not None:
        return _from_folder(kind, model.pretrained, "vae", torch.float32, device)
    with placement(torch.float32, device, seed):
        return kind(**vae.config)


def vae_identity(model: Model, seed: int) -> str:
    """A text that differs whenever the VAE's output for a picture may differ."""
    if model.pretrained is None:
        return f"random {ARCHITECTURES[model.name].vae.config} seed {seed}"
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
