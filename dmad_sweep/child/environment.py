"""What the measured process runs on, for the record."""

import importlib.metadata
import os
import platform

import torch

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Since torch 2.10 both names are read; both are recorded as they are."""


def describe(device: torch.device) -> dict[str, str | None]:
    """Versions and device; None where there is none."""
    facts: dict[str, str | None] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": str(torch.backends.cudnn.version()) if torch.backends.cudnn.is_available() else None,
        "diffusers": _version("diffusers"),
        "threads": str(torch.get_num_threads()),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
    }
    facts.update({name.lower(): os.environ.get(name) for name in ALLOCATOR_VARIABLES})
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["device_name"] = properties.name
        facts["device_uuid"] = str(properties.uuid)
        facts["device_total_bytes"] = str(properties.total_memory)
        facts["compute_capability"] = f"{properties.major}.{properties.minor}"
    return facts


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
