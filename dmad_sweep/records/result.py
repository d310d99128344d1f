"""What the measured process found out: result.json, written by the child alone."""

from dataclasses import dataclass, field
from typing import Literal

from dmad_sweep.records.verification import Verification

SCHEMA_VERSION = 1

Status = Literal["ok", "oom", "invalid", "timeout", "killed", "failed"]
RESULT_STATUSES = ("ok", "oom", "invalid")
"""Statuses that answer the question; the others mean that there is no answer yet."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Highest bytes seen by the memory meter; None where the device cannot tell."""

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None


def larger(first: int | None, second: int | None) -> int | None:
    """The larger of two readings, where None is no reading."""
    return max((value for value in (first, second) if value is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What the device held at one instant: the highest allocation of a cycle run after the timed ones.

    Its parts are counted from the allocator's own record of that cycle, each block by what lives in it.
    """

    stage: str
    """Stage that held this cycle's peak."""
    weight_bytes: int
    """Weights and buffers of all networks."""
    gradient_bytes: int
    state_bytes: int
    """Optimizer states, and a moving average of weights on the device."""
    activation_bytes: int
    """All other live tensors: activations, temporaries, samples, workspaces of libraries."""
    allocated_bytes: int
    """The allocator's count at the cycle's peak: the four above, and the rounding of their blocks."""
    reserved_bytes: int
    """Held by the allocator at the same instant; what exceeds the allocated bytes is fragmentation."""
    context_bytes: int
    """Device memory beyond the allocator's, read at the borders of the stage: context, kernels, libraries."""

    @property
    def fragmentation_bytes(self) -> int:
        return self.reserved_bytes - self.allocated_bytes

    @property
    def counted_bytes(self) -> int:
        """The sum of all parts; what it leaves of the device's peak is unexplained."""
        live = self.weight_bytes + self.gradient_bytes + self.state_bytes + self.activation_bytes
        return live + self.fragmentation_bytes + self.context_bytes


@dataclass(frozen=True, kw_only=True)
class MemoryReport:
    """Peaks by stage.

    `first_forward_bytes` and `first_backward_bytes` are the highest from the trial's start to the end of the
    first `student.forward` and `student.backward`; `peak` is the highest of all, `load` and warm-up included.
    """

    meter: str
    """`cuda_allocator` (torch.cuda.memory_stats) or `process_rss` (VmHWM above `zero_bytes`)."""
    zero_bytes: int = 0
    """Reading subtracted from all: 0 on CUDA, the process's resident bytes just before `load` on a CPU."""
    context_bytes: int | None = None
    """Device bytes that the CUDA context took before the first tensor."""
    limit_bytes: int | None = None
    """What the allocator or the process was limited to, to emulate a smaller device."""
    after_load_bytes: int | None = None
    first_forward_bytes: int | None = None
    first_backward_bytes: int | None = None
    peak: Peak = Peak()
    peak_stage: str | None = None
    peak_cycle: int | None = None
    """Cycle that held the peak, from 1; 0 is `load`."""
    first_cycle: dict[str, Peak] = field(default_factory=dict)
    """Peak of each stage in cycle 1, `load` included."""
    steady: dict[str, Peak] = field(default_factory=dict)
    """Peak of each stage over the measured cycles."""
    device_peak_bytes: int | None = None
    """Highest `total - free` of cudaMemGetInfo at stage borders, less what was used before the trial."""
    allocation_retries: int | None = None
    """cudaMalloc retries after freeing the cache: above 0 the timing was taken under pressure."""
    anatomy: Anatomy | None = None
    """What the peak is made of; None where it was not looked at, on a CPU or after an out-of-memory."""
    unmeasured: dict[str, str] = field(default_factory=dict)
    """Why a field of this report is None."""


@dataclass(frozen=True, kw_only=True)
class TurnTime:
    """Seconds of one turn, the device synchronised at both ends."""

    turn: str
    """`student`, `fake_score` or `inference`."""
    compute_s: float
    enqueue_s: float | None = None
    """Until the host had launched everything; None in records of earlier versions."""
    device_s: float | None = None
    """Between CUDA events at both ends of the turn; None on a CPU."""
    data_s: float
    """Waiting for the turn's samples, their copy to the device included."""


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """Raw values of one cycle; warm-up cycles are kept, marked."""

    index: int
    """From 1."""
    warmup: bool
    turns: list[TurnTime]
    peak: Peak


@dataclass(frozen=True, kw_only=True)
class OutOfMemory:
    """Where and how memory ran out."""

    stage: str
    cycle: int
    """0 at load."""
    requested_bytes: int | None
    """Bytes of the allocation that failed, where the message says so."""
    certain: bool
    """False where the error only probably means out of memory (cuBLAS handles, NVML assertions)."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An error that is no out-of-memory: a fault (`failed`) or a refused combination (`invalid`)."""

    stage: str
    cycle: int
    kind: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the tensors really had, whatever the configuration said."""

    micro_batch: int | None = None
    height: int | None = None
    """Pixels: latent height times the VAE factor."""
    width: int | None = None
    latent_shape: list[int] | None = None
    optimizer_steps: dict[str, int] = field(default_factory=dict)
    """Steps that were really made, by trained network: loss scaling may leave some out."""
    optimizer_states: dict[str, bool] = field(default_factory=dict)
    """Whether every trained parameter has the state that its optimizer keeps."""
    recomputations: dict[str, int] = field(default_factory=dict)
    """Blocks of each network that were run again inside a backward."""
    attention: list[str] | None = None
    """Attention kernels of the student's first forward with gradients; None without gradients."""
    verification: Verification | None = None
    """Of a trial with phase=verify_accumulation."""


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """What a network holds that neither batch nor resolution changes, counted from its tensors."""

    parameters: int
    trained_parameters: int
    parameter_bytes: int
    buffer_bytes: int = 0
    """Tables that belong to the module and are no parameters: SD3-medium's positions take 216 MiB."""
    gradient_bytes: int
    """Gradients at the network's first optimizer step; 0 before it and where nothing is trained."""
    state_bytes: int
    """Optimizer states on the device."""

    @property
    def floor_bytes(self) -> int:
        return self.parameter_bytes + self.buffer_bytes + self.gradient_bytes + self.state_bytes


@dataclass(frozen=True, kw_only=True)
class Result:
    """The child's whole outcome."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    pid: int
    environment: dict[str, str | None]
    """Machine and library versions as the measured process saw them; None with `unmeasured` reasons."""
    networks: dict[str, NetworkSize] = field(default_factory=dict)
    observed: Observed = Observed()
    memory: MemoryReport | None = None
    cycles: list[Cycle] = field(default_factory=list)
    out_of_memory: OutOfMemory | None = None
    failure: Failure | None = None
