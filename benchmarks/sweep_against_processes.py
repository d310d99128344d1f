"""What a sweep costs beside its cycles, against as many fresh Python processes that run the same cycles.

    python benchmarks/sweep_against_processes.py

Runs six SD1.5 cells on the GPU, as one sweep and as tests/gpu/bare_step.py in processes of their own, and
prints the ratio of the wall times that are neither building nor cycles, and what the sweep's part is made of.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from dmad_sweep.records.codec import from_json, read_json
from dmad_sweep.records.files import SweepFolder, TrialFolder
from dmad_sweep.records.progress import Progress
from dmad_sweep.records.record import Record

ROOT = Path(__file__).parents[1]
BATCHES, SIDES = (1, 2, 4), (512, 768)
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def main() -> None:
    outside_bare, peaks = 0.0, {}
    for side in SIDES:
        for batch in BATCHES:
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, ROOT / "tests/gpu/bare_step.py", "sd15", "dmd2", str(batch), str(side)],
                capture_output=True,
                check=True,
                env=ENVIRONMENT,
            )
            wall = time.perf_counter() - started
            told = json.loads(done.stdout.splitlines()[-1])
            inside = told["build_s"] + told["warmup_s"] + sum(told["cycle_s"])
            peaks[batch, side] = told["peak"]
            outside_bare += wall - inside
            print(f"process, batch {batch}, {side} px: {wall:.1f} s, of which {wall - inside:.1f} s outside")
    with tempfile.TemporaryDirectory() as outputs:
        outside_sweep = run_sweep(Path(outputs), peaks)
    print(f"outside building and cycles: sweep {outside_sweep:.1f} s, processes {outside_bare:.1f} s")
    print(f"ratio {outside_sweep / outside_bare:.2f}")


def run_sweep(outputs: Path, bare_peaks: dict[tuple[int, int], int]) -> float:
    """Seconds of a whole sweep, command to prompt, that are neither building nor scheduled cycles."""
    started = time.perf_counter()
    axes = [f"batch={','.join(map(str, BATCHES))}", f"resolution={','.join(map(str, SIDES))}"]
    command = [sys.executable, "-m", "dmad_sweep", "-m", *axes, "model=sd15", "baseline=false"]
    command += [f"outputs={outputs}", "sweep.name=benchmark"]
    subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True)
    wall = time.perf_counter() - started
    inside = looking = children = 0.0
    for folder in SweepFolder(outputs / "sweeps" / "benchmark").trials():
        record = read_json(Record, folder.record)
        assert record.result is not None
        assert record.result.memory is not None
        build_s, looking_s = stretches(folder, len(record.result.cycles))
        cycles_s = sum(t.compute_s + t.data_s for cycle in record.result.cycles for t in cycle.turns)
        inside += build_s + cycles_s
        looking += looking_s
        children += record.ending.wall_s
        key = record.plan.batch.size, record.plan.resolution.height
        difference = (record.result.memory.peak.allocated_bytes or 0) - bare_peaks[key]
        print(
            f"trial, batch {key[0]}, {key[1]} px: {record.ending.wall_s:.1f} s, building {build_s:.1f}, "
            f"cycles {cycles_s:.1f}, looking into the peak {looking_s:.1f}; peak {difference:+} bytes"
        )
    print(
        f"sweep: {wall:.1f} s, of which in children {children:.1f}: building and cycles {inside:.1f}, "
        f"looking into the peak {looking:.1f}, context, kernels and results "
        f"{children - inside - looking:.1f}; preloading, MLflow and the table {wall - children:.1f}"
    )
    return wall - inside


def stretches(folder: TrialFolder, cycles: int) -> tuple[float, float]:
    """Seconds of the stage `load`, and from the end of the scheduled cycles to the last stage."""
    lines = folder.progress.read_text().splitlines()
    told = [from_json(Progress, line) for line in lines]
    load_s = next(after.at - before.at for before, after in pairwise(told) if before.stage == "load")
    beyond = [progress.at for progress in told if progress.cycle > cycles]
    end = folder.result.stat().st_mtime
    return load_s, end - beyond[0] if beyond else 0.0


if __name__ == "__main__":
    main()
