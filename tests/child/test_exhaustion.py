"""Texts that mean out of memory, as libraries have been seen to word them."""

import pytest
import torch

from dmad_sweep.child.exhaustion import Exhaustion, recognise

CUDA = "CUDA out of memory. Tried to allocate 58.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError(CUDA), Exhaustion(True, 58 * 2**20)),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), Exhaustion(True, None)),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"
            ),
            Exhaustion(True, 40_000_000_000),
        ),
        (MemoryError(), Exhaustion(True, None)),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Exhaustion(False, None),
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Exhaustion(False, None)),
        (
            RuntimeError("NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator"),
            Exhaustion(False, None),
        ),
        (RuntimeError("could not create a primitive"), Exhaustion(False, None)),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory."), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("CUBLAS_STATUS_ALLOC_FAILED"), None),
    ],
)
def test_recognise(error: BaseException, expected: Exhaustion | None) -> None:
    assert recognise(error) == expected


def test_the_cause_of_an_error_counts() -> None:
    outer = ValueError("the step failed")
    outer.__cause__ = torch.OutOfMemoryError(CUDA)
    assert recognise(outer) == Exhaustion(True, 58 * 2**20)


def test_a_real_failing_allocation_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55, dtype=torch.uint8)
    found = recognise(caught.value)
    assert found is not None
    assert found.requested_bytes == 2**55
