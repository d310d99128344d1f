"""The structured-config schema: every key, its type and its default, checked before a process starts."""

import re
from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

from dmad_sweep.errors import ConfigError
from dmad_sweep.records.settings import (
    DEVICES,
    Accumulation,
    Adapter,
    Attention,
    Batch,
    Checkpointing,
    Data,
    Ema,
    Memory,
    Model,
    Optimizer,
    Phase,
    Precision,
    Recipe,
    Resolution,
    Schedule,
    Target,
    documented,
    refuse,
    require_choice,
    require_minimum,
)

ISOLATIONS = ("fork", "spawn")
VIEWS = ("tradeoff", "growth", "memory")
FORMATS = ("terminal", "markdown", "csv", "json", "html")
LANGUAGES = ("en", "zh")
WORKLOADS = ("dmad",)


@dataclass
class Workload:
    name: str = documented("dmad", "What a trial runs: dmad, the built-in recipes.")

    def __post_init__(self) -> None:
        require_choice("workload.name", self.name, WORKLOADS)


@dataclass
class Device:
    kind: str = documented("auto", "auto (CUDA where NVML and torch both have it), cuda or cpu.")
    index: int = documented(0, "Which GPU, in NVML's (PCI bus) order.")
    memory_limit_gib: float | None = documented(
        None, "Emulate a card of this size; on a CPU, allow the process this much above its start."
    )
    require_idle: bool = documented(
        False, "Refuse to start a sweep while others use its GPU; otherwise rows carry a remark."
    )

    def __post_init__(self) -> None:
        require_choice("device.kind", self.kind, DEVICES)
        require_minimum("device.index", self.index, 0)
        if self.memory_limit_gib is not None and not 0 < self.memory_limit_gib < 2**20:
            raise refuse("device.memory_limit_gib", self.memory_limit_gib, "give a positive number of GiB")


@dataclass
class Tracking:
    uri: str | None = documented(None, "MLflow store: http://… or a database URI; null is outputs/mlflow.db.")
    experiment: str = documented("dmad_sweep", "MLflow experiment of the sweeps.")

    def __post_init__(self) -> None:
        if not self.experiment.strip():
            raise refuse("tracking.experiment", repr(self.experiment), "give a name")


@dataclass
class Report:
    sweep: str = documented("latest", "Which sweep to show: latest, a sweep's name, or all.")
    view: str = documented(
        "tradeoff",
        "tradeoff; growth: the peak's stage, headroom, each row against the one above; or memory: what each "
        "peak is made of. csv and json have all.",
    )
    format: str = documented("terminal", "terminal, markdown, csv, json or html (one page with plots).")
    output: str | None = documented(None, "File to write instead of the terminal.")
    language: str = documented("en", "en or zh: of tables, plots and advice; csv and json are English.")
    import_records: bool = documented(
        False, "First write to the store every record of the outputs folder that it lacks."
    )

    compare: str | None = documented(
        None,
        "Two sweeps, A,B, side by side instead of one: names, or ids of MLflow runs. As terminal, markdown, "
        "csv or json.",
    )
    keep: bool = documented(
        True,
        "Keep table, page and plots as artifacts of the sweep's MLflow run, and the table as its "
        "description. dmad_sweep.report does so only where it is asked to.",
    )

    def __post_init__(self) -> None:
        require_choice("report.view", self.view, VIEWS)
        require_choice("report.format", self.format, FORMATS)
        require_choice("report.language", self.language, LANGUAGES)
        if self.compare is None:
            return
        if len(self.compared) != 2:
            raise refuse("report.compare", self.compare, "name two sweeps: report.compare=A,B")
        if self.format == "html":
            raise refuse("report.format", self.format, "report.compare has terminal, markdown, csv and json")

    @property
    def compared(self) -> tuple[str, ...]:
        """Names or run ids of the two sweeps to compare."""
        return tuple(name.strip() for name in (self.compare or "").split(",") if name.strip())


@dataclass
class Sweep:
    name: str | None = documented(None, "Name of the sweep and of its folder; a time stamp when null.")

    def __post_init__(self) -> None:
        if self.name is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", self.name):
            raise refuse("sweep.name", self.name, "use up to 100 letters, digits, '_', '-' and '.'")


@dataclass
class Config:
    """What `python -m dmad_sweep` composes."""

    workload: Workload = field(default_factory=Workload)
    model: Model = field(default_factory=Model)
    recipe: Recipe = field(default_factory=Recipe)
    batch: Batch = field(default_factory=Batch)
    resolution: Resolution = field(default_factory=Resolution)
    accumulation: Accumulation = field(default_factory=Accumulation)
    target: Target = field(default_factory=Target)
    precision: Precision = field(default_factory=Precision)
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    adapter: Adapter = field(default_factory=Adapter)
    attention: Attention = field(default_factory=Attention)
    optimizer: Optimizer = field(default_factory=Optimizer)
    ema: Ema = field(default_factory=Ema)
    data: Data = field(default_factory=Data)
    phase: Phase = field(default_factory=Phase)
    schedule: Schedule = field(default_factory=Schedule)
    memory: Memory = field(default_factory=Memory)
    device: Device = field(default_factory=Device)
    tracking: Tracking = field(default_factory=Tracking)
    report: Report = field(default_factory=Report)
    sweep: Sweep = field(default_factory=Sweep)
    baseline: bool = documented(
        True,
        "Measure inference at batch 1 too for each model, precision, resolution and attention that has no "
        "comparable trial yet (hydra/launcher=isolated or basic), to show what training adds.",
    )
    resume: bool = documented(
        True,
        "Take over results that an earlier sweep measured under the same key (settings, code, device, "
        "driver, torch, libraries, environment) instead of measuring them again.",
    )
    isolation: str = documented(
        "fork", "fork: children of a server that has preloaded torch; spawn: a fresh interpreter for each."
    )
    outputs: str = documented("${dmad.outputs:}", "Folder of records, logs, store and artifacts.")

    def __post_init__(self) -> None:
        require_choice("isolation", self.isolation, ISOLATIONS)
        if self.accumulation.auto and self.target.effective_batch is None:
            raise ConfigError("accumulation=auto needs target.effective_batch=N, which it makes up")


def register() -> None:
    """Make the schema known to Hydra as `schema`, the first entry of every primary config."""
    ConfigStore.instance().store(name="schema", node=Config)
