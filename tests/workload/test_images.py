"""Real pictures through the VAE into the latent cache."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from dmad_sweep.errors import UnsupportedError
from dmad_sweep.records.plan import Plan
from dmad_sweep.records.settings import Data, Resolution
from dmad_sweep.workload.images import CachedLatents, encode_missing, read_picture
from plans import make_plan

CPU = torch.device("cpu")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    folder = tmp_path / "photographs"
    folder.mkdir()
    loaded = load_sample_images()
    for name, pixels in zip(loaded.filenames, loaded.images, strict=True):
        Image.fromarray(pixels).save(folder / Path(name).name)
    return folder


def image_plan(root: Path, cache: Path, side: int = 64) -> Plan:
    return make_plan(
        data=Data(source="images", root=str(root)),
        resolution=Resolution(side, side),
        latents_folder=str(cache),
    )


def test_photographs_become_latents_of_the_resolution(photographs: Path, tmp_path: Path) -> None:
    plan = image_plan(photographs, tmp_path / "cache")
    encode_missing(plan, CPU)
    latents = CachedLatents(plan)
    assert len(latents) == 2
    assert latents.latent(0).shape == (4, 8, 8)
    assert not torch.equal(latents.latent(0), latents.latent(1))


def test_a_changed_resolution_never_meets_a_stale_latent(photographs: Path, tmp_path: Path) -> None:
    small, large = (image_plan(photographs, tmp_path / "cache", side) for side in (64, 128))
    for plan in (small, large, small):
        encode_missing(plan, CPU)
    assert len(list((tmp_path / "cache").iterdir())) == 4
    assert CachedLatents(small).latent(0).shape == (4, 8, 8)
    assert CachedLatents(large).latent(0).shape == (4, 16, 16)


def test_a_changed_picture_is_encoded_again(photographs: Path, tmp_path: Path) -> None:
    plan = image_plan(photographs, tmp_path / "cache")
    encode_missing(plan, CPU)
    before = CachedLatents(plan).latent(0)
    Image.new("RGB", (300, 200), "red").save(photographs / "china.jpg")
    encode_missing(plan, CPU)
    assert not torch.equal(before, CachedLatents(plan).latent(0))


def test_a_file_that_is_no_picture_is_skipped_by_name(
    photographs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (photographs / "broken.jpg").write_bytes(b"not a picture")
    plan = image_plan(photographs, tmp_path / "cache")
    encode_missing(plan, CPU)
    assert len(CachedLatents(plan)) == 2
    assert "broken.jpg" in caplog.text


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no pictures there"):
        encode_missing(image_plan(tmp_path, tmp_path / "cache"), CPU)


def test_pixels_cover_the_size_and_keep_the_middle(tmp_path: Path) -> None:
    picture = Image.new("RGB", (300, 100), "black")
    picture.paste("white", (100, 0, 200, 100))
    picture.save(tmp_path / "wide.png")
    pixels = read_picture(tmp_path / "wide.png", 64, 64)
    assert pixels.shape == (3, 64, 64)
    assert pixels.mean() > 0.95  # the white middle third
