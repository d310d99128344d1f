"""The tool's own cost in a step, as a share of the step: `python benchmarks/cost_per_step.py [CYCLES]`.

One process runs SD1.5's DMD2 cycle at batch 2, 512 px (a tiny network on a CPU), by turns with stages
recorded and without. The host's time inside the recorder is told apart: it is smaller than the noise of a
step, and an upper bound of the cost where the device is busy meanwhile.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from dmad_sweep.child.memory import create_meter
from dmad_sweep.child.stages import StageRecorder
from dmad_sweep.config.plan import plan_trial
from dmad_sweep.config.schema import Config, Device
from dmad_sweep.records.progress import ProgressWriter
from dmad_sweep.records.settings import Batch, Precision
from dmad_sweep.sweep.devices import Nvml, choose_device
from dmad_sweep.workload.create import create_workload


class SwitchedSpan:
    """A recorder's spans, or nothing in their place; seconds spent inside the recorder."""

    def __init__(self, recorder: StageRecorder) -> None:
        self._recorder = recorder
        self.on = True
        self.seconds = 0.0

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        span = self._recorder.span(stage) if self.on else nullcontext()
        span.__enter__()
        self.seconds += time.perf_counter() - started
        yield
        started = time.perf_counter()
        span.__exit__(None, None, None)
        self.seconds += time.perf_counter() - started


def main(cycles: int) -> None:
    chosen = choose_device(Device(), Nvml())
    settings = Config(batch=Batch(2), precision=Precision())
    plan = plan_trial(settings, chosen, "benchmark", 0)
    device = torch.device("cuda", 0) if chosen.kind == "cuda" else torch.device("cpu")
    synchronize = torch.cuda.synchronize if chosen.kind == "cuda" else lambda: None
    with tempfile.TemporaryDirectory() as folder:
        recorder = StageRecorder(
            create_meter(plan.device, device), ProgressWriter(Path(folder) / "progress.jsonl"), cycles
        )
        span = SwitchedSpan(recorder)
        workload = create_workload(plan, device, span)
        workload.load()
        seconds: dict[bool, list[float]] = {True: [], False: []}
        inside: list[float] = []
        for cycle in range(2 * cycles + 4):
            span.on, span.seconds = cycle % 2 == 0, 0.0
            spent = 0.0
            for turn in workload.turns:
                workload.fetch(cycle, turn)
                synchronize()
                started = time.perf_counter()
                workload.run(cycle, turn)
                synchronize()
                spent += time.perf_counter() - started
            if cycle >= 4:
                seconds[span.on].append(spent)
                if span.on:
                    inside.append(span.seconds)
    recorded, bare = statistics.median(seconds[True]), statistics.median(seconds[False])
    print(f"{plan.model.name} on {chosen.name}, {cycles} cycles each")
    ratio = recorded / bare
    print(f"cycle with stages {recorded * 1000:.1f} ms, without {bare * 1000:.1f} ms: ratio {ratio:.4f}")
    share = statistics.median(inside) / recorded
    print(f"inside the recorder {statistics.median(inside) * 1000:.3f} ms a cycle: {share:.3%} of it")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
