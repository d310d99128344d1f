"""One trial reduced to what tables, fits and advice need: the `dmad.row` tag, below 8,000 characters."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dmad_sweep.records.key import TrialKey
from dmad_sweep.records.plan import Role
from dmad_sweep.records.record import Record
from dmad_sweep.records.result import Anatomy, Cycle, MemoryReport, Peak, Result, Status, larger
from dmad_sweep.records.variables import unshown_settings
from dmad_sweep.records.verification import Verdict, judge

SCHEMA_VERSION = 1

LAUNCH_BOUND = 0.96
"""Share of a step that the host spends launching it, from which on the device waits for the host."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median of the raw values with their lowest and highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """None for no values."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(median=statistics.median(ordered), low=ordered[0], high=ordered[-1])

    @property
    def relative(self) -> float:
        """Half the range over the median: the ± of tables."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What of all networks together neither batch nor resolution lowers, in bytes."""

    weight_bytes: int
    gradient_bytes: int
    state_bytes: int
    gradient_set_bytes: int
    """Gradients of the network that has the most: with accumulation they live beside activations."""
    trained_parameters: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """See `row_of`. Bytes and seconds; None is not measured."""

    schema_version: int = SCHEMA_VERSION
    trial_id: str
    sweep: str
    index: int
    role: Role = "combination"
    repeat: int = 0
    status: Status
    started_at: float

    model: str
    pretrained: str | None = None
    recipe: str
    phase: str
    data: str
    batch: int
    accumulation: int
    effective_batch: int
    height: int
    width: int
    resolution: str
    precision: str
    checkpointing: str
    adapter: str = "full"
    attention: str
    optimizer: str
    ema: str
    student_update_freq: int

    device_kind: str
    device_name: str
    device_total_bytes: int | None
    memory_limit_bytes: int | None
    torch: str | None
    driver: str | None
    code: str

    memory_meter: str | None
    after_load_bytes: int | None
    first_forward_bytes: int | None
    first_backward_bytes: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    device_peak_bytes: int | None
    headroom_bytes: int | None
    used_before_bytes: int | None = None
    peak_stage: str | None
    peak_cycle: int | None
    floor_bytes: int | None = None
    """Weights, gradients and optimizer states of all networks: what no batch or resolution lowers."""
    floor: Floor | None = None
    """Its parts as far as they had come to be; `floor_bytes` is their sum once all have."""
    stage_peaks: dict[str, int] = field(default_factory=dict)
    """Highest allocated bytes of each stage over first and steady cycles: what a fit is made from."""
    anatomy: Anatomy | None = None
    unexplained_bytes: int | None = None
    """Device peak less all that the anatomy counts."""
    enqueue_share: float | None = None
    """Share of the measured turns' time until the host had launched everything."""

    student_turn_s: Spread | None
    fake_score_turn_s: Spread | None
    inference_s: Spread | None
    data_s: Spread | None
    iteration_s: Spread | None
    images_per_s: float | None

    died_stage: str | None
    died_cycle: int | None
    oom_requested_bytes: int | None
    explanation: str | None
    """In words, why there is no measurement: the failure's message, or how the process ended."""
    key: TrialKey | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Settings beside those above that differ from their defaults; see records.variables."""
    reused_from: str | None = None
    """Sweep that measured this, where the row's own sweep took it over."""
    verdict: Verdict | None = None
    """Of phase=verify_accumulation; the causes of `fail` are the explanation."""
    gradient_l2: float | None = None
    """Worst relative L2 between accumulated and whole gradients, over the networks."""
    remarks: list[str] = field(default_factory=list)
    """Codes that the table spells out; see `remarks_of`."""


def row_of(record: Record) -> Row:
    """Reduce a record. Pure; every derived number of the project is computed here or below."""
    plan, result = record.plan, record.result
    memory = result.memory if result else None
    measured = _measured(result)
    turns = _turns(measured)
    iteration = iteration_s(plan.recipe.name, plan.phase.name, plan.recipe.student_update_freq, turns)
    data = Spread.of(turn.data_s for cycle in measured for turn in cycle.turns)
    peak = memory.peak if memory else record.ending.peak_before or Peak()
    device_peak = device_peak_bytes(record)
    died_stage, died_cycle = _died(record)
    verdict, causes, gradient_l2 = _verified(record)
    return Row(
        trial_id=plan.trial_id,
        sweep=plan.sweep,
        index=plan.index,
        role=plan.role,
        repeat=plan.repeat,
        status=record.status,
        started_at=record.started_at,
        model=plan.model.name,
        pretrained=plan.model.pretrained,
        recipe=plan.recipe.name,
        phase=plan.phase.name,
        data=plan.data.source,
        batch=plan.batch.size,
        accumulation=plan.accumulation.steps,
        effective_batch=plan.effective_batch,
        height=plan.resolution.height,
        width=plan.resolution.width,
        resolution=plan.resolution.label,
        precision=plan.precision.name,
        checkpointing=plan.checkpointing.name,
        adapter=plan.adapter.label,
        attention=plan.attention.name,
        optimizer=plan.optimizer.name,
        ema=plan.ema.name,
        student_update_freq=plan.recipe.student_update_freq,
        device_kind=plan.device.kind,
        device_name=plan.device.name,
        device_total_bytes=plan.device.total_bytes,
        memory_limit_bytes=plan.device.memory_limit_bytes,
        torch=result.environment.get("torch") if result else None,
        driver=record.provenance.driver,
        code=record.provenance.code_hash,
        memory_meter=memory.meter if memory else None,
        after_load_bytes=memory.after_load_bytes if memory else None,
        first_forward_bytes=memory.first_forward_bytes if memory else None,
        first_backward_bytes=memory.first_backward_bytes if memory else None,
        peak_allocated_bytes=peak.allocated_bytes,
        peak_reserved_bytes=peak.reserved_bytes,
        device_peak_bytes=device_peak,
        headroom_bytes=headroom_bytes(record, device_peak),
        used_before_bytes=record.device_memory.used_before_bytes,
        peak_stage=memory.peak_stage if memory else None,
        peak_cycle=memory.peak_cycle if memory else None,
        floor_bytes=floor_bytes(record),
        floor=floor_of(record),
        stage_peaks=stage_peaks(memory) if memory else {},
        anatomy=memory.anatomy if memory else None,
        unexplained_bytes=unexplained_bytes(record, device_peak),
        enqueue_share=enqueue_share(measured),
        student_turn_s=Spread.of(turns.get("student", [])),
        fake_score_turn_s=Spread.of(turns.get("fake_score", [])),
        inference_s=Spread.of(turns.get("inference", [])),
        data_s=data,
        iteration_s=iteration,
        images_per_s=images_per_s(plan.effective_batch, iteration, data),
        died_stage=died_stage,
        died_cycle=died_cycle,
        oom_requested_bytes=(
            result.out_of_memory.requested_bytes if result and result.out_of_memory else None
        ),
        explanation=causes or _explanation(record),
        verdict=verdict,
        gradient_l2=gradient_l2,
        key=plan.key,
        settings=unshown_settings(plan),
        reused_from=record.reused_from.sweep if record.reused_from else None,
        remarks=remarks_of(record),
    )


def _verified(record: Record) -> tuple[Verdict | None, str | None, float | None]:
    found = record.result.observed.verification if record.result and record.status == "ok" else None
    if found is None:
        return None, None, None
    verdict, causes = judge(found)
    worst = max((agreement.relative_l2 for agreement in found.agreements.values()), default=None)
    return verdict, "; ".join(causes)[:500] or None, worst


def iteration_s(
    recipe: str, phase: str, student_update_freq: int, turns: dict[str, list[float]]
) -> Spread | None:
    """Seconds of one training iteration without waiting for data, from the turns' raw seconds.

    `dmd2` runs the fake-score turn in every iteration and the student turn in every K-th: F + S/K.
    `fastgen` runs one of the two, the student turn in every K-th iteration: (S + (K-1)·F)/K. `sft` has one.
    """
    if phase != "train":
        return Spread.of(turns.get("inference", []))
    student, fake_score = Spread.of(turns.get("student", [])), Spread.of(turns.get("fake_score", []))
    if recipe == "sft" or student is None:
        return student
    if fake_score is None:
        return None
    k = student_update_freq
    combine: Callable[[float, float], float] = {
        "dmd2": lambda s, f: f + s / k,
        "fastgen": lambda s, f: (s + (k - 1) * f) / k,
    }[recipe]
    return Spread(
        median=combine(student.median, fake_score.median),
        low=combine(student.low, fake_score.low),
        high=combine(student.high, fake_score.high),
    )


def images_per_s(effective_batch: int, iteration: Spread | None, data: Spread | None) -> float | None:
    """Images per second of training, waiting for data included."""
    if iteration is None:
        return None
    return effective_batch / (iteration.median + (data.median if data else 0.0))


def device_peak_bytes(record: Record) -> int | None:
    """The most that the device held: the larger of the parent's NVML samples and the child's own readings.

    Sampling can miss a short peak, but never the memory that the caching allocator holds at stage borders;
    so the child's reading, above what was in use before it, is a lower bound beside the samples.
    """
    before = record.device_memory.used_before_bytes
    own = record.result.memory.device_peak_bytes if record.result and record.result.memory else None
    candidates = [
        record.device_memory.peak_used_bytes,
        own + before if own is not None and before is not None else None,
    ]
    return max((value for value in candidates if value is not None), default=None)


def floor_bytes(record: Record) -> int | None:
    """Arithmetic over the networks' tensors; None before every optimizer has made a step."""
    if record.result is None or not record.result.networks:
        return None
    if not all(record.result.observed.optimizer_states.values()):
        return None
    return sum(size.floor_bytes for size in record.result.networks.values())


def floor_of(record: Record) -> Floor | None:
    """None where the networks were never built."""
    if record.result is None or not record.result.networks:
        return None
    sizes = record.result.networks.values()
    return Floor(
        weight_bytes=sum(size.parameter_bytes + size.buffer_bytes for size in sizes),
        gradient_bytes=sum(size.gradient_bytes for size in sizes),
        state_bytes=sum(size.state_bytes for size in sizes),
        gradient_set_bytes=max(size.gradient_bytes for size in sizes),
        trained_parameters=sum(size.trained_parameters for size in sizes),
    )


def stage_peaks(memory: MemoryReport) -> dict[str, int]:
    """By stage, the larger of its peaks in the first cycle and in the steady ones."""
    found: dict[str, int] = {}
    for peaks in (memory.first_cycle, memory.steady):
        for stage, peak in peaks.items():
            size = larger(found.get(stage), peak.allocated_bytes)
            if size is not None:
                found[stage] = size
    return found


def unexplained_bytes(record: Record, device_peak: int | None) -> int | None:
    """What the parts of the peak, each counted on its own, leave of the device's peak."""
    anatomy = record.result.memory.anatomy if record.result and record.result.memory else None
    if anatomy is None or device_peak is None:
        return None
    return device_peak - (record.device_memory.used_before_bytes or 0) - anatomy.counted_bytes


def enqueue_share(cycles: list[Cycle]) -> float | None:
    """None where the host's part was not timed."""
    turns = [turn for cycle in cycles for turn in cycle.turns]
    enqueued = [turn.enqueue_s for turn in turns if turn.enqueue_s is not None]
    if not turns or len(enqueued) < len(turns):
        return None
    return sum(enqueued) / sum(turn.compute_s for turn in turns)


def headroom_bytes(record: Record, device_peak: int | None) -> int | None:
    """What is left of the device, or of the emulated one, at the peak."""
    limit, total = record.plan.device.memory_limit_bytes, record.device_memory.total_bytes
    memory = record.result.memory if record.result else None
    if record.plan.device.kind == "cpu":
        peak = memory.peak.allocated_bytes if memory else None
        return limit - peak if limit is not None and peak is not None else None
    if device_peak is None or total is None:
        return None
    if limit is not None:
        return limit - (device_peak - (record.device_memory.used_before_bytes or 0))
    return total - device_peak


def remarks_of(record: Record) -> list[str]:
    """Codes of what a reader of the row must know: `cpu_memory`, `emulated`, `probable_oom`, …"""
    result, memory = record.result, record.result.memory if record.result else None
    asked = record.plan
    seen = result.observed if result else None
    remarks = []
    if record.reused_from is not None:
        remarks.append("reused")
    if memory and memory.meter == "process_rss":
        remarks.append("cpu_memory")
    if asked.device.memory_limit_bytes is not None:
        remarks.append("emulated")
    if record.device_memory.in_use_before:
        remarks.append("device_in_use")
    if any(stranger.seen == "during" for stranger in record.device_memory.strangers):
        remarks.append("stranger")
    if record.ending.left_behind:
        remarks.append("left_behind")
    if record.device_memory.unreleased_bytes is not None:
        remarks.append("unreleased")
    if result and result.out_of_memory and not result.out_of_memory.certain:
        remarks.append("probable_oom")
    before = record.ending.peak_before
    if memory is None and before is not None and before.allocated_bytes is not None:
        remarks.append("peak_before_the_end")
    if memory and memory.allocation_retries and record.status == "ok":
        remarks.append("allocation_retries")
    if record.status == "ok" and seen and not all(seen.optimizer_states.values()):
        remarks.append("no_optimizer_state")
    if record.status == "ok" and _launch_bound(record):
        remarks.append("launch_bound")
    if memory and result and "cudnn" in (result.observed.attention or []) and _gpu_fault(record):
        remarks.append("cudnn_before_fault")
    if asked.memory.snapshot and asked.device.kind == "cuda":
        remarks.append("snapshot")
    if record.status == "ok" and _checkpointing_did_nothing(record):
        remarks.append("not_checkpointed")
    if seen and seen.micro_batch is not None and seen.micro_batch != asked.batch.size:
        remarks.append("batch_differs")
    if (
        seen
        and seen.height is not None
        and (seen.height, seen.width) != (asked.resolution.height, asked.resolution.width)
    ):
        remarks.append("resolution_differs")
    return remarks


def _launch_bound(record: Record) -> bool:
    """The host was still launching when the device was nearly done, so that the device waited for it.

    On an H200, SD1.5 and SDXL rows whose time does not grow with the batch had shares of 0.97 to 0.99, those
    whose time does 0.91 to 0.95 (docs/results-h200.md). Loss scaling makes the host wait: it tells nothing.
    """
    share = enqueue_share(_measured(record.result))
    on_gpu = record.plan.device.kind == "cuda"
    return on_gpu and not record.plan.precision.grad_scaler and share is not None and share >= LAUNCH_BOUND


def _gpu_fault(record: Record) -> bool:
    """CUDA reports an illegal access late, cuDNN's attention a plan that did not run."""
    failure = record.result.failure if record.result else None
    return failure is not None and ("CUDA error" in failure.message or "mha_graph" in failure.message)


def _checkpointing_did_nothing(record: Record) -> bool:
    """A trained network that should recompute its blocks never did; the teacher does so in fastgen alone."""
    seen = record.result.observed.recomputations if record.result else {}
    asked = [name for name in record.plan.checkpointing.networks if name != "teacher"]
    return record.plan.phase.name == "train" and any(seen.get(name) == 0 for name in asked)


def _measured(result: Result | None) -> list[Cycle]:
    """The cycles that are timed."""
    return [cycle for cycle in result.cycles if not cycle.warmup] if result else []


def _turns(cycles: list[Cycle]) -> dict[str, list[float]]:
    turns: dict[str, list[float]] = {}
    for cycle in cycles:
        for turn in cycle.turns:
            turns.setdefault(turn.turn, []).append(turn.compute_s)
    return turns


def _died(record: Record) -> tuple[str | None, int | None]:
    result = record.result
    died = (result.out_of_memory or result.failure) if result else None
    if died is not None:
        return died.stage, died.cycle
    if record.status == "ok":
        return None, None
    return record.ending.last_stage, record.ending.last_cycle


def _explanation(record: Record) -> str | None:
    if record.result and record.result.failure:
        failure = record.result.failure
        return f"{failure.kind}: {failure.message}"[:500]
    return record.ending.explanation
