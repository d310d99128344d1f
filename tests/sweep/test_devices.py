"""Which device a trial gets, from what NVML and the environment say."""

from types import SimpleNamespace
from typing import Any

import pytest

from dmad_sweep.config.schema import Device
from dmad_sweep.errors import ConfigError
from dmad_sweep.sweep import devices
from dmad_sweep.sweep.devices import Gpu, choose_device, visible_gpus
from dmad_sweep.units import GIB

GPUS = [Gpu(index=i, uuid=f"GPU-{c}{c}", name=f"Card {c}", total_bytes=24 * GIB) for i, c in enumerate("abc")]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: True)
    return SimpleNamespace(gpus=GPUS, reason=None)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, "abc"),
        ("1", "b"),
        ("2, 0", "ca"),
        ("GPU-bb,0", "ba"),
        ("GPU-c", "c"),
        ("", ""),
        ("-1,0", ""),
        ("0,7,1", "a"),  # CUDA stops at the first entry that it does not know
        ("GPU-", ""),  # ambiguous
    ],
)
def test_cuda_visible_devices_is_respected(
    listed: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert "".join(gpu.name[-1] for gpu in visible_gpus(GPUS)) == expected


def test_auto_takes_a_gpu_where_torch_can_use_it(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device(Device(), nvml).uuid == "GPU-aa"
    assert choose_device(Device(kind="cuda", index=2), nvml).uuid == "GPU-cc"
    assert choose_device(Device(kind="cpu"), nvml).kind == "cpu"
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: False)
    assert choose_device(Device(), nvml).kind == "cpu"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            Device(kind="cuda", index=3),
            "device.index=3 is not allowed: choose one of 0 Card a, 1 Card b, 2 Card c",
        ),
        (Device(memory_limit_gib=25), "Card a has 24.0 GiB, a larger card cannot be emulated"),
    ],
)
def test_what_cannot_be_had_is_refused(wanted: Device, message: str, nvml: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_device(wanted, nvml)


def test_a_limit_is_kept_in_bytes(nvml: Any) -> None:
    assert choose_device(Device(memory_limit_gib=8), nvml).memory_limit_bytes == 8 * GIB


def test_hidden_gpus_and_mig_instances_are_told(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES hides all of them"):
        choose_device(Device(kind="cuda"), nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    with pytest.raises(ConfigError, match="names a MIG instance"):
        choose_device(Device(), nvml)
    assert choose_device(Device(kind="cpu"), nvml).kind == "cpu"


def test_the_build_of_torch_is_read_without_importing_it() -> None:
    import torch

    assert devices.torch_has_cuda() == (torch.version.cuda is not None)
