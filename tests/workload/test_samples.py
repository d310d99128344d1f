"""Sample i is the same in every combination."""

import torch

from dmad_sweep.workload.samples import SampleList, SyntheticLatents


def sample_list(height: int = 8, width: int = 8, count: int = 64) -> SampleList:
    latents = SyntheticLatents(count, channels=4, height=height, width=width, seed=0)
    return SampleList(latents, text_shape=(77, 32), pooled_width=16, seed=0)


def test_batches_cut_one_list() -> None:
    samples = sample_list()
    whole = samples.step(0, 4)
    parts = [samples.step(index, 1) for index in range(4)]
    assert torch.equal(whole.latents, torch.cat([part.latents for part in parts]))
    assert torch.equal(whole.condition.text, torch.cat([part.condition.text for part in parts]))
    assert whole.condition.pooled is not None
    assert torch.equal(whole.condition.pooled, torch.cat([part.condition.pooled for part in parts]))


def test_the_list_starts_again_after_the_last() -> None:
    samples = sample_list(count=3)
    assert torch.equal(samples.step(1, 2).latents[1], samples.step(0, 1).latents[0])


def test_a_sample_is_the_same_picture_at_every_size() -> None:
    small = SyntheticLatents(8, 4, 17, 17, seed=0).latent(5)
    large = SyntheticLatents(8, 4, 33, 65, seed=0).latent(5)
    assert torch.allclose(small, large[:, ::2, ::4], atol=1e-5)


def test_samples_differ_and_have_unit_variance() -> None:
    latents = SyntheticLatents(256, 4, 16, 16, seed=0)
    together = torch.stack([latents.latent(i) for i in range(256)])
    assert not torch.equal(together[0], together[1])
    assert abs(together.std().item() - 1) < 0.1
