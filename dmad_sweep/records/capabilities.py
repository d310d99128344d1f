"""What a model cannot take, known before a process is started."""

from dataclasses import dataclass

from dmad_sweep.records.plan import Plan


@dataclass(frozen=True)
class Capability:
    """Limits of a model, found by running its diffusers class (0.42) at sizes on both sides of them."""

    multiple: int = 8
    """Pixels that both sides must be a multiple of: the VAE's factor times the patch."""
    largest: int | None = None
    """Pixels of the longest side that its position table covers."""
    masked_text: bool = False
    """Its cross-attention takes a mask, for which flash has no kernel."""


CAPABILITIES = {
    "tiny": Capability(),
    "sd15": Capability(),
    "sdxl": Capability(),
    "pixart_sigma": Capability(multiple=16, masked_text=True),
    "sana_0.6b": Capability(multiple=32, masked_text=True),
    "sana_1.6b": Capability(multiple=32, masked_text=True),
    "sd3_medium": Capability(multiple=16, largest=3072),
    "flux_schnell": Capability(multiple=16),
}

HALF_ONLY = ("flash", "cudnn")
"""Attention kernels without a float32 form."""


def why_impossible(plan: Plan) -> str | None:
    """Why no process could run this combination, and what to do instead; None where one can try."""
    capability, model = CAPABILITIES[plan.model.name], plan.model.name
    for side, value in (("height", plan.resolution.height), ("width", plan.resolution.width)):
        if value % capability.multiple:
            below = value - value % capability.multiple
            near = [below, below + capability.multiple] if below else [capability.multiple]
            return (
                f"resolution.{side}={value}: {model} takes multiples of {capability.multiple} pixels; "
                f"use {' or '.join(map(str, near))}"
            )
        if capability.largest is not None and value > capability.largest:
            return f"resolution.{side}={value}: {model} takes at most {capability.largest} pixels"
    target, batch = plan.target.effective_batch, plan.batch.size
    if plan.accumulation.auto and target is not None and target % batch:
        below = next(n for n in range(min(batch, target), 0, -1) if target % n == 0)
        return f"batch={batch} does not divide target.effective_batch={target}; batch={below} does"
    attention = plan.attention.name
    if attention in HALF_ONLY and plan.precision.computed_in == "float32":
        return f"attention={attention} has no float32 kernel; use attention=efficient or precision=bf16"
    if attention == "flash" and capability.masked_text:
        return f"attention=flash takes no mask, and {model} masks its text; use attention=efficient or auto"
    return None
