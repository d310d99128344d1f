"""The inference trials that a sweep adds, so that its table can tell what training adds to them."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from dmad_sweep.config.schema import Config
from dmad_sweep.records.baseline import Conditions, conditions_of, is_baseline
from dmad_sweep.records.row import Row
from dmad_sweep.records.settings import Accumulation, Adapter, Batch, Checkpointing, Ema, Memory, Phase


def baseline_settings(settings: Config) -> Config:
    """Inference of one sample, all else as the combination has it."""
    return replace(
        settings,
        phase=Phase("inference"),
        batch=Batch(1),
        accumulation=Accumulation(1),
        checkpointing=Checkpointing(),
        adapter=Adapter(),
        memory=Memory(),
        ema=Ema(),
        schedule=replace(settings.schedule, repeats=1),
    )


class Baselines:
    """Conditions whose baseline is measured, by this sweep or by an earlier one, or was tried by this one.

    `earlier` reads rows of earlier sweeps; it is called once, when they matter for the first time.
    """

    def __init__(self, earlier: Callable[[], Iterable[Row]]) -> None:
        self._earlier: Callable[[], Iterable[Row]] | None = earlier
        self._known: set[Conditions] = set()
        self.claimed = 0

    def note(self, row: Row) -> None:
        """A trial of this sweep has ended: it may serve as a baseline."""
        if is_baseline(row):
            self._known.add(conditions_of(row))

    def claim(self, wanted: Conditions) -> bool:
        """Whether the caller is to measure a baseline under these conditions: once, however it ends."""
        if wanted not in self._known and self._earlier is not None:
            for row in self._earlier():
                self.note(row)
            self._earlier = None
        if wanted in self._known:
            return False
        self._known.add(wanted)
        self.claimed += 1
        return True
