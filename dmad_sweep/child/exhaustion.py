"""Recognising out-of-memory among the errors that torch and its libraries raise for it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
CERTAIN = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|DefaultCPUAllocator: (can't allocate|not enough) memory"
    r"|std::bad_alloc|Cannot allocate memory"
)
PROBABLE = re.compile(
    # a handle or plan that found no memory; bad indices can end in the same text (pytorch#24838)
    r"CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|CUDNN_STATUS_(ALLOC_FAILED|INTERNAL_ERROR_HOST_ALLOCATION)"
    # NCCL's wording, and torch asking NVML about memory while it reports an OOM (pytorch#185240)
    r"|Cuda failure.*out of memory|NVML_SUCCESS == r INTERNAL ASSERT FAILED"
    # oneDNN under a process limit
    r"|could not create a (primitive|memory)"
)
IMPOSSIBLE = re.compile(r"Tried to allocate more than 1EB")
"""A size computed wrongly is a bug, whatever the exception's type."""


@dataclass(frozen=True)
class Exhaustion:
    """What an error says about the memory it did not get."""

    certain: bool
    requested_bytes: int | None


def recognise(error: BaseException) -> Exhaustion | None:
    """None when the error, and whatever it was raised from, is not about memory."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or CERTAIN.search(text):
        if IMPOSSIBLE.search(text):
            return None
        return Exhaustion(certain=True, requested_bytes=_requested(text))
    if isinstance(error, RuntimeError) and PROBABLE.search(text):
        return Exhaustion(certain=False, requested_bytes=None)
    return recognise(error.__cause__) if error.__cause__ is not None else None


def _requested(text: str) -> int | None:
    """Bytes in «Tried to allocate 20.00 MiB» (rounded by torch) or «you tried to allocate 4096 bytes»."""
    match = re.search(r"[Tt]ried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB|TiB)", text)
    return round(float(match[1]) * UNITS[match[2]]) if match else None


def observe_exhaustion(act: Callable[[int], None]) -> None:
    """Have the CUDA allocator call `act` with the exact bytes of a request before it raises for it."""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None:
        attach(lambda device, requested, allocated, free: act(requested))
