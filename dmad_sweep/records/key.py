"""Everything that can change a trial's numbers, as one key: equal keys need not be measured twice."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmad_sweep.records.plan import Plan

IGNORED = {"repeats", "timeout_s", "stall_s"}
"""Settings of the schedule that change no number: how often, and when to give up."""

ENVIRONMENT = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDNN_SDPA_ENABLED",
)
"""Variables that torch, CUDA and their libraries read; with allocator settings first among them."""


@dataclass(frozen=True, kw_only=True)
class TrialKey:
    """What a person is told when it changed, by the names of the fields."""

    combination: str
    """Digest of the resolved settings, the repeat among them."""
    code: str
    device: str
    driver: str | None
    torch: str | None
    libraries: str
    environment: str

    @property
    def digest(self) -> str:
        return _digest(asdict(self))

    def changed_since(self, earlier: "TrialKey") -> list[str]:
        """The parts that differ, as `driver 580.1 → 590.2`."""
        pairs = {f.name: (getattr(earlier, f.name), getattr(self, f.name)) for f in fields(self)}
        return [
            f"{name} {old or 'none'} → {new or 'none'}" for name, (old, new) in pairs.items() if old != new
        ]


def trial_key(
    plan: "Plan",
    *,
    host: str,
    code: str,
    driver: str | None,
    torch: str | None,
    libraries: dict[str, str | None],
    environment: dict[str, str],
) -> TrialKey:
    """`environment` is the whole environment of the process; what is in ENVIRONMENT counts."""
    device = plan.device
    which = device.uuid or f"of {host}"  # CPUs have no identity of their own
    return TrialKey(
        combination=combination_digest(plan),
        code=code,
        device=" ".join(str(part) for part in (device.name, which)),
        driver=driver,
        torch=torch,
        libraries=" ".join(f"{name} {version}" for name, version in sorted(libraries.items())),
        environment=" ".join(f"{name}={environment[name]}" for name in ENVIRONMENT if name in environment),
    )


def combination_digest(plan: "Plan") -> str:
    """Of all that the configuration decides, whatever the device."""
    settings = asdict(plan)
    for name in ("schema_version", "trial_id", "sweep", "index", "key", "latents_folder"):
        settings.pop(name, None)
    settings["schedule"] = {k: v for k, v in settings["schedule"].items() if k not in IGNORED}
    settings["device"] = {"kind": plan.device.kind, "memory_limit_bytes": plan.device.memory_limit_bytes}
    settings["pretrained"] = _configurations(plan.model.pretrained)
    return _digest(settings)


def _configurations(folder: str | None) -> dict[str, str]:
    """The configurations of a model's networks decide about memory and time, its weights do not."""
    if folder is None:
        return {}
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(Path(folder).glob("*/config.json"))
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
