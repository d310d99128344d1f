"""What makes a trial another one, and what does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dmad_sweep.records.key import TrialKey, trial_key
from dmad_sweep.records.plan import Plan, PlannedDevice
from dmad_sweep.records.settings import Adapter, Batch, Data, Model, Phase, Precision, Recipe, Schedule
from plans import make_plan

GPU = PlannedDevice(kind="cuda", name="NVIDIA H200", uuid="GPU-1", total_bytes=2**37)


def key(plan: Plan, **changes: Any) -> TrialKey:
    known: dict[str, Any] = {
        "host": "host",
        "code": "c0de",
        "driver": "580.1",
        "torch": "2.11.0",
        "libraries": {"diffusers": "0.42.1"},
        "environment": {"PATH": "/bin"},
    }
    return trial_key(plan, **(known | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": Batch(2)},
        {"recipe": Recipe(guidance_scale=2.0)},
        {"precision": Precision(name="fp32")},
        {"adapter": Adapter(name="lora", networks=["student"])},
        {"data": Data(seed=1)},
        {"phase": Phase("inference")},
        {"schedule": Schedule(warmup_cycles=3, measured_cycles=1)},
        {"repeat": 1},
        {"role": "baseline"},
        {"device": PlannedDevice(kind="cpu", name="CPU", memory_limit_bytes=2**30)},
    ],
    ids=str,
)
def test_another_setting_is_another_combination(changes: dict[str, Any]) -> None:
    assert key(make_plan(**changes)).combination != key(make_plan()).combination


@pytest.mark.parametrize(
    "changes",
    [
        {"trial_id": "f" * 16},
        {"sweep": "another"},
        {"index": 7},
        {"latents_folder": "/elsewhere"},
        {"schedule": Schedule(warmup_cycles=2, measured_cycles=1, repeats=5)},
        {"device": PlannedDevice(kind="cpu", name="CPU", used_before_bytes=5)},
    ],
    ids=str,
)
def test_what_changes_no_number_is_no_part_of_it(changes: dict[str, Any]) -> None:
    assert key(make_plan(**changes)) == key(make_plan())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"driver": "590.2"}, "driver 580.1 → 590.2"),
        ({"driver": None}, "driver 580.1 → none"),
        ({"torch": "2.13.0"}, "torch 2.11.0 → 2.13.0"),
        ({"code": "beef"}, "code c0de → beef"),
        ({"libraries": {"diffusers": "0.43.0"}}, "libraries diffusers 0.42.1 → diffusers 0.43.0"),
        (
            {"environment": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}},
            "environment none → PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
    ],
    ids=str,
)
def test_a_changed_part_is_named(changes: dict[str, Any], said: str) -> None:
    before, after = key(make_plan()), key(make_plan(), **changes)
    assert after.digest != before.digest
    assert after.combination == before.combination
    assert after.changed_since(before) == [said]


def test_a_gpu_is_itself_on_every_host_and_a_cpu_is_its_hosts() -> None:
    on_gpu, on_cpu = make_plan(device=GPU), make_plan()
    assert key(on_gpu, host="a") == key(on_gpu, host="b")
    assert key(on_cpu, host="a") != key(on_cpu, host="b")
    assert key(on_gpu) != key(make_plan(device=replace(GPU, uuid="GPU-2")))


def test_a_local_models_configuration_counts_and_its_weights_do_not(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    plan = make_plan(model=Model("tiny", pretrained=str(tmp_path)))
    before = key(plan)
    (tmp_path / "unet" / "model.safetensors").write_text("weights")
    assert key(plan) == before
    (tmp_path / "unet" / "config.json").write_text('{"layers": 2}')
    assert key(plan).combination != before.combination
