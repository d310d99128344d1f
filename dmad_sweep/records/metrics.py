"""The one registry of what a row exports: MLflow name, unit and meaning of every metric and param."""

from collections.abc import Callable
from dataclasses import dataclass

from dmad_sweep.records.row import Row, Spread
from dmad_sweep.units import bytes_to_gib, seconds_to_ms


@dataclass(frozen=True)
class Metric:
    """`value` gives the number in the unit of the name, or None when it was not measured."""

    name: str
    unit: str
    meaning: str
    value: Callable[[Row], float | None]


def _gib(read: Callable[[Row], int | None]) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        number = read(row)
        return None if number is None else bytes_to_gib(number)

    return value


def _ms(read: Callable[[Row], Spread | None]) -> Callable[[Row], float | None]:
    def value(row: Row) -> float | None:
        spread = read(row)
        return None if spread is None else seconds_to_ms(spread.median)

    return value


METRICS = (
    Metric(
        "memory/peak_allocated_gib",
        "GiB",
        "highest bytes of live tensors over all stages (on a CPU: of the process)",
        _gib(lambda row: row.peak_allocated_bytes),
    ),
    Metric(
        "memory/peak_reserved_gib",
        "GiB",
        "highest bytes that the caching allocator held",
        _gib(lambda row: row.peak_reserved_bytes),
    ),
    Metric(
        "memory/device_peak_gib",
        "GiB",
        "highest used memory of the device by NVML: context, cache and others included",
        _gib(lambda row: row.device_peak_bytes),
    ),
    Metric(
        "memory/after_load_gib",
        "GiB",
        "live bytes once networks and optimizers are built",
        _gib(lambda row: row.after_load_bytes),
    ),
    Metric(
        "memory/first_forward_gib",
        "GiB",
        "highest live bytes up to the end of the first student.forward",
        _gib(lambda row: row.first_forward_bytes),
    ),
    Metric(
        "memory/first_backward_gib",
        "GiB",
        "highest live bytes up to the end of the first student.backward",
        _gib(lambda row: row.first_backward_bytes),
    ),
    Metric(
        "memory/headroom_gib",
        "GiB",
        "device total (or emulated limit) less the device peak",
        _gib(lambda row: row.headroom_bytes),
    ),
    Metric(
        "time/iteration_ms",
        "ms",
        "one training iteration as the recipe defines it, waiting for data excluded",
        _ms(lambda row: row.iteration_s),
    ),
    Metric("time/student_turn_ms", "ms", "median student turn", _ms(lambda row: row.student_turn_s)),
    Metric("time/fake_score_turn_ms", "ms", "median fake-score turn", _ms(lambda row: row.fake_score_turn_s)),
    Metric("time/data_ms", "ms", "median wait for the samples of a turn", _ms(lambda row: row.data_s)),
    Metric(
        "time/enqueue_share",
        "",
        "share of the turns' time until the host had launched everything",
        lambda row: row.enqueue_share,
    ),
    Metric(
        "memory/unexplained_gib",
        "GiB",
        "device peak less its counted parts",
        _gib(lambda row: row.unexplained_bytes),
    ),
    Metric(
        "memory/floor_gib",
        "GiB",
        "weights, gradients and optimizer states of all networks",
        _gib(lambda row: row.floor_bytes),
    ),
    Metric(
        "throughput/images_per_s",
        "images/s",
        "effective batch over iteration time, waiting for data included",
        lambda row: row.images_per_s,
    ),
)


def metrics_of(row: Row) -> dict[str, float]:
    """What was measured, by MLflow name; what was not measured is absent."""
    values = {metric.name: metric.value(row) for metric in METRICS}
    return {name: value for name, value in values.items() if value is not None}


def params_of(row: Row) -> dict[str, str | int]:
    """The combination, as MLflow params."""
    return {
        "batch": row.batch,
        "resolution": row.resolution,
        "precision": row.precision,
        "checkpointing": row.checkpointing,
        "adapter": row.adapter,
        "attention": row.attention,
        "optimizer": row.optimizer,
        "ema": row.ema,
        "accumulation": row.accumulation,
        "effective_batch": row.effective_batch,
        "model": row.model,
        "recipe": row.recipe,
        "phase": row.phase,
        "data": row.data,
    }
