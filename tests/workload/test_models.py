"""Published sizes, counted without allocating anything."""

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel

from dmad_sweep.workload.discriminator import DiscriminatorHead, feature_size
from dmad_sweep.workload.models import ARCHITECTURES


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("model", "parameters"), [("sd15", 859_520_964), ("sdxl", 2_567_463_684)])
def test_unet_has_the_published_number_of_parameters(model: str, parameters: int) -> None:
    with torch.device("meta"):
        assert count(UNet2DConditionModel(**ARCHITECTURES[model].unet)) == parameters


@pytest.mark.parametrize("model", ["sd15", "sdxl"])
def test_vae_has_the_published_number_of_parameters(model: str) -> None:
    with torch.device("meta"):
        assert count(AutoencoderKL(**ARCHITECTURES[model].vae)) == 83_653_863


@pytest.mark.parametrize(
    ("model", "pixels", "parameters"), [("sd15", 512, 52_437_761), ("sdxl", 1024, 104_874_241)]
)
def test_head_is_dmd2s_at_the_size_dmd2_trains(model: str, pixels: int, parameters: int) -> None:
    side = feature_size(pixels // 8, len(ARCHITECTURES[model].unet["block_out_channels"]) - 1)
    with torch.device("meta"):
        assert count(DiscriminatorHead(1280, side, side)) == parameters


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (2, 2), (5, 7), (8, 12), (16, 16), (33, 4)])
def test_head_gives_one_logit_a_sample_at_every_size(size: tuple[int, int]) -> None:
    head = DiscriminatorHead(32, *size)
    assert head(torch.randn(3, 32, *size)).shape == (3,)


@pytest.mark.parametrize("pixels", [64, 72, 104, 520])
def test_feature_size_is_what_the_unet_makes_of_it(pixels: int) -> None:
    unet = UNet2DConditionModel(**ARCHITECTURES["tiny"].unet)
    seen = []
    unet.mid_block.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
    with torch.no_grad():
        side = pixels // 8
        unet(torch.zeros(1, 4, side, side), torch.tensor([1]), torch.zeros(1, 77, 32))
    assert seen == [feature_size(side, 3)]
