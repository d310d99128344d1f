"""What is refused before a process starts: sizes and kernels that a model cannot take."""

import pytest

from dmad_sweep.records.capabilities import CAPABILITIES, why_impossible
from dmad_sweep.records.settings import MODELS, Attention, Model, Precision, Resolution
from plans import BF16, FP32, make_plan


def test_every_model_has_its_limits() -> None:
    assert set(CAPABILITIES) == {*MODELS} - {"auto"}


@pytest.mark.parametrize(
    ("model", "resolution", "said"),
    [
        ("sd15", (504, 512), None),
        ("pixart_sigma", (512, 504), "resolution.width=504: pixart_sigma takes multiples of 16 pixels"),
        ("sd3_medium", (504, 512), "use 496 or 512"),
        ("sd3_medium", (3072, 3072), None),
        ("sd3_medium", (3088, 1024), "resolution.height=3088: sd3_medium takes at most 3072 pixels"),
        ("sana_1.6b", (528, 512), "use 512 or 544"),
        ("sana_0.6b", (16, 512), "use 32"),
        ("flux_schnell", (1016, 1024), "use 1008 or 1024"),
    ],
)
def test_sizes(model: str, resolution: tuple[int, int], said: str | None) -> None:
    reason = why_impossible(make_plan(model=Model(model), resolution=Resolution(*resolution)))
    assert (reason is None) if said is None else (reason is not None and said in reason)


@pytest.mark.parametrize(
    ("kernel", "precision", "model", "said"),
    [
        ("flash", FP32, "sd15", "attention=flash has no float32 kernel"),
        ("cudnn", FP32, "sd15", "attention=cudnn has no float32 kernel"),
        ("efficient", FP32, "sd15", None),
        ("flash", BF16, "sd15", None),
        ("flash", BF16, "sana_0.6b", "attention=flash takes no mask, and sana_0.6b masks its text"),
        ("efficient", BF16, "pixart_sigma", None),
    ],
)
def test_kernels(kernel: str, precision: Precision, model: str, said: str | None) -> None:
    plan = make_plan(attention=Attention(kernel), precision=precision, model=Model(model))
    reason = why_impossible(plan)
    assert (reason is None) if said is None else (reason is not None and said in reason)
