"""Published configurations of the networks, as data.

UNets and VAEs: the config.json of runwayml's stable-diffusion-v1-5 and stabilityai's
stable-diffusion-xl-base-1.0. Transformers and their VAEs: the class defaults of diffusers and its conversion
scripts (convert_{pixart_sigma,sana,sd3,flux,dcae}_to_diffusers.py). tests/workload counts the parameters.
"""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Vae:
    """A VAE's diffusers class and configuration."""

    kind: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Architecture:
    """One model family: the backbone that teacher, student and fake score share, its text and its VAE."""

    backbone: str
    """Class of diffusers."""
    config: dict[str, Any]
    vae: Vae
    text_tokens: int
    """Tokens of a text encoding, as the model's pipeline pads it."""
    vae_factor: int = 8
    """Pixels per latent cell."""
    predicts: Literal["noise", "velocity"] = "noise"
    betas: tuple[float, float] = (0.00085, 0.012)
    """First and last beta of a noise-predicting model's schedule."""
    beta_schedule: Literal["scaled_linear", "linear"] = "scaled_linear"


SD_VAE: dict[str, Any] = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 4,
    "sample_size": 512,
    "scaling_factor": 0.18215,
}
SDXL_VAE = {**SD_VAE, "sample_size": 1024, "scaling_factor": 0.13025}
WIDE_VAE = {
    **SDXL_VAE,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
"""Sixteen channels: SD3's and FLUX's."""

DC_AE: dict[str, Any] = {
    "latent_channels": 32,
    "encoder_block_types": (*("ResBlock",) * 3, *("EfficientViTBlock",) * 3),
    "decoder_block_types": (*("ResBlock",) * 3, *("EfficientViTBlock",) * 3),
    "encoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
    "decoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
    "encoder_layers_per_block": (2, 2, 2, 3, 3, 3),
    "decoder_layers_per_block": (3, 3, 3, 3, 3, 3),
    "encoder_qkv_multiscales": (*((),) * 3, *((5,),) * 3),
    "decoder_qkv_multiscales": (*((),) * 3, *((5,),) * 3),
    "downsample_block_type": "conv",
    "upsample_block_type": "interpolate",
    "decoder_norm_types": "rms_norm",
    "decoder_act_fns": "silu",
    "scaling_factor": 0.41407,
}


def _sana(layers: int, width: int, cross_heads: int) -> Architecture:
    return Architecture(
        backbone="SanaTransformer2DModel",
        config={
            "num_layers": layers,
            "num_attention_heads": width // 32,
            "attention_head_dim": 32,
            "num_cross_attention_heads": cross_heads,
            "cross_attention_head_dim": width // cross_heads,
            "cross_attention_dim": width,
        },
        vae=Vae("AutoencoderDC", DC_AE),
        text_tokens=300,
        vae_factor=32,
        predicts="velocity",
    )


ARCHITECTURES = {
    "tiny": Architecture(
        backbone="UNet2DConditionModel",
        config={
            "sample_size": 64,
            "block_out_channels": (8, 16, 32, 32),
            "down_block_types": (*("DownBlock2D",) * 2, *("CrossAttnDownBlock2D",) * 2),
            "up_block_types": (*("CrossAttnUpBlock2D",) * 2, *("UpBlock2D",) * 2),
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "attention_head_dim": 2,
            "cross_attention_dim": 32,
        },
        vae=Vae(
            "AutoencoderKL",
            {
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
        text_tokens=77,
    ),
    "sd15": Architecture(
        backbone="UNet2DConditionModel",
        config={
            "sample_size": 64,
            "block_out_channels": (320, 640, 1280, 1280),
            "down_block_types": (*("CrossAttnDownBlock2D",) * 3, "DownBlock2D"),
            "up_block_types": ("UpBlock2D", *("CrossAttnUpBlock2D",) * 3),
            "layers_per_block": 2,
            "attention_head_dim": 8,  # a count of heads in this family
            "cross_attention_dim": 768,
        },
        vae=Vae("AutoencoderKL", SD_VAE),
        text_tokens=77,
    ),
    "sdxl": Architecture(
        backbone="UNet2DConditionModel",
        config={
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
        vae=Vae("AutoencoderKL", SDXL_VAE),
        text_tokens=77,
    ),
    "pixart_sigma": Architecture(
        backbone="PixArtTransformer2DModel",
        config={
            "sample_size": 128,
            "num_layers": 28,
            "num_attention_heads": 16,
            "attention_head_dim": 72,
            "in_channels": 4,
            "out_channels": 8,
            "patch_size": 2,
            "cross_attention_dim": 1152,
            "caption_channels": 4096,
            "interpolation_scale": 2,
            "use_additional_conditions": False,
        },
        vae=Vae("AutoencoderKL", SDXL_VAE),
        text_tokens=300,
        betas=(0.0001, 0.02),
        beta_schedule="linear",
    ),
    "sana_0.6b": _sana(layers=28, width=1152, cross_heads=16),
    "sana_1.6b": _sana(layers=20, width=2240, cross_heads=20),
    "sd3_medium": Architecture(
        backbone="SD3Transformer2DModel",
        config={
            "sample_size": 128,
            "num_layers": 24,
            "num_attention_heads": 24,
            "attention_head_dim": 64,
            "in_channels": 16,
            "out_channels": 16,
            "patch_size": 2,
            "pos_embed_max_size": 192,
            "joint_attention_dim": 4096,
            "caption_projection_dim": 1536,
            "pooled_projection_dim": 2048,
        },
        vae=Vae("AutoencoderKL", {**WIDE_VAE, "scaling_factor": 1.5305, "shift_factor": 0.0609}),
        text_tokens=333,
        predicts="velocity",
    ),
    "flux_schnell": Architecture(
        backbone="FluxTransformer2DModel",
        config={"in_channels": 64, "num_layers": 19, "num_single_layers": 38, "guidance_embeds": False},
        vae=Vae("AutoencoderKL", {**WIDE_VAE, "scaling_factor": 0.3611, "shift_factor": 0.1159}),
        text_tokens=512,
        predicts="velocity",
    ),
}
