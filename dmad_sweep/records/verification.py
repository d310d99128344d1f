"""Whether gradient accumulation stands in for the batch: gradients of both ways, calls, and a verdict.

Weights after a step prove nothing: Adam's first update is the same for gradients scaled by 1, 1/4 and 1/16.
So gradients are compared, for each network, before clipping.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["pass", "fail"]

GATES = {"float32": (1e-4, 1e-4), "bfloat16": (2e-2, 1e-3), "float16": (2e-2, 1e-3)}
"""Highest relative L2 of the difference and of the norm, by the type that computes.

float32 with TF32 off; the others for autocast. On a toy UNet at batch 8 and 2 to 8 micro-steps 1e-6 and 1e-8
were seen in float32, 2e-3 and 2e-5 with bfloat16 autocast; kernels that depend on the batch loosen them.
"""

RATIO_TOLERANCE = 0.1
"""How near a ratio of norms must be to the number of micro-steps, or to one over it, to name the cause."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Gradients of one network: of the whole batch, and accumulated."""

    norm: float
    """Euclidean norm of the whole batch's gradient."""
    accumulated_norm: float
    relative_l2: float
    """Norm of the difference over the norm of the whole batch's gradient."""
    cosine: float

    @property
    def norm_ratio(self) -> float:
        return self.accumulated_norm / self.norm if self.norm else math.nan


@dataclass(frozen=True, kw_only=True)
class Calls:
    """What one optimizer did over some optimizer steps, and what it should have done."""

    expected: int
    steps: int
    zero_grads: int
    scheduler_steps: int
    boundaries: int
    """Steps that were tried while gradients were compared, when as many were expected."""

    @property
    def most_steps(self) -> int:
        return max(self.steps, self.boundaries)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Numbers of a verifying trial; see `judge`."""

    micro_steps: int
    computed_in: str
    """The type that computes: `float32`, `bfloat16` or `float16`."""
    agreements: dict[str, Agreement] = field(default_factory=dict)
    """By optimizer, the worst over all cycles."""
    calls: dict[str, Calls] = field(default_factory=dict)
    average_updates: int | None = None
    expected_average_updates: int | None = None
    coupled_layers: list[str] = field(default_factory=list)
    """Layers whose output for a sample depends on the others of its micro-batch."""


def worse(first: Agreement | None, second: Agreement) -> Agreement:
    """The one that agrees less; a NaN agrees least."""
    if first is None or not second.relative_l2 <= first.relative_l2:
        return second
    return first


def judge(found: Verification) -> tuple[Verdict, list[str]]:
    """`pass`, or `fail` with the likely causes, the most certain first."""
    causes = _wrong_calls(found)
    l2_gate, norm_gate = GATES[found.computed_in]
    for name, agreement in found.agreements.items():
        norm_error = abs(agreement.norm_ratio - 1)
        # written so that a NaN fails
        if agreement.relative_l2 <= l2_gate and norm_error <= norm_gate:
            continue
        causes.append(f"{name}: {_why_gradients_differ(agreement, found)}")
    return ("fail", causes) if causes else ("pass", [])


def _wrong_calls(found: Verification) -> list[str]:
    causes = []
    too_often = [name for name, calls in found.calls.items() if calls.most_steps > calls.expected]
    rightly = [name for name in found.calls if name not in too_often]
    for name in too_often:
        said = _called(name, "optimizer.step", found.calls[name].most_steps, found.calls[name].expected)
        said += ": it steps every micro-step"
        if rightly:
            said += f", while {', '.join(rightly)} waits for the boundary: only one optimizer accumulates"
        causes.append(said)
    for name, calls in found.calls.items():
        if calls.steps < calls.expected:
            causes.append(_called(name, "optimizer.step", calls.steps, calls.expected))
        if calls.scheduler_steps > calls.expected:
            said = _called(name, "scheduler.step", calls.scheduler_steps, calls.expected)
            causes.append(f"{said}: the scheduler advances on micro-steps")
        if calls.zero_grads > calls.expected and name not in too_often:
            said = _called(name, "zero_grad", calls.zero_grads, calls.expected)
            causes.append(f"{said}: gradients are cleared inside the window")
    expected = found.expected_average_updates
    if expected is not None and found.average_updates != expected:
        causes.append(f"the weight average was updated {found.average_updates} times instead of {expected}")
    return causes


def _called(trainer: str, call: str, times: int, expected: int) -> str:
    return f"{trainer}: {call} was called {times} times instead of {expected}"


def _why_gradients_differ(agreement: Agreement, found: Verification) -> str:
    steps, ratio = found.micro_steps, agreement.norm_ratio
    numbers = (
        f"relative L2 {agreement.relative_l2:.1e}, norms {ratio:.4g} to 1, cosine {agreement.cosine:.6f}"
    )
    if _near(agreement.cosine, 1.0, 1e-2):
        if _near(ratio * steps, 1.0, RATIO_TOLERANCE):
            return f"gradients are 1/{steps} of what they should be: divided twice ({numbers})"
        if _near(ratio / steps, 1.0, RATIO_TOLERANCE):
            return f"gradients are {steps} times what they should be: never divided ({numbers})"
    if found.coupled_layers:
        layers = ", ".join(found.coupled_layers[:3])
        return f"layers couple the samples of a batch ({layers}), so that equality cannot hold ({numbers})"
    return (
        f"gradients differ ({numbers}): they are cleared or stepped inside the window, or a loss couples the "
        "samples of a batch"
    )


def _near(value: float, target: float, tolerance: float) -> bool:
    return abs(value - target) <= tolerance
