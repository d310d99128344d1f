"""Plans for tests: the smallest real trial, with whatever a test wants different."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dmad_sweep.records.plan import Plan, PlannedDevice
from dmad_sweep.records.settings import (
    Accumulation,
    Attention,
    Batch,
    Checkpointing,
    Data,
    Ema,
    Model,
    Optimizer,
    Phase,
    Precision,
    Recipe,
    Resolution,
    Schedule,
)

FP32 = Precision(name="fp32", weights="float32", frozen="float32", autocast=None)
BF16 = Precision()
FP16 = Precision(name="fp16", frozen="float16", autocast="float16", grad_scaler=True)


def make_plan(**changes: Any) -> Plan:
    """`tiny` at 64 px in float32 on the CPU, two warm-up cycles and one measured."""
    plan = Plan(
        trial_id="0123456789abcdef",
        sweep="test",
        index=0,
        isolation="fork",
        workload="dmad",
        model=Model("tiny"),
        recipe=Recipe(),
        batch=Batch(1),
        resolution=Resolution(64, 64),
        accumulation=Accumulation(1),
        precision=FP32,
        checkpointing=Checkpointing(),
        attention=Attention(),
        optimizer=Optimizer(),
        ema=Ema(),
        data=Data(),
        phase=Phase(),
        schedule=Schedule(warmup_cycles=2, measured_cycles=1),
        device=PlannedDevice(kind="cpu", name="CPU"),
    )
    return replace(plan, **changes)


def save_model(
    folder: Path, *, channels: tuple[int, ...] = (64, 128), layers: int = 1, cross_attention: int = 32
) -> Path:
    """A diffusers folder with a UNet and a VAE of random weights."""
    from diffusers import AutoencoderKL, UNet2DConditionModel

    from dmad_sweep.workload.architectures import ARCHITECTURES

    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=channels,
        down_block_types=("DownBlock2D",) * len(channels),
        up_block_types=("UpBlock2D",) * len(channels),
        layers_per_block=layers,
        norm_num_groups=8,
        attention_head_dim=2,
        cross_attention_dim=cross_attention,
    )
    unet.save_pretrained(folder / "unet")
    AutoencoderKL(**ARCHITECTURES["tiny"].vae.config).save_pretrained(folder / "vae")
    return folder
