"""Which attention kernels may run, and which did."""

import torch
from torch import Tensor

from dmad_sweep.records.settings import Attention

NODES = {
    "ScaledDotProductFlashAttention": "flash",
    "ScaledDotProductEfficientAttention": "efficient",
    "ScaledDotProductCudnnAttention": "cudnn",
    "ScaledDotProductFusedAttentionOverrideable": "overrideable",
    "Softmax": "math",
    "SafeSoftmax": "math",
}
"""Beginnings of autograd node names, and the kernel that each belongs to."""


def allow_kernels(attention: Attention) -> None:
    """Switch the other kernels off, for this process."""
    chosen = attention.name
    torch.backends.cuda.enable_flash_sdp(chosen in ("auto", "flash"))
    torch.backends.cuda.enable_mem_efficient_sdp(chosen in ("auto", "efficient"))
    torch.backends.cuda.enable_cudnn_sdp(chosen in ("auto", "cudnn"))
    torch.backends.cuda.enable_math_sdp(chosen in ("auto", "math"))


def kernels_in_graph(output: Tensor) -> list[str]:
    """Attention kernels of the forward that made `output`, read off its autograd graph.

    Nothing is traced or intercepted, so memory and time of the step stay what they are.
    """
    found, seen, waiting = set(), set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().partition("Backward")[0]
        kernel = next((kernel for start, kernel in NODES.items() if name.startswith(start)), None)
        if kernel is not None:
            found.add(kernel)
        waiting += [following for following, _ in node.next_functions]
    return sorted(found)
