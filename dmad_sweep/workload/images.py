"""A folder of pictures as latents: decoded, resized, cropped, encoded by the VAE, kept on disk.

Encoding happens in a process of its own before the measured one (training recipes read cached latents:
DMD2 keeps them in LMDB), so the VAE never shows up in a trial's peak. A cached latent's name is a hash of
all that its content depends on, so that another resolution or VAE can never be served a stale one.
"""

import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.plan import Plan
from dmad_sweep.workload.models import build_vae, vae_identity

log = logging.getLogger(__name__)

SUFFIXES = frozenset(Image.registered_extensions())


class CachedLatents:
    """The latents of a plan's pictures, in the order of the files' names; see `encode_missing`."""

    def __init__(self, plan: Plan) -> None:
        self._files = [file for file in map(_CacheKey(plan).file, pictures(plan)) if file.exists()]
        if not self._files:
            raise UnsupportedError(f"data.root={plan.data.root}: none of its pictures could be read")

    def __len__(self) -> int:
        return len(self._files)

    def latent(self, sample_id: int) -> Tensor:
        return load_file(self._files[sample_id])["latent"]


def pictures(plan: Plan) -> list[Path]:
    """The first `data.num_samples` picture files of the folder, by name."""
    root = Path(plan.data.root or "")
    found = sorted(file for file in root.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if not found:
        raise UnsupportedError(f"data.root={root}: no pictures there ({', '.join(sorted(SUFFIXES)[:8])} …)")
    return found[: plan.data.num_samples]


@torch.no_grad()
def encode_missing(plan: Plan, device: torch.device) -> None:
    """Encode every picture whose latent is not on disk yet; a file that is no picture is skipped, by name."""
    key = _CacheKey(plan)
    missing = [picture for picture in pictures(plan) if not key.file(picture).exists()]
    if not missing:
        return
    vae = build_vae(plan.model, device, plan.data.seed).eval()
    for picture in missing:
        try:
            pixels = read_picture(picture, plan.resolution.height, plan.resolution.width)
        except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:  # what Pillow raises
            log.warning("skipped %s: not a readable picture (%s)", picture, error)
            continue
        latent = encode(vae, pixels[None].to(device))
        _save(latent[0].float().cpu().contiguous(), key.file(picture))


def encode(vae: Any, pixels: Tensor) -> Tensor:
    """Pixels (B, 3, H, W) in [-1, 1] to scaled latents. SANA's VAE has no distribution."""
    encoded = vae.encode(pixels)
    latent: Tensor = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latent
    shift = getattr(vae.config, "shift_factor", None) or 0.0
    scaled: Tensor = (latent - shift) * vae.config.scaling_factor
    return scaled


def read_picture(file: Path, height: int, width: int) -> Tensor:
    """RGB pixels (3, height, width) in [-1, 1]: upright, resized to cover, cropped at the centre."""
    with Image.open(file) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    fitted = ImageOps.fit(upright, (width, height), method=Image.Resampling.LANCZOS)
    return torch.from_numpy(numpy.array(fitted)).permute(2, 0, 1).float() / 127.5 - 1


class _CacheKey:
    def __init__(self, plan: Plan) -> None:
        assert plan.latents_folder is not None
        self._folder = Path(plan.latents_folder)
        size = f"{plan.resolution.height}x{plan.resolution.width}"
        self._context = f"v1 {size} centre-crop {vae_identity(plan.model, plan.data.seed)} float32"

    def file(self, picture: Path) -> Path:
        content = hashlib.sha256(picture.read_bytes()).hexdigest()
        name = hashlib.sha256(f"{content} {self._context}".encode()).hexdigest()[:32]
        return self._folder / f"{name}.safetensors"


def _save(latent: Tensor, file: Path) -> None:
    """Under a temporary name first: several processes may fill the cache at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, suffix=".part")
    os.close(descriptor)
    try:
        save_file({"latent": latent}, temporary)
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
