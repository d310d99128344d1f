"""What a sweep shows while it runs: one progress display on a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dmad_sweep.records.plan import Plan
from dmad_sweep.records.progress import Progress as TrialProgress
from dmad_sweep.records.record import Record
from dmad_sweep.records.row import row_of
from dmad_sweep.units import bytes_to_gib, seconds_to_ms


class Display:
    """`total` is None when a launcher hands over trials one by one."""

    def __init__(self, total: int | None, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._total, self._done = total, 0
        self._plan: Plan | None = None
        self._started = 0.0
        self._bar: Progress | None = None
        if self.console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
                # the estimate comes from whole trials, which may take minutes each
                speed_estimate_period=24 * 3600,
            )
            self._task = self._bar.add_task("starting", total=total)
            self._bar.start()

    def expect(self, trials: int) -> None:
        """So many trials more than were known of."""
        if self._total is not None:
            self._total += trials
            if self._bar:
                self._bar.update(self._task, total=self._total)

    def say(self, text: str) -> None:
        """A line above the progress."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def wait(self, reason: str) -> None:
        """What keeps the next trial from beginning."""
        if self._bar:
            self._bar.update(self._task, description=reason)
        else:
            self.say(reason)

    def begin(self, plan: Plan) -> None:
        self._plan, self._started = plan, time.monotonic()
        if self._bar:
            self._bar.update(self._task, description=f"{plan.label}: starting")
        else:
            self.say(f"[{self._position()}] {plan.label}: starting")

    def progress(self, report: TrialProgress | None) -> None:
        if self._bar and report and self._plan:
            where = f"cycle {report.cycle}/{report.cycles}, {report.stage}" if report.cycle else report.stage
            self._bar.update(self._task, description=f"{self._plan.label}: {where}")

    def end(self, record: Record) -> None:
        line = f"[{self._position()}] {record.plan.label}: {_outcome(record)}"
        left = self._time_left()
        self._done += 1
        self.say(line + (left if not self._bar else ""))
        if self._bar:
            self._bar.update(self._task, completed=self._done)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()

    def _position(self) -> str:
        return f"{self._done + 1}/{self._total}" if self._total else str(self._done + 1)

    def _time_left(self) -> str:
        if not self._total or self._done + 1 == self._total:
            return ""
        per_trial = time.monotonic() - self._started
        seconds = per_trial * (self._total - self._done - 1)
        return f"; about {seconds / 60:.0f} min left" if seconds >= 90 else f"; about {seconds:.0f} s left"


def _outcome(record: Record) -> str:
    row = row_of(record)
    parts: list[str] = [record.status]
    if record.reused_from is not None:
        parts.append(f"taken from sweep {record.reused_from.sweep}")
    if row.died_stage is not None:
        parts.append(f"in {row.died_stage}, cycle {row.died_cycle}")
    if row.peak_allocated_bytes is not None:
        parts.append(f"peak {bytes_to_gib(row.peak_allocated_bytes):.2f} GiB")
    if row.iteration_s is not None:
        parts.append(f"iteration {seconds_to_ms(row.iteration_s.median):.0f} ms")
    if row.explanation is not None:
        parts.append(row.explanation.splitlines()[0])
    return ", ".join(parts)
