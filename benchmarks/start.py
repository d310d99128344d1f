"""What it costs until the command line answers, as multiples of a bare `python -c "import hydra"`.

`python benchmarks/start.py [TIMES]`: processor seconds of `--help`, of a refused value and of `--cfg job`,
each the median of TIMES (5) runs taken by turns with the bare one.
"""

import resource
import statistics
import subprocess
import sys

COMMANDS = {
    "import hydra": ["-c", "import hydra, omegaconf"],
    "--help": ["-m", "dmad_sweep", "--help"],
    "batch=0": ["-m", "dmad_sweep", "batch=0"],
    "--cfg job": ["-m", "dmad_sweep", "--cfg", "job", "--resolve"],
}


def processor_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(times):
        for name, arguments in COMMANDS.items():
            seconds[name].append(processor_seconds(arguments))
    bare = statistics.median(seconds["import hydra"])
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"{name:14}{median:6.2f} s  {median / bare:5.1f} x")


if __name__ == "__main__":
    main()
