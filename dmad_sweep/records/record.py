"""The truth about one trial: plan, result and how the process ended. MLflow can be rebuilt from it."""

from dataclasses import dataclass, field
from typing import Literal

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.result import Peak, Result, Status
from dmad_sweep.units import MIB

SCHEMA_VERSION = 1

IDLE_BYTES = 512 * MIB
"""A GPU with more than this in use is not idle, whatever its list of processes says.

It is below what one process takes that holds nothing but a CUDA context (527 MiB on an H200), and above what
a GPU without processes shows once the driver's own reserve is left out (a few MiB).
"""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the measured process ended, as its parent saw it."""

    pid: int | None
    exit_code: int | None
    """None when a signal ended the process."""
    signal: str | None
    """`SIGKILL`, … when a signal ended the process."""
    wall_s: float
    explanation: str | None = None
    """Why there is no result, in words, when there is none."""
    last_stage: str | None = None
    last_cycle: int | None = None
    """Stage and cycle that the process had reached, from its progress reports."""
    last_report_at: float | None = None
    """Unix time of entering that stage, seconds."""
    peak_before: Peak | None = None
    """The highest that it had reported until then."""
    left_behind: int = 0
    """Processes that it had started, still ran after its end, and were killed."""
    log_tail: str | None = None
    """Last lines of the child's log when it left no result or failed."""


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """A process of somebody else's on the device. It is looked at, never touched."""

    seen: Literal["before", "during"]
    """Whether it was there before the trial or appeared during it."""
    pid: int | None = None
    """As NVML gives it; None when it can only be counted, see `DeviceMemory.strangers`."""
    name: str | None = None
    used_bytes: int | None = None
    """The most that NVML attributed to it when it was looked at."""


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """NVML's view, sampled by the parent while the child lived. None on a CPU, with the reason."""

    total_bytes: int | None = None
    used_before_bytes: int | None = None
    peak_used_bytes: int | None = None
    """Highest used bytes of the whole device: context, cache and other processes included."""
    process_peak_bytes: int | None = None
    """Highest used bytes of the child's process, where NVML can attribute memory to it."""
    unreleased_bytes: int | None = None
    """What the device still held of it when waiting for its release was given up; None where it had all."""
    samples: int = 0
    strangers: list[Stranger] = field(default_factory=list)
    """Others' processes that NVML lists; in a container it may hide them, or show PIDs of the host, among
    which the child's own cannot be told: there, all that appear but one are strangers."""
    unmeasured: dict[str, str] = field(default_factory=dict)

    @property
    def in_use_before(self) -> bool:
        """Whether others used the device before the trial."""
        listed = any(stranger.seen == "before" for stranger in self.strangers)
        return listed or (self.used_before_bytes or 0) > IDLE_BYTES


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Which code measured, on which host."""

    host: str
    version: str
    code_hash: str
    """SHA-256 over the installed dmad_sweep/ and conf/, the first 12 hexadecimal digits."""
    commit: str | None
    dirty: bool | None
    driver: str | None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The trial that a result was taken from instead of measuring it again."""

    sweep: str
    trial_id: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """record.json."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    started_at: float
    """Unix time, seconds."""
    ended_at: float
    plan: Plan
    result: Result | None
    ending: Ending
    device_memory: DeviceMemory
    provenance: Provenance
    reused_from: Origin | None = None
