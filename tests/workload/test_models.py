"""Published sizes, counted without allocating anything."""

import diffusers
import pytest
import torch

from dmad_sweep.records.settings import MODELS
from dmad_sweep.workload.architectures import ARCHITECTURES
from dmad_sweep.workload.backbones import BACKBONES, Backbone
from dmad_sweep.workload.discriminator import DiscriminatorHead


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def on_meta(model: str) -> Backbone:
    architecture = ARCHITECTURES[model]
    with torch.device("meta"):
        module = getattr(diffusers, architecture.backbone)(**architecture.config)
    return BACKBONES[architecture.backbone](module, torch.float32, architecture.vae_factor)


def test_every_model_of_the_configuration_has_an_architecture() -> None:
    assert set(MODELS) == {"auto", *ARCHITECTURES}


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("sd15", 859_520_964),
        ("sdxl", 2_567_463_684),
        ("pixart_sigma", 610_856_096),
        ("sana_0.6b", 591_747_872),
        ("sana_1.6b", 1_604_462_752),
        ("sd3_medium", 2_028_328_000),
        ("flux_schnell", 11_891_178_560),
    ],
)
def test_denoiser_has_the_published_number_of_parameters(model: str, parameters: int) -> None:
    assert count(on_meta(model).module) == parameters


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("sd15", 83_653_863),
        ("sdxl", 83_653_863),
        ("pixart_sigma", 83_653_863),
        ("sana_1.6b", 312_250_275),
        ("sd3_medium", 83_819_683),
        ("flux_schnell", 83_819_683),
    ],
)
def test_vae_has_the_published_number_of_parameters(model: str, parameters: int) -> None:
    vae = ARCHITECTURES[model].vae
    with torch.device("meta"):
        assert count(getattr(diffusers, vae.kind)(**vae.config)) == parameters


@pytest.mark.parametrize(
    ("model", "latent_channels", "text", "pooled"),
    [
        ("sd15", 4, (77, 768), None),
        ("sdxl", 4, (77, 2048), 1280),
        ("pixart_sigma", 4, (300, 4096), None),
        ("sana_0.6b", 32, (300, 2304), None),
        ("sana_1.6b", 32, (300, 2304), None),
        ("sd3_medium", 16, (333, 4096), 2048),
        ("flux_schnell", 16, (512, 4096), 768),
    ],
)
def test_inputs_have_the_shapes_of_the_published_model(
    model: str, latent_channels: int, text: tuple[int, int], pooled: int | None
) -> None:
    backbone = on_meta(model)
    assert backbone.latent_channels == latent_channels
    assert (ARCHITECTURES[model].text_tokens, backbone.text_width) == text
    assert backbone.pooled_width == pooled


@pytest.mark.parametrize(
    ("model", "pixels", "parameters"), [("sd15", 512, 52_437_761), ("sdxl", 1024, 104_874_241)]
)
def test_head_is_dmd2s_at_the_size_dmd2_trains(model: str, pixels: int, parameters: int) -> None:
    shape = on_meta(model).feature_shape(pixels // 8, pixels // 8)
    with torch.device("meta"):
        assert count(DiscriminatorHead(*shape)) == parameters


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (2, 2), (5, 7), (8, 12), (16, 16), (33, 4)])
def test_head_gives_one_logit_a_sample_at_every_size(size: tuple[int, int]) -> None:
    head = DiscriminatorHead(32, *size)
    assert head(torch.randn(3, 32, *size)).shape == (3,)


def test_a_head_on_wide_features_is_no_wider_than_dmd2s() -> None:
    with torch.device("meta"):
        head = DiscriminatorHead(3072, 4, 4)
        assert head(torch.empty(2, 3072, 4, 4)).shape == (2,)
    assert count(head) == 3072 * 1280 + 1280 + (1280 * 1280 * 16 + 1280) + 2 * 1280 + 1280 + 1
